"""Ending a program at a named crash point."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from topics.storage import crashpoints
from topics.testing._mount import PowerOff


@dataclass(slots=True)
class Stop:
    """Whether the program got as far as the crash point."""

    reached: bool = False
    passes: int = 0


@contextmanager
def stop_at(name: str, stop: Callable[[], None], *, nth: int = 1) -> Iterator[Stop]:
    """Run the block until the `nth` pass of a crash point, then run `stop` and leave the block.

    `stop` is how it ends: `disk.kill`, or `disk.crash` with a seed and a mode bound. From then on
    every crash point raises `PowerOff`, in any thread. Check `reached` afterwards: a block that
    never came by ends normally.
    """
    if name not in crashpoints.NAMES:
        raise ValueError(f"unknown crash point {name!r}")
    outcome = Stop()

    def hook(passed: str) -> None:
        if outcome.reached:
            raise PowerOff(name)
        if passed == name:
            outcome.passes += 1
            if outcome.passes == nth:
                outcome.reached = True
                stop()
                raise PowerOff(name)

    with crashpoints.installed(hook):
        try:
            yield outcome
        except PowerOff:
            if not outcome.reached:
                raise
