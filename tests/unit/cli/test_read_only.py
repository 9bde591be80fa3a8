"""Commands that only look leave every byte of a directory as it was, and take no lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.runner import topics

import topics as library

LOOKING = [
    ("ls",),
    ("describe", "orders"),
    ("config", "orders"),
    ("read", "orders"),
    ("tail", "orders"),
    ("tail", "-f", "--for", "100ms", "orders"),
    ("watch", "--for", "100ms", "--all", "orders"),
    ("queue", "stats", "jobs"),
    ("queue", "peek", "jobs"),
    ("queue", "dead", "jobs"),
    ("router", "ls"),
    ("router", "get", "copy"),
    ("cursor", "ls"),
    ("cursor", "get", "orders", "billing"),
    ("audit",),
    ("top", "--once", "--interval", "100ms"),
    ("doctor",),
    ("explain", "orders"),
    ("explain", "orders/billing"),
    ("explain", "orders#1"),
    ("explain", "jobs#1"),
]
ASKING = [
    ("drop", "orders"),
    ("delete", "orders", "--before", "2"),
    ("config", "orders", "cap_records=1"),
    ("router", "rm", "copy"),
    ("cursor", "rm", "orders", "billing"),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with library.open(tmp_path / "data") as log:
        log.create("orders", cap_records=3)
        log.append("orders", [{"data": n, "tag": "t"} for n in range(5)])
        log.create("jobs", type="queue", dead_letter="jobs.dead", max_deliveries=1)
        log.append("jobs", [{"data": n} for n in range(3)])
        log.route("copy", source="orders", dest="copied")
        log.set_cursor("orders", "billing", 1)
    return tmp_path / "data"


def tree(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_looking_changes_nothing_with_and_without_json(store: Path) -> None:
    before = tree(store)
    for command in LOOKING:
        for more in ((), ("--json",)):
            answer = topics(*command, *more, "--dir", store)
            assert answer.code == 0, (command, answer)
    assert tree(store) == before


def test_looking_works_beside_a_program_that_has_the_directory_open(store: Path) -> None:
    with library.open(store):
        assert topics("ls", "--dir", store).code == 0
        refused = topics("create", "more", "--dir", store)
    assert refused.code == 4
    assert "has this directory open" in refused.err


@pytest.mark.parametrize("command", ASKING, ids=lambda command: command[0])
def test_what_nobody_confirms_is_not_done(command: tuple[str, ...], store: Path) -> None:
    looks = [topics(*look, "--json", "--dir", store).out for look in (("ls",), ("cursor", "ls"))]
    refused = topics(*command, "--dir", store)
    assert (refused.code, refused.out) == (2, "")
    assert "--yes" in refused.err
    assert "copy" in topics("router", "ls", "--dir", store).out
    again = [topics(*look, "--json", "--dir", store).out for look in (("ls",), ("cursor", "ls"))]
    assert [_timeless(text) for text in again] == [_timeless(text) for text in looks]


def _timeless(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "lag_seconds" not in line)
