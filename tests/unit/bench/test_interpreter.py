"""Every run says by which interpreter, and what is known of how that was built."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from topics.bench.engine import main
from topics.bench.table import described, is_profile_guided

PLAIN = {
    "CONFIG_ARGS": "'--enable-shared' '--prefix=/usr'",
    "PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction",
    "CFLAGS": "-O3 -Wall",
    "PY_CORE_CFLAGS": "-O3 -Wall",
}
ONE_ROW = ["--rows", "append1", "--scale", "0.00001", "--quick"]


@pytest.mark.parametrize(
    "changed",
    [
        {"CONFIG_ARGS": "'--prefix=/usr' '--enable-optimizations' '--with-lto'"},
        {"PY_CORE_CFLAGS": "-O3 -fprofile-use -fprofile-correction"},
        {"CFLAGS_NODIST": "-fprofile-instr-use=code.profclangd"},
    ],
)
def test_a_build_with_profiles_on_record_is_told(changed: dict[str, str]) -> None:
    assert is_profile_guided({**PLAIN, **changed}) is True


def test_a_build_whose_configuration_left_profiles_out_is_told() -> None:
    assert is_profile_guided(PLAIN) is False


@pytest.mark.parametrize(
    "record",
    [
        {},
        {**PLAIN, "PGO_PROF_USE_FLAG": ""},
        {**PLAIN, "CONFIG_ARGS": None},
        {"EXT_SUFFIX": ".pyd", "CONFIG_ARGS": ""},
    ],
)
def test_nothing_is_claimed_of_a_build_without_a_record(record: dict[str, str | None]) -> None:
    assert is_profile_guided(record) is None


def test_the_last_line_names_the_interpreter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ONE_ROW, "--dir", str(tmp_path)]) == 0
    last = capsys.readouterr().out.rstrip().rpartition("\n")[2]
    assert last.strip() == described()
    assert platform.python_version() in last


def test_programs_are_told_with_every_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ONE_ROW, "--dir", str(tmp_path), "--json"]) == 0
    for result in json.loads(capsys.readouterr().out):
        assert platform.python_version() in result["python"]
        assert result["profile_guided"] in (True, False, None)
