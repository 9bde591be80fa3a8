"""The table of faults and tests in this folder's README says what is true, and says all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
README = (TESTS / "crash" / "README.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]{2}\d\d) \| (.*?) ?\| `(\S+?)::(\w+)` \|$", README, re.MULTILINE)
CATALOGUE = {
    "WA": 18,
    "WS": 16,
    "WR": 15,
    "RC": 26,
    "SN": 23,
    "SG": 17,
    "DL": 15,
    "TR": 12,
    "CL": 24,
    "ST": 8,
    "PR": 13,
    "CC": 4,
    "SW": 4,
    "ER": 5,
    "BR": 8,
}
"""How many faults of each area there are; a new one raises its number here first."""
FAULTS = [f"{area}{n:02d}" for area, last in CATALOGUE.items() for n in range(1, last + 1)]
_ID = f"({'|'.join(CATALOGUE)})\\d\\d"


def named_by_id() -> Iterator[tuple[str, str, str]]:
    """Every test whose name carries ids: fault, file and name."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for match in re.finditer(r"^(?:def (test_\w+)|(Test\w+) = )", path.read_text(), re.M):
            name = match[1] or match[2]
            ids = re.match(f"test((_?(and_)?{_ID})+)", name, re.IGNORECASE)
            if ids is not None:
                for fault in re.finditer(_ID, ids[1], re.IGNORECASE):
                    yield fault[0].upper(), str(path.relative_to(TESTS)), name


NAMED = set(named_by_id())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_words_and_a_test_that_carries_its_id(fault: str) -> None:
    rows = [row for row in ROWS if row[0] == fault]
    assert [row for row in rows if row[1]], "nobody says what goes wrong"
    assert {(row[0], row[2], row[3]) for row in rows} & NAMED, "no test is named by it"


def test_every_test_in_the_table_exists() -> None:
    gone = [
        f"{fault}: {file}::{name}"
        for fault, _, file, name in ROWS
        if not (TESTS / file).exists()
        or not re.search(rf"^(def )?{name}\b", (TESTS / file).read_text(), re.M)
    ]
    assert not gone


def test_every_test_that_carries_an_id_is_in_the_table() -> None:
    shown = {(fault, file, name) for fault, _, file, name in ROWS}
    assert not NAMED - shown
    assert {fault for fault, _, _ in shown} == set(FAULTS), "and no id is made up"
