"""The table of faults and tests in this folder's README says what is true."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
README = (TESTS / "crash" / "README.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]{2}\d\d) \| `(\S+?)::(\w+)` \|$", README, re.MULTILINE)
UNTESTED = re.findall(r"\b[A-Z]{2}\d\d\b", README.split("## Not tested yet")[1].split("##")[0])


def test_every_test_in_the_table_exists() -> None:
    assert ROWS
    gone = [
        f"{fault}: {file}::{name}"
        for fault, file, name in ROWS
        if not (TESTS / file).exists()
        or not re.search(rf"\b(def )?{name}\b", (TESTS / file).read_text())
    ]
    assert not gone


def test_a_fault_is_either_tested_or_listed_as_untested() -> None:
    assert not {fault for fault, _, _ in ROWS} & set(UNTESTED)
