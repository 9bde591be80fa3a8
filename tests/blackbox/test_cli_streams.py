"""Commands whose output nobody takes, or in an encoding that does not have the letters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.blackbox.conftest import child_environment

import topics

PROGRAM = [sys.executable, "-m", "topics.cli"]
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("streams") / "data"
    with topics.open(directory) as log:
        log.append("orders", {"data": "é", "tag": "日本"})
    return directory


@pytest.fixture
def unread() -> Iterator[int]:
    """The end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def environment(**more: str) -> dict[str, str]:
    return {**child_environment(), **more}


LOOKING = [["--help"], ["inspect", "DIR"], ["read", "orders", "--dir", "DIR"]]


def on(store: Path, command: list[str]) -> list[str]:
    return [str(store) if word == "DIR" else word for word in command]


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_closed_pipe_ends_a_command_quietly(store: Path, unread: int, command: list[str]) -> None:
    ended = subprocess.run(
        [*PROGRAM, *on(store, command)],
        env=environment(),
        stdout=unread,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_work_goes_on_though_nobody_reads_what_is_said_beside_it(
    tmp_path: Path, unread: int
) -> None:
    directory = str(tmp_path / "data")
    loss = b'{"tombstone":{"gap_from":1,"gap_to":2,"reason":"cap"}}'
    ended = subprocess.run(
        [*PROGRAM, "produce", "t", "--as", "records", "--dir", directory, "--progress"],
        env=environment(),
        input=b'{"data":1}\n%b\n{"data":2}\n' % loss,
        stdout=subprocess.PIPE,
        stderr=unread,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, b"appended 2 records to t, seq 1 to 2\n")


def test_an_exit_code_tells_what_was_wrong_though_nobody_reads_the_words(
    store: Path, unread: int
) -> None:
    for command, code in ((["read", "nothing", "--dir", "DIR"], 3), (["read", "--no-such"], 2)):
        ended = subprocess.run(
            [*PROGRAM, *on(store, command)],
            env=environment(),
            stderr=unread,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == code


def test_commands_do_their_work_without_any_standard_stream(tmp_path: Path) -> None:
    line = 'exec "$@" <&- >&- 2>&-'
    directory = str(tmp_path / "data")
    for command in (["create", "t"], ["ls"], ["drop", "t", "--yes"]):
        ended = subprocess.run(
            ["sh", "-c", line, "sh", *PROGRAM, *command, "--dir", directory],
            env=environment(),
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, command
    with topics.open(directory) as log:
        assert log.topics() == []


def test_people_get_escapes_and_programs_utf_8_where_letters_are_missing(store: Path) -> None:
    def shown(*more: str) -> bytes:
        return subprocess.run(
            [*PROGRAM, "read", "orders", "--dir", str(store), *more],
            env=environment(PYTHONIOENCODING="ascii"),
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=True,
        ).stdout

    assert shown().endswith(b'[\\u65e5\\u672c]  "\\xe9"\n')
    record = json.loads(shown("--json").decode("utf-8"))
    assert (record["$tag"], record["data"]) == ("日本", "é")
