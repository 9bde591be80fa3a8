"""Contexts by command, and what a shell completes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from tests.unit.cli.runner import topics

import topics as library
from topics.cli._app import app


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("secret\n")
    file.chmod(0o600)
    return file


def test_a_context_is_added_used_shown_and_forgotten(key: Path, tmp_path: Path) -> None:
    assert topics("context", "ls").err == "no contexts; add one with `topics context add`\n"
    added = topics("context", "add", "prod", "--url", "http://log:4000/", "--token-file", key)
    assert added.out == "added prod, which is now the current one\n"
    assert topics("context", "add", "here", "--dir", tmp_path).out == "added here\n"
    shown = topics("context", "ls").out.splitlines()
    assert shown[1].split() == ["here", str(tmp_path), "-"]
    assert shown[2].split() == ["*", "prod", "http://log:4000", str(key)]
    assert topics("context", "show", "--json").json == {
        "url": "http://log:4000",
        "dir": None,
        "key": True,
        "chosen_by": "context prod",
    }
    assert topics("context", "use", "here").out == "now using here\n"
    assert topics("context", "show", "here", "--json").json["current"] is True
    assert topics("context", "rm", "here").code == 2
    assert topics("context", "rm", "here", "--yes").out == "forgot here\n"
    assert "chosen by  default" in topics("context", "show").out
    assert [c["name"] for c in topics("context", "ls", "--json").json["contexts"]] == ["prod"]


def test_the_key_itself_is_never_written_down(key: Path, environment: Path) -> None:
    topics("context", "add", "prod", "--url", "http://log:4000", "--token-file", key)
    for file in environment.rglob("*"):
        assert file.is_dir() or b"secret" not in file.read_bytes()


def test_a_context_leads_commands_to_its_log(tmp_path: Path) -> None:
    with library.open(tmp_path / "data") as log:
        log.create("orders")
    topics("context", "add", "other", "--dir", tmp_path)
    added = topics("context", "add", "here", "--dir", tmp_path / "data", "--use", "--json")
    assert added.json["current"] is True
    assert topics("ls", "--json").json["topics"][0]["topic"] == "orders"
    assert topics("ls", "--context", "here").code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["add", "prod"], 2),
        (["add", "prod", "--url", "http://x", "--dir", "/d"], 2),
        (["add", "prod", "--url", "nowhere"], 2),
        (["add", "a b", "--url", "http://x"], 2),
        (["add", "prod", "--url", "http://x", "--token-file", "/absent"], 2),
        (["use", "prod"], 3),
        (["rm", "prod", "--yes"], 3),
        (["show", "prod"], 3),
    ],
)
def test_what_cannot_be_a_context_is_refused(arguments: list[str], code: int) -> None:
    answer = topics("context", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err
    assert topics("context", "ls", "--json").json == {"contexts": []}


def completed(*words: str) -> list[str]:
    """What a shell would offer for the last of these words."""
    *before, begun = words
    shell = BashComplete(app, {}, "topics", "_TOPICS_COMPLETE")
    return [item.value for item in shell.get_completions(before, begun)]


def test_a_file_without_certificates_is_refused(key: Path, tmp_path: Path) -> None:
    for words in (("ls",), ("context", "add", "x")):
        answer = topics(*words, "--url", "https://127.0.0.1:1", "--ca-file", key)
        assert (answer.code, "PEM file" in answer.err) == (2, True)


def test_a_shell_completes_commands_options_and_contexts(tmp_path: Path) -> None:
    topics("context", "add", "prod", "--dir", tmp_path)
    assert completed("con") == ["config", "context"]
    assert completed("queue", "re") == ["redrive"]
    assert completed("ls", "--cont") == ["--context"]
    assert completed("ls", "--context", "p") == ["prod"]
    assert completed("context", "use", "x") == []
    assert completed("create", "t", "durab") == ["durable=", "durability="]
    assert completed("config", "t", "durability=e") == ["durability=ephemeral"]
    assert completed("config", "t", "auto_create=") == ["auto_create=true", "auto_create=false"]
    assert completed("config", "t", "ttl_ms=", "cap_records=") == []


def test_completion_offers_nothing_where_it_would_have_to_wait_or_fail(
    environment: Path, tmp_path: Path
) -> None:
    with library.open(tmp_path / "data") as log:
        log.create("orders")
    assert completed("read", "--dir", str(tmp_path / "data"), "o") == []
    assert completed("read", "--url", "http://127.0.0.1:1", "o") == []
    assert completed("read", "--url", "nowhere", "o") == []
    (environment / "topics").mkdir(parents=True)
    (environment / "topics" / "contexts.json").write_text("{")
    assert completed("ls", "--context", "p") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_one_its_shell_understands(shell: str) -> None:
    script = topics("completion", shell).out
    assert "_TOPICS_COMPLETE" in script
    assert topics("completion", shell, "--json").json == {"shell": shell, "script": script[:-1]}
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_an_unknown_shell_is_refused() -> None:
    assert topics("completion", "tcsh").code == 2
