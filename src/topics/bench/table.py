"""Results for people and for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from topics.bench import interpreter
from topics.bench.measure import Goal, Result


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is being measured; plain lines when it is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    with console.status("starting") as status:
        yield status.update


def print_table(results: Sequence[Result]) -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = f"load average {load:.1f} on {cores} cores: above {cores}, compare ratios only"
    table = Table(caption=f"{busy}\n{interpreter.described()}", pad_edge=False)
    table.add_column("row")
    table.add_column("what", overflow="fold", ratio=1)
    for heading in ("measured", "best", "goal", "raw", "ratio"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.row,
            result.what,
            f"{number(result.value)} {result.unit}",
            "" if result.best is None else number(result.best),
            _goal(result),
            "" if result.raw is None else f"{number(result.raw)} ({result.raw_what})",
            "" if result.ratio is None else f"{result.ratio:.3g}",
        )
    width = None if sys.stdout.isatty() else 160
    Console(width=width).print(table)


def print_json(results: Sequence[Result]) -> None:
    ran_by = {
        "python": interpreter.name(),
        "profile_guided": interpreter.is_profile_guided(),  # null: unknown
    }
    shown = [{**asdict(r), "ratio": r.ratio, "met": r.is_met, **ran_by} for r in results]
    print(json.dumps(shown, indent=2))


def _goal(result: Result) -> str:
    goal: Goal | None = result.goal
    if goal is None:
        return ""
    sign = ">=" if goal.at_least else "<="
    verdict = "met" if result.is_met else "missed"
    return f"{sign} {number(goal.value)} {verdict}"


def number(value: float) -> str:
    """Three digits that matter, with k and M for large counts."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g}"
