"""`topics torture`: kill servers or interrupt an embedded log, and count what is left."""

from __future__ import annotations

import json
import secrets
import sys
import time
from pathlib import Path

import click

from topics.cli._exit import NO, OK, USAGE

_EVERY_S = 5.0


class ProgressLine:
    """How far it is: one line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._said_at = time.monotonic()

    def say(self, line: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._said_at > _EVERY_S:
            self._said_at = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            print(file=sys.stderr)


@click.command()
@click.option(
    "--cycles",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How often; a cycle takes about a second.",
)
@click.option("--seed", type=click.IntRange(min=0), help="What to do; a new one unless given.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory on the disk to test; the system's temporary one unless given.",
)
@click.option("--disk-full", is_flag=True, help="On a small tmpfs that runs full (needs root).")
@click.option("--clock-jumps", is_flag=True, help="With a clock that jumps (needs a C compiler).")
@click.option(
    "--interrupts",
    type=click.IntRange(min=1),
    help="Interrupt so many calls of an embedded log instead, as Ctrl-C does.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def torture(
    *,
    cycles: int,
    seed: int | None,
    directory: Path | None,
    disk_full: bool,
    clock_jumps: bool,
    interrupts: int | None,
    as_json: bool,
) -> int:
    """Start a real server, load it, kill it, look what is left, and again.

    Every cycle ends with SIGKILL at a random moment, at a crash point inside the server, or while
    it is stopping. The next one begins by comparing the directory with everything that was
    acknowledged. Exits with 1 at the first loss; its seed and its directory are printed and kept.

    With --interrupts no server is started: exceptions come out of the calls of an embedded log at
    any place, and the log has to show and keep what it acknowledged. Exits with 1 if one did not.
    """
    from topics.torture.run import TortureFailure, hold  # noqa: PLC0415 - help must not wait
    from topics.torture.weather import NotPossible  # noqa: PLC0415

    chosen = secrets.randbelow(1 << 31) if seed is None else seed
    print(f"seed {chosen}", file=sys.stderr, flush=True)
    progress = ProgressLine()
    if interrupts is not None:
        return _interrupt(interrupts, chosen, directory, progress, as_json=as_json)
    try:
        totals = hold(
            cycles=cycles,
            seed=chosen,
            directory=directory,
            disk_full=disk_full,
            clock_jumps=clock_jumps,
            say=progress.say,
        )
    except NotPossible as error:
        print(f"topics: {error}", file=sys.stderr)
        return USAGE
    except TortureFailure as failure:
        progress.end()
        if as_json:
            print(json.dumps(failure.as_json()))
        print(f"topics: {failure}", file=sys.stderr)
        return NO
    progress.end()
    figures = totals.as_json()
    print(json.dumps(figures) if as_json else _table(figures))
    return OK


def _interrupt(
    times: int, seed: int, directory: Path | None, progress: ProgressLine, *, as_json: bool
) -> int:
    from topics.torture.interrupts import interrupt  # noqa: PLC0415 - as above

    totals = interrupt(times=times, seed=seed, directory=directory, say=progress.say)
    progress.end()
    figures = totals.as_json()
    print(json.dumps(figures) if as_json else _table(figures))
    return NO if totals.damaged else OK


def _table(figures: dict[str, object]) -> str:
    width = max(map(len, figures))
    return "\n".join(
        f"{name.replace('_', ' '):<{width}}  {_shown(value)}" for name, value in figures.items()
    )


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
