"""The tree of commands, and what becomes of an error: one clear line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from topics import __version__
from topics.cli.serve import serve
from topics.errors import (
    InvalidRequest,
    InvalidSetting,
    NotFound,
    RefusedToOpen,
    TopicNotFound,
    TopicsError,
)

NO, USAGE, NOT_FOUND, REFUSED, INTERRUPTED = 1, 2, 3, 4, 130
BENCHES = {"engine": "topics.bench.engine"}


class NotThere(click.ClickException):
    """The command was asked about something that does not exist."""

    exit_code = NOT_FOUND


class Commands(click.Group):
    """Ends quietly with 0 when nobody reads the output any more; click would end with 1."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - whatever the command returns
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python would complain once more while it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return answer


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="topics", message="%(prog)s %(version)s")
def app() -> None:
    """A durable event log: look into a data directory, check it, measure it."""


_directory = click.argument("directory", type=click.Path())
_cold_dir = click.option(
    "--cold-dir",
    type=click.Path(),
    envvar="TOPICS_COLD_DIR",
    help="Where the store keeps its old segments, if it has such a place.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="For programs.")


@app.command()
@_directory
@click.argument("topic", required=False)
@_cold_dir
@_as_json
def inspect(directory: str, topic: str | None, cold_dir: str | None, as_json: bool) -> int:
    """Show what is in DIRECTORY, or in one TOPIC of it, and what opening it would do.

    Reads only; a program that has the directory open is not disturbed.
    """
    from topics.cli import _inspect  # noqa: PLC0415 - the engine takes a while to import

    return _inspect.run(_existing(directory), topic, cold_dir=cold_dir, as_json=as_json)


@app.command()
@_directory
@_cold_dir
@_as_json
def verify(directory: str, cold_dir: str | None, as_json: bool) -> int:
    """Check every byte of DIRECTORY that is under a checksum, and whether all of it fits together.

    Exits with 1 when anything is wrong, naming file, offset and seq. Reads only.
    """
    from topics.cli import _verify  # noqa: PLC0415

    return _verify.run(_existing(directory), cold_dir=cold_dir, as_json=as_json)


@app.command()
@_directory
@click.argument("topic")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Start behind this seq.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many records.")
@_cold_dir
def dump(directory: str, topic: str, after: int, limit: int | None, cold_dir: str | None) -> int:
    """Write the records of TOPIC as JSON lines, loss among them as {"tombstone": ...}.

    Reads only; stops quietly when nobody reads on.
    """
    from topics.cli import _dump  # noqa: PLC0415

    return _dump.run(_existing(directory), topic, after=after, limit=limit, cold_dir=cold_dir)


@app.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("name", type=click.Choice(sorted(BENCHES)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> int:
    """Measure speed and memory beside raw numbers; `topics bench engine --help` tells more."""
    code: int = import_module(BENCHES[name]).main(list(arguments))
    return code


app.add_command(serve)


def _existing(directory: str) -> str:
    where = os.path.abspath(directory)
    if not os.path.exists(where):
        raise NotThere(f"there is no directory {where}")
    return where


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """The same, returning the exit code."""
    try:
        code: int | None = app.main(
            args=None if argv is None else list(argv), prog_name="topics", standalone_mode=False
        )
        return code or 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (TopicsError, OSError) as error:
        return _explain(error)


def _explain(error: TopicsError | OSError) -> int:
    print(f"topics: {error}", file=sys.stderr)
    match error:
        case RefusedToOpen():
            print(error.line(), file=sys.stderr)
            return REFUSED
        case TopicNotFound() | NotFound():
            return NOT_FOUND
        case InvalidRequest() | InvalidSetting():
            return USAGE
        case _:
            return NO
