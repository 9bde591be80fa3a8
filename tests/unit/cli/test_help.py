"""The help of every command, as people read it.

Each text is pinned under help/. After a change, read and keep the new ones with

    .venv/bin/python -m tests.unit.cli.test_help
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.unit.cli.runner import topics

from topics.cli._app import COMMANDS, app

PINNED = Path(__file__).parent / "help"
WITHOUT_JSON = {"serve"}
"""Commands that print nothing for programs."""


def every_command() -> Iterator[tuple[str, click.Command]]:
    """All commands with their names, `queue claim` for one in a group. Benches parse alone."""
    top = click.Context(app)
    for name in sorted(COMMANDS):
        command = app.get_command(top, name)
        assert command is not None, name
        yield from _below(name, command)


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group) and name != "bench":
        inside = click.Context(command)
        for part in command.list_commands(inside):
            below = command.get_command(inside, part)
            assert below is not None
            yield from _below(f"{name} {part}", below)


EVERY = dict(every_command())


def help_of(name: str) -> str:
    return topics(*name.split(), "--help").out


@pytest.mark.parametrize("name", ["", *EVERY])
def test_the_help_of_a_command_reads_as_it_was_approved(name: str) -> None:
    pinned = _file(name).read_text() if _file(name).exists() else "(nothing)"
    hint = "if it reads well, keep it: .venv/bin/python -m tests.unit.cli.test_help"
    assert help_of(name) == pinned, hint


def test_no_pinned_help_is_left_of_a_command_that_is_gone() -> None:
    assert {path.name for path in PINNED.iterdir()} == {_file(name).name for name in ["", *EVERY]}


@pytest.mark.parametrize("name", EVERY)
def test_every_command_says_what_it_does_and_speaks_json(name: str) -> None:
    command = EVERY[name]
    assert command.help, name
    assert command.help[0].isupper()
    options = {text for param in command.params for text in param.opts}
    if not isinstance(command, click.Group) and name not in WITHOUT_JSON:
        assert "--json" in options
    for param in command.params:
        assert not isinstance(param, click.Option) or param.help, f"{name} {param.opts}"


def test_the_line_in_the_list_fits_and_ends_like_a_sentence() -> None:
    for name, place in COMMANDS.items():
        assert place[1].endswith("."), name
        assert len(f"  {name:<10}  {place[1]}") <= 80, name
    assert list(COMMANDS) == sorted(COMMANDS)


@pytest.mark.parametrize("name", EVERY)
def test_no_line_in_the_list_of_a_group_is_cut_off(name: str) -> None:
    _, _, listed = help_of(name).partition("Commands:\n")
    assert [line for line in listed.splitlines() if not line.endswith(".")] == []
    assert "..." not in listed


def test_help_and_completion_import_no_command() -> None:
    """What makes them fast; a measured time would depend on the machine."""
    program = (
        "import sys; from topics.cli._app import run; run(['--help']);"
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'rich', 'pyspark')"
        " or m.startswith(('topics.engine', 'topics.server', 'topics.embedded', 'topics.http'))])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert shown.endswith("[]\n")


def _file(name: str) -> Path:
    return PINNED / f"{name.replace(' ', '-') or 'topics'}.txt"


def _pin_all() -> None:
    os.environ["COLUMNS"] = "80"
    PINNED.mkdir(exist_ok=True)
    for path in PINNED.iterdir():
        path.unlink()
    for name in ["", *EVERY]:
        _file(name).write_text(help_of(name))


if __name__ == "__main__":
    _pin_all()
