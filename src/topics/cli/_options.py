"""What many commands share: which log is meant, how to print, whether to ask first."""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from topics.cli._completing import complete_context, complete_topic
from topics.client import targets
from topics.errors import NotFound

if TYPE_CHECKING:
    from topics.client.interface import AnyLog

Command: TypeAlias = Callable[..., int]
Decorator: TypeAlias = Callable[[Command], Command]

_MASTER = re.compile(r"local(-cluster)?(\[[^\]]+\])?|yarn|(spark|k8s)://\S+")

RETRIES = 2
"""How often a call is repeated: the user waits for the answer."""


def given_before(ctx: click.Context, param: click.Parameter, value: object) -> object:
    """What stands behind a command, else what stands before it: `topics --url URL ls`."""
    assert param.name is not None
    return value or ctx.find_root().params.get(param.name) or value


def json_option(help: str) -> Callable[[Any], Any]:
    """The flag that every command has; most of them say the same about it."""
    return click.option("--json", "as_json", is_flag=True, callback=given_before, help=help)


as_json_option = json_option("Print JSON, for programs.")
topic_argument = click.argument("topic", shell_complete=complete_topic)
match_option = click.option(
    "--match", metavar="TAG", help="Only records with this tag; a tag that ends in * is a prefix."
)
not_node_option = click.option(
    "--not-node", metavar="NODE", multiple=True, help="Leave out the records of this node."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@dataclass(frozen=True)
class Where:
    """The log a command was pointed at, by options or by silence."""

    url: str | None
    dir: str | None
    context: str | None
    token_file: str | None
    ca_file: str | None = None

    def target(self) -> targets.Target:
        token = None if self.token_file is None else targets.read_token(self.token_file)
        target = targets.resolve(self.url, self.dir, self.context, token, os.environ)
        ca_file = self.ca_file or target.ca_file
        if ca_file is not None:
            # Spark's workers read it here, too, so it need not be passed on to each connection.
            os.environ["SSL_CERT_FILE"] = targets.checked_ca_file(ca_file)
        return target

    def spelled(self) -> str:
        """The options again, for a command that the output advises."""
        given = {
            "--url": self.url,
            "--dir": self.dir,
            "--context": self.context,
            "--token-file": self.token_file,
            "--ca-file": self.ca_file,
        }
        words = [f" {name} {shlex.quote(value)}" for name, value in given.items() if value]
        return "".join(words)

    @contextmanager
    def reading(self) -> Iterator[AnyLog]:
        """The log, for calls that change nothing: a directory is looked at beside its owner."""
        target = self.target()
        with _opened(target, read_only=True, may_create=False) as log:
            yield log

    @contextmanager
    def writing(self, *, may_create: bool = False) -> Iterator[AnyLog]:
        """The log, for any call. A directory must exist unless the command may make it."""
        with _opened(self.target(), read_only=False, may_create=may_create) as log:
            yield log


def _opened(target: targets.Target, *, read_only: bool, may_create: bool) -> AnyLog:
    # Imported late: help needs none of these modules, and a command needs one of the two.
    if target.url is not None:
        from topics.client.sync import RemoteLog  # noqa: PLC0415

        return RemoteLog(target.url, token=target.token, retries=RETRIES)
    assert target.path is not None
    if not may_create and not os.path.exists(target.path):
        raise NotFound(f"the directory {target.path}")
    from topics.embedded import open_log  # noqa: PLC0415

    cold_dir = os.environ.get("TOPICS_COLD_DIR") or None
    return open_log(target.path, read_only=read_only, cold_dir=cold_dir)


def with_log_options(callback: Callable[..., object] | None = None) -> Callable[[Any], Any]:
    """The options that name a log."""
    option = functools.partial(click.option, callback=callback)
    path = click.Path()
    options = (
        option("--url", metavar="URL", help="The server, like http://127.0.0.1:4000."),
        option("--dir", metavar="PATH", type=path, help="A data directory instead."),
        option(
            "--context",
            metavar="NAME",
            shell_complete=complete_context,
            help="A log by the name it has in `topics context ls`.",
        ),
        option(
            "--token-file", metavar="PATH", type=path, help="A file with the key for the server."
        ),
        option(
            "--ca-file",
            metavar="PATH",
            type=path,
            help="Certificates of an authority of your own.",
        ),
    )

    def decorate(command: Any) -> Any:  # noqa: ANN401 - a function, or what a decorator made
        return functools.reduce(lambda made, option: option(made), reversed(options), command)

    return decorate


def on_a_log(command: Command) -> Command:
    """Give a command the option --json and the options that name a log."""
    wrapped: Command = as_json_option(with_where(command))
    return wrapped


def with_where(command: Command) -> Command:
    """Give a command the options that name a log; it gets them as one `Where`, first."""

    @with_log_options(given_before)
    @functools.wraps(command)
    def call(
        *args: Any,  # noqa: ANN401 - whatever the command takes
        url: str | None,
        dir: str | None,
        context: str | None,
        token_file: str | None,
        ca_file: str | None,
        **options: Any,  # noqa: ANN401
    ) -> int:
        return command(Where(url, dir, context, token_file, ca_file), *args, **options)

    wrapped: Command = call
    return wrapped


def master_option(command: Command) -> Command:
    """Where Spark runs; what cannot be a master is told before a JVM has to find out."""

    def checked(ctx: click.Context, param: click.Parameter, text: str) -> str:
        if not _MASTER.fullmatch(text):
            raise click.BadParameter(
                f"{text!r} is no master; write it like local[4] or spark://host:7077"
            )
        return text

    return click.option(
        "--master",
        default="local[*]",
        show_default=True,
        callback=checked,
        help="Where Spark runs.",
    )(command)


def ask(question: str, *, yes: bool) -> bool:
    """Whether to go on. Without a terminal there is no answer, so --yes has to be given."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to answer on; add --yes.")
    if click.confirm(question, err=True):
        return True
    click.echo("Nothing was changed.", err=True)
    return False
