"""What stands before a command, and commands that are spelled differently."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.unit.cli.runner import topics

from topics.cli._app import COMMANDS, app
from topics.cli._groups import MEANT, CommandGroup


def test_options_that_name_a_log_may_stand_before_the_command(tmp_path: Path) -> None:
    before = ("--dir", tmp_path, "--json")
    assert topics(*before, "produce", "t", "-m", "one").json["count"] == 1
    assert topics(*before, "ls").json["topics"][0]["topic"] == "t"
    assert topics("--json", "ls", "--dir", tmp_path).json["topics"][0]["count"] == 1
    assert topics("--dir", tmp_path, "cursor", "ls", "t").code == 0


def test_what_stands_behind_the_command_wins(tmp_path: Path) -> None:
    topics("--dir", tmp_path / "there", "create", "t")
    shown = topics("--dir", tmp_path / "absent", "ls", "--dir", tmp_path / "there")
    assert (shown.code, shown.out.split()[5]) == (0, "t")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--url", "http://x", "inspect", "."), "`topics inspect` takes no --url before its name"),
        (("--dir", "x", "context", "ls"), "`topics context ls` takes no --dir before its name"),
        (("--token-file", "x", "serve"), "`topics serve` takes no --token-file before its name"),
    ],
)
def test_an_option_that_a_command_would_pass_over_is_refused(
    words: tuple[str, ...], says: str
) -> None:
    answer = topics(*words)
    assert answer.code == 2
    assert says in answer.err


@pytest.mark.parametrize(
    ("word", "meant"), [("raed", "read"), ("publish", "produce"), ("rooter", "router")]
)
def test_a_command_that_is_misspelt_gets_the_one_that_was_meant(word: str, meant: str) -> None:
    answer = topics(word, "t")
    assert answer.code == 2
    assert f"There is no command '{word}'; did you mean {meant}?" in answer.err


@pytest.mark.parametrize(
    ("group", "word", "meant"),
    [
        ("router", "drop", "rm"),
        ("router", "create", "put"),
        ("cursor", "delete", "rm"),
        ("cursor", "mvoe", None),
        ("context", "remove", "rm"),
        ("queue", "stat", "stats"),
        ("queue", "finish", "ack"),
        ("flow", "satus", "status"),
    ],
)
def test_a_misspelt_command_of_a_group_gets_the_one_that_was_meant(
    group: str, word: str, meant: str | None
) -> None:
    answer = topics(group, word, "t")
    assert answer.code == 2
    hint = f"did you mean {group} {meant}?" if meant else f"`topics {group} --help` lists them."
    assert f"There is no command '{group} {word}'; {hint}" in " ".join(answer.err.split())


def test_a_command_that_resembles_none_gets_the_list() -> None:
    assert "`topics --help` lists them" in topics("zzzzzz").err
    assert topics("--zzzzzz").code == 2


def test_list_is_ls(tmp_path: Path) -> None:
    topics("create", "t", "--dir", tmp_path)
    assert topics("list", "--dir", tmp_path).out == topics("ls", "--dir", tmp_path).out
    assert topics("cursor", "list", "--dir", tmp_path).code == 0


def test_every_group_knows_what_was_meant() -> None:
    context = click.Context(app)
    commands = [app.get_command(context, name) for name in COMMANDS]
    groups = [app, *(each for each in commands if isinstance(each, click.Group))]
    assert len(groups) > 5
    assert [group.name for group in groups if not isinstance(group, CommandGroup)] == []
    known = {name for group in groups for name in group.list_commands(context)}
    assert {meant for each in MEANT.values() for meant in each} <= known
    assert not COMMANDS.keys() & MEANT.keys() - {"drop", "create", "delete", "describe"}
