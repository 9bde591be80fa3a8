"""`topics top`: the whole log at a glance, live."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from topics.cli import _output as out
from topics.cli import _top_view as view
from topics.cli._exit import OK
from topics.cli._options import Where, on_a_log
from topics.cli._sampling import SampleDelta, Sampler, log_sampler, server_sampler
from topics.cli._types import time_option
from topics.errors import TopicsError

if TYPE_CHECKING:
    from rich.console import RenderableType

Pause = Callable[[float], bool]
"""Waits so many seconds; True when the user wants to leave."""


@click.command()
@time_option("--interval", "interval_ms", help="How often to look.", default="1s")
@click.option("--once", is_flag=True, help="Look over one interval, print it and end.")
@on_a_log
def top(where: Where, *, interval_ms: int, once: bool, as_json: bool) -> int:
    """Watch the whole log: rates, lag, leases, pressure and fsync latency. q ends it.

    Without a terminal it prints once; with --json it prints a line for each interval.
    """
    if interval_ms < 100:
        raise click.UsageError("look at most ten times a second: --interval 100ms or more")
    with _sampling(where) as sample:
        interval, shown = interval_ms / 1000, str(where.target())
        if as_json:
            _lines(sample, interval, once=once)
        elif once or not sys.stdout.isatty():
            before = sample()
            time.sleep(interval)
            view.print_once(SampleDelta(before, sample()), shown)
        else:
            with _keys() as pause:
                _live(sample, interval, shown, pause)
    return OK


@contextmanager
def _sampling(where: Where) -> Iterator[Sampler]:
    target = where.target()
    if target.url is not None:
        with server_sampler(target.url, target.token) as sample:
            yield sample
    else:
        with where.reading() as log:
            yield log_sampler(log)


def _lines(sample: Sampler, interval: float, *, once: bool) -> None:
    """A JSON line for each interval. A server that goes away is waited for, unless `once`."""
    before, is_away = sample(), False
    while True:
        _sleep(interval)
        try:
            change = SampleDelta(before, sample())
        except TopicsError as error:
            if once:
                raise
            if not is_away:
                facts = {"code": error.code, "message": str(error)}
                print(json.dumps({"error": facts}), file=sys.stderr)
            is_away = True
            continue
        out.print_json_line(view.facts(change))
        before, is_away = change.now, False
        if once:
            break


def _live(sample: Sampler, interval: float, where: str, pause: Pause) -> None:
    """Redraw until the user has seen enough. A server that goes away is waited for."""
    from rich.console import Console  # noqa: PLC0415 - only for a screen
    from rich.live import Live  # noqa: PLC0415

    console = Console(highlight=False, markup=False, emoji=False)
    change = SampleDelta(sample(), sample())
    trouble = ""

    def drawn() -> RenderableType:
        size = console.size
        return view.screen(change, where, height=size.height, width=size.width, trouble=trouble)

    with Live(drawn(), console=console, screen=True, auto_refresh=False) as live:
        while not pause(interval):
            try:
                change, trouble = SampleDelta(change.now, sample()), ""
            except TopicsError as error:
                trouble = str(error)
            live.update(drawn(), refresh=True)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextmanager
def _keys() -> Iterator[Pause]:
    """A pause that a key ends: on a terminal `q` leaves, and keys are not echoed meanwhile."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios  # noqa: PLC0415 - only with a terminal
    import tty  # noqa: PLC0415

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def pause(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([number], [], [], left)[0] and os.read(number, 1) in (b"q", b"Q", b""):
                return True
        return False

    try:
        tty.setcbreak(number)
        yield pause
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
