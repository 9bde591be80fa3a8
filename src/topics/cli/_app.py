"""The tree of commands, and how errors are shown: one clear line and an exit code.

A command is one line in `COMMANDS`: its module and its line in `topics --help`. The module is
imported when the command runs, so that help and completion are quick.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from topics import __version__
from topics.cli._exit import INTERRUPTED, OK, code_for, missing
from topics.cli._groups import CommandGroup
from topics.cli._options import given_before, with_log_options
from topics.cli._output import safe
from topics.errors import RefusedToOpen, TopicsError, Unauthorized

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12 on


COMMANDS: Mapping[str, tuple[str, str]] = {
    "audit": ("audit", "Show where every seq of a topic went."),
    "backup": ("backup", "Copy a log, to be restored to any moment."),
    "bench": ("bench", "Measure speed and memory beside raw numbers."),
    "completion": ("completion", "Print a script that completes commands."),
    "config": ("topic", "Show or change the settings of a topic."),
    "context": ("context", "Keep names for the logs you work with."),
    "create": ("topic", "Create a topic."),
    "cursor": ("cursor", "Look at and move the cursors of consumers."),
    "delete": ("delete", "Remove records for good."),
    "describe": ("topic", "Show the state of a topic."),
    "doctor": ("doctor", "Check this machine and the log."),
    "drop": ("topic", "Remove a topic with everything in it."),
    "dump": ("directory", "Write a topic of a directory as JSON lines."),
    "erase": ("erase", "Remove records, and their bytes from every file."),
    "erasures": ("erase", "Show erasures, how far they are, and receipts."),
    "explain": ("explain", "Say what happened to a topic, and what helps."),
    "flow": ("flow", "Topics in, SQL or Python, a topic or a table out."),
    "inspect": ("directory", "Show what a data directory holds."),
    "lake": ("lake", "A topic as a Delta table, and its erasure receipts."),
    "ls": ("topic", "List topics."),
    "produce": ("produce", "Append lines to a topic."),
    "queue": ("queue", "Look at jobs, hand some out, redrive failed ones."),
    "read": ("read", "Print the records of a topic."),
    "restore": ("backup", "Restore a backup to a new directory."),
    "router": ("router", "Copy one topic to another."),
    "serve": ("serve", "Serve a data directory over HTTP."),
    "spark": ("spark", "Check Spark here, and run bulk jobs with it."),
    "tail": ("read", "Print the newest records, and those that come."),
    "top": ("top", "Watch the whole log, live."),
    "torture": ("torture", "Kill servers under load, count what is left."),
    "verify": ("directory", "Check every byte of a data directory."),
    "watch": ("watch", "Print what is appended to many topics."),
}
"""The module of `topics.cli` that defines a command, and its line in the help."""


class Commands(CommandGroup):
    """A group that imports its commands late and ends quietly when its output is closed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"topics.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found, command, rest = super().resolve_command(ctx, args)
        if command is not None and found is not None:
            _require_taken(ctx, command, [found, *rest])
        return found, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in sorted(COMMANDS) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def make_context(self, *args: Any, **options: Any) -> click.Context:  # noqa: ANN401 - passed on
        try:
            return super().make_context(*args, **options)  # prints help and the version
        except BrokenPipeError:
            _nobody_reads_on()
            raise click.exceptions.Exit(OK) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - whatever the command returns
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _nobody_reads_on()
            return OK
        except ModuleNotFoundError as error:
            lacking = missing(error, ctx.invoked_subcommand)
            if lacking is None:
                raise
            raise lacking from error
        return answer


def _require_taken(ctx: click.Context, command: click.Command, words: list[str]) -> None:
    """Refuse options before a command that does not have them: they would be ignored."""
    path = [words[0]]
    for word in words[1:]:
        if not isinstance(command, click.Group):
            break
        below = command.get_command(ctx, word)
        if below is not None:
            path.append(word)
            command = below
    taken = {param.name for param in command.params if param.callback is given_before}
    for name, value in ctx.params.items():
        if value and name not in taken and not isinstance(command, click.Group):
            option = next(param.opts[0] for param in ctx.command.params if param.name == name)
            ctx.fail(f"`topics {' '.join(path)}` takes no {option} before its name")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="topics", message="%(prog)s %(version)s")
@with_log_options()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def app(**given: object) -> None:
    """A durable event log: serve it, write and read it, watch over it.

    Commands reach the log named by --url or --dir, else by --context, else by TOPICS_URL and
    TOPICS_TOKEN, else by the current context, else the server at http://127.0.0.1:4000. These
    options and --json may stand before or behind a command.

    Exit codes: 0 done, 1 the answer is no or it failed, 2 not understood, 3 not found,
    4 refused, 5 unreachable, 130 interrupted.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    _prepare_streams(as_json="--json" in arguments)
    sys.excepthook = _tell_of_a_bug
    sys.exit(run(arguments))


def _tell_of_a_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback as Python does, but escape it: the error may hold text of a server."""
    text = "".join(traceback.format_exception(kind, error, trace))
    print("\n".join(safe(line) for line in text.splitlines()), file=sys.stderr)


def _prepare_streams(*, as_json: bool) -> None:
    """Open streams that the shell closed, and make all take every character in any locale.

    JSON is always UTF-8; what people read shows missing letters as escapes.
    """
    if isinstance(sys.stderr, io.TextIOWrapper):
        raw = io.BufferedWriter(_Unread(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, sys.stderr.encoding, line_buffering=True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = "utf-8" if as_json else None
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


class _Unread(io.FileIO):
    """Standard error, on which a failed write is ignored: the work of the command goes on."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def _nobody_reads_on() -> None:
    """Point standard output at nothing, or Python would complain about it while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(argv: Sequence[str] | None = None) -> int:
    """The same, returning the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    as_json = "--json" in arguments
    try:
        code: int | None = app.main(args=arguments, prog_name="topics", standalone_mode=False)
        return code or OK
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        if as_json:
            _say_as_json({"code": "usage", "message": error.format_message()})
        else:
            error.show()
        return error.exit_code
    except TopicsError as error:
        if as_json:
            detail = {} if error.detail is None else {"detail": error.detail}
            _say_as_json({"code": error.code, "message": str(error), **detail})
        else:
            _say(error)
        return code_for(error)
    except OSError as error:
        if as_json:
            _say_as_json({"code": "os_error", "message": str(error)})
        else:
            _say(error)
        return code_for(error)


def _say(error: TopicsError | OSError) -> None:
    print(f"topics: {safe(str(error))}", file=sys.stderr)
    if isinstance(error, RefusedToOpen):
        print(safe(error.line()), file=sys.stderr)
    elif isinstance(error, Unauthorized):
        # The server's advice is for programs; on the command line a key is given in another way.
        print("Give yours in a file, --token-file PATH, or in TOPICS_TOKEN.", file=sys.stderr)
        if os.environ.get("TOPICS_TOKEN") and os.environ.get("TOPICS_URL"):
            print("TOPICS_TOKEN goes to TOPICS_URL and to no other server.", file=sys.stderr)


def _say_as_json(facts: dict[str, object]) -> None:
    """Print an error as the API words it, for programs that read standard error."""
    print(json.dumps({"error": facts}), file=sys.stderr)
