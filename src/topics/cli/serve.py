"""`topics serve`: read the settings, prepare the process, run the server.

Every setting of the table in `topics.server.settings` is a flag here. Values are not parsed by
click: flags and variables go through the same rules, so both are refused in the same words.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
from collections.abc import Mapping
from typing import Any

import click

from topics.errors import InvalidSetting
from topics.server.settings import SECTIONS, SETTINGS, ServerSetting

MIN_OPEN_FILES = 512
LEVELS = ("debug", "info", "warning", "error")
_LINE = "%(asctime)s.%(msecs)03d %(levelname)-8s %(name)s: %(message)s"


def _option(setting: ServerSetting) -> click.Option:
    if setting.is_switch:
        spelling = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return click.Option([setting.name, spelling], default=None, help=setting.help)
    return click.Option(
        [setting.name, setting.flag],
        metavar="VALUE",
        help=setting.help,
        hidden=setting.is_for_tests,
    )


def _serve(log_level: str, **flags: str | bool | None) -> int:
    """Serve a data directory over HTTP until SIGINT or SIGTERM.

    A flag wins over its variable. SIGHUP reloads the TLS certificate.

    Exit codes: 0 after a clean stop, 1 when the last records may not be durable or the port cannot
    be had, 2 for a setting that cannot be used, 4 when the directory cannot be opened without risk;
    then the last line on stderr says why, as JSON.
    """
    from topics.server.config import load  # noqa: PLC0415 - `topics --help` answers at once
    from topics.server.serve import serve as run_server  # noqa: PLC0415

    set_up_logging(log_level)
    arm_test_hooks(os.environ)
    config = load(os.environ, flags)
    raise_open_file_limit()
    return run_server(config)


def set_up_logging(level: str) -> None:
    """Readable lines on stderr; stdout stays free for the access log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_LINE, datefmt="%Y-%m-%dT%H:%M:%S"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def arm_test_hooks(environ: Mapping[str, str]) -> None:
    """Crash points that tests ask for by a variable; nothing happens without it."""
    from topics.storage import crashpoints  # noqa: PLC0415

    try:
        crashpoints.install_from_env(environ)
    except ValueError as error:
        raise InvalidSetting(
            crashpoints.POINT_VARIABLE, allowed="<crash point>:<n from 1>", got=str(error)
        ) from error


def raise_open_file_limit() -> None:
    """Allow as many open files as the system permits: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if 0 <= soft < MIN_OPEN_FILES:  # negative: no limit at all
        raise InvalidSetting(
            "the limit on open files (ulimit -n)",
            allowed=f"at least {MIN_OPEN_FILES}",
            got=str(soft),
        )


class _Serve(click.Command):
    """Lists its many options by what they are about."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        left = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([row for name in names if (row := left.pop(name))])
        with formatter.section("More"):
            formatter.write_dl([row for row in left.values() if row])


def _command() -> click.Command:
    level = click.Option(
        ["log_level", "--log-level"],
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        help="How much to say on stderr.",
    )
    options: list[Any] = [*map(_option, SETTINGS), level]
    return _Serve("serve", callback=_serve, params=options, help=_serve.__doc__)


serve = _command()
