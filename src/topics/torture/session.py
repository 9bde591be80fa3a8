"""A run from outside: the place, the weather and the nursery around the cycles, and a tidy end."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from topics.torture.run import Failure, Plan, Totals, torture
from topics.torture.server import Nursery
from topics.torture.weather import Ballast, FakeClock, small_disk


def hold(
    *,
    cycles: int,
    seed: int,
    directory: Path | None = None,
    disk_full: bool = False,
    clock_jumps: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Totals:
    """Torture servers; raises `Failure` with the directory of the failed life kept.

    Everything happens in a new folder inside `directory`, which is where the disk to be tested is.
    """
    base = Path(tempfile.mkdtemp(prefix="topics-torture-", dir=directory))
    with ExitStack() as stack:
        keep = stack.enter_context(_Tidying(base))
        where, ballast, clock = base, None, None
        if disk_full:
            where = stack.enter_context(small_disk(base / "disk"))
            ballast = Ballast(where)
        if clock_jumps:
            clock = FakeClock(base)
        nursery = stack.enter_context(Nursery({} if clock is None else clock.env))
        try:
            return torture(Plan(cycles, seed, where, ballast, clock, say), nursery)
        except Failure as failure:
            keep.failed = True
            if ballast is None:
                raise
            # The small disk goes; what was on it must not.
            kept = base / failure.directory.name
            shutil.copytree(failure.directory, kept)
            raise dataclasses.replace(failure, directory=kept) from failure


class _Tidying:
    """Removes the folder of a run, unless something was found in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.failed = False

    def __enter__(self) -> _Tidying:
        return self

    def __exit__(self, *error: object) -> None:
        if not self.failed:
            shutil.rmtree(self._folder, ignore_errors=True)
