"""`topics doctor`: is everything in place to work with this log?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from topics.cli import _output as out
from topics.cli._exit import NO, OK
from topics.cli._options import Where, on_a_log
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.cli._checks import Check

_MARKS = {"ok": ("ok", "green"), "note": ("--", "yellow"), "bad": ("!!", "red")}


@click.command()
@on_a_log
def doctor(where: Where, *, as_json: bool) -> int:
    """Check this machine and the log: reachable, ready, key, clock, disk, open files, Spark.

    Exits with 1 when something is wrong, and says what to do. Changes nothing.
    """
    checks = list(_examine(where))
    good = all(check.state != "bad" for check in checks)
    if as_json:
        out.print_json({"ok": good, "checks": [asdict(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks) + 2
        for check in checks:
            mark, colour = _MARKS[check.state]
            print(f"{out.style(mark, colour)}  {check.name:<{width}}{out.safe(check.found)}")
            if check.remedy:
                print(f"{'':<{width + 4}}-> {out.safe(check.remedy)}")
    return OK if good else NO


def _examine(where: Where) -> Iterator[Check]:
    from topics.cli import _checks  # noqa: PLC0415 - help does without
    from topics.client import targets  # noqa: PLC0415

    yield from _checks.machine()
    try:
        target = where.target()
    except TopicsError as error:
        yield _checks.Check("target", _checks.BAD, str(error), "topics context ls")
        return
    yield _checks.chosen_target(target)
    path = where.token_file
    if target.source.startswith("context "):
        path = path or targets.load_contexts().get(target.source[8:]).token_file
    if path is not None:
        yield _checks.token_file(path)
    yield from _checks.directory(target.path) if target.path else _checks.server(target)
