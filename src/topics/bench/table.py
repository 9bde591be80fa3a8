"""Results for people and for programs, with the interpreter: profile-guided ones are faster."""

from __future__ import annotations

import json
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from topics.bench.measure import Goal, Result

_OPTION = "--enable-optimizations"
_PROFILE_FLAGS = ("-fprofile-use", "-fprofile-instr-use")
_COMPILER_FLAGS = ("CFLAGS", "CFLAGS_NODIST", "PY_CFLAGS_NODIST", "PY_CORE_CFLAGS")


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
    table = Table(caption=machine(), pad_edge=False)
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
        "python": interpreter_name(),
        "profile_guided": is_profile_guided(),  # null: unknown
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


def interpreter_name() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def is_profile_guided(record: Mapping[str, object] | None = None) -> bool | None:
    """Whether profiles guided the interpreter's build, as far as the builder left it on record.

        configured with `--enable-optimizations`, or profile flags among the compiler's    yes
        configured without, and the flags for it stand where `configure` puts them         no
        anything else: other systems, or a builder who took the flags out of the record    unknown

    Debian is of the last kind: it builds with profiles without that option, and removes the flags.
    """
    known = sysconfig.get_config_vars() if record is None else record
    flags = " ".join(str(known.get(variable) or "") for variable in _COMPILER_FLAGS)
    options = str(known.get("CONFIG_ARGS") or "")
    if _OPTION in options or any(flag in flags for flag in _PROFILE_FLAGS):
        return True
    return False if options and known.get("PGO_PROF_USE_FLAG") else None


def machine() -> str:
    """Two lines for people: how busy the machine is, and the interpreter."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = f"load average {load:.1f} on {cores} cores: above {cores}, compare ratios only"
    return f"{busy}\n{described()}"


def described() -> str:
    """A line for people."""
    said = {True: "yes", False: "no", None: "unknown"}[is_profile_guided()]
    return f"{interpreter_name()}, built with profile-guided optimisation: {said}"
