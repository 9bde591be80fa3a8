"""Each class of error has its exit code, and says what happened in one line or as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.runner import topics

from topics.cli._exit import (
    INTERRUPTED,
    NO,
    NOT_FOUND,
    REFUSED,
    UNREACHABLE,
    USAGE,
    code_for,
    missing,
)
from topics.embedded.view import View
from topics.errors import _BY_CODE, TopicsError, from_wire
from topics.spark.bulk.exporting import ExportFailed
from topics.spark.bulk.importing import ImportFailed
from topics.spark.errors import FlowFailed, InvalidOption, SyncFailed
from topics.spark.jobs.ending import SparkDied, Stopped

CODES = {
    USAGE: {"invalid_request", "invalid_setting"},
    NOT_FOUND: {"topic_not_found", "router_not_found", "not_found"},
    UNREACHABLE: {"unreachable", "not_ready", "shutting_down", "object_store"},
    NO: {"internal"},
}


@pytest.mark.parametrize("code", sorted(_BY_CODE))
def test_every_error_of_the_tree_has_its_exit_code(code: str) -> None:
    expected = next((exit_code for exit_code, codes in CODES.items() if code in codes), REFUSED)
    assert code_for(from_wire(code, "x")) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(), UNREACHABLE),
        (TimeoutError(), UNREACHABLE),
        (FileNotFoundError(), NOT_FOUND),
        (PermissionError(), NO),
        (TopicsError("unknown to this version"), REFUSED),
        (FlowFailed("a batch"), NO),
        (SyncFailed("an epoch"), NO),
        (ImportFailed("an epoch"), NO),
        (ExportFailed("a piece"), NO),
        (InvalidOption("of a source"), USAGE),
        (SparkDied(), NO),
        (Stopped(), INTERRUPTED),
    ],
)
def test_other_errors_have_one_too(error: TopicsError | OSError, expected: int) -> None:
    assert code_for(error) == expected


def test_a_log_that_is_not_there_is_not_found_and_not_made(tmp_path: Path) -> None:
    answer = topics("ls", "--dir", tmp_path / "data")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == f"topics: the directory {tmp_path / 'data'} does not exist\n"
    assert not (tmp_path / "data").exists()


def test_a_file_in_the_place_of_a_directory_is_called_a_file(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.touch()
    for command in (("ls", "--dir", file), ("inspect", file), ("spark", "audit", file)):
        answer = topics(*command)
        assert (answer.code, answer.out) == (4, "")
        assert answer.err.startswith(f"topics: {file} is a file; give a directory\n")


@pytest.mark.parametrize("subject", ["orders#0", "orders#x", "orders#", "/billing", "orders/"])
def test_what_cannot_be_explained_is_not_understood(subject: str, tmp_path: Path) -> None:
    topics("create", "orders", "--dir", tmp_path)
    answer = topics("explain", subject, "--dir", tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert "write it like 'orders" in answer.err


def test_errors_are_json_where_json_was_asked_for(tmp_path: Path) -> None:
    topics("create", "orders", "--dir", tmp_path)
    answer = topics("read", "nope", "--json", "--dir", tmp_path)
    assert (answer.code, answer.out) == (3, "")
    error = json.loads(answer.err)["error"]
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": "nope"})
    misspelt = topics("raed", "--json")
    assert misspelt.code == 2
    assert json.loads(misspelt.err)["error"]["code"] == "usage"


def test_an_error_of_the_system_is_told_without_a_traceback(environment: Path) -> None:
    (environment / "topics" / "contexts.json").mkdir(parents=True)
    answer = topics("context", "ls")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("topics: [Errno 21] Is a directory")
    error = json.loads(topics("context", "ls", "--json").err)["error"]
    assert error["code"] == "os_error"


def test_a_server_that_does_not_answer_is_unreachable() -> None:
    answer = topics("ls", "--url", "http://127.0.0.1:1")
    assert (answer.code, answer.out) == (5, "")
    assert answer.err.startswith("topics: no answer from http://127.0.0.1:1:")


def test_an_interrupt_ends_with_its_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: View, **options: object) -> None:
        raise KeyboardInterrupt

    topics("create", "orders", "--dir", tmp_path)
    monkeypatch.setattr(View, "topics", interrupted)
    assert topics("cursor", "ls", "--dir", tmp_path).code == 130


LACKING = """
import sys
for package in ("deltalake", "pyarrow", "pyspark", "yaml"):
    sys.modules[package] = None  # Python then says that there is none
from topics.cli import run
for words in (
    ["lake", "sync", "orders", "lake"],
    ["lake", "maintain", "lake"],
    ["lake", "delete", "lake", "--match", "x"],
    ["flow", "run", "flow.yaml"],
    ["spark", "import", "rows.jsonl", "orders"],
    ["spark", "export", "orders", "out"],
):
    print(words[0], run(words))
"""


def test_a_command_whose_packages_are_missing_says_how_to_get_them(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", LACKING],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert told.stdout.split() == [*["lake", "4"] * 3, "flow", "4", *["spark", "4"] * 2]
    lines = told.stderr.splitlines()
    assert [line.partition(". ")[2] for line in lines] == [
        *["pip install 'topics[lake]'"] * 3,
        *["pip install 'topics[spark]'"] * 3,
    ]
    assert lines[3] == (
        "topics: the command flow needs yaml, which is not here. pip install 'topics[spark]'"
    )


def test_a_module_that_no_extra_has_is_not_explained_away() -> None:
    assert missing(ModuleNotFoundError("No module named 'mine'", name="mine"), "flow") is None
