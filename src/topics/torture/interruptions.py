"""Exceptions that come from outside, on order: at a chosen instruction, or at a chosen moment.

A signal handler in Python does not run when the signal arrives but when the interpreter looks for
it: where a function or a generator begins or goes on, at a jump back, and behind a call. `Steps`
counts these places and raises at one of them, so that a seed finds it again. `Moments` sends a
real signal after a real time. Both raise inside calls of the log only, as far as that is theirs to
choose: the program that runs them must expect an exception in its own code as well.
"""

from __future__ import annotations

import dis
import signal
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol, Self

OWN = "topics.torture"


class Alarm(Exception):
    """What a program's own handler may raise."""


KINDS: tuple[type[BaseException], ...] = (KeyboardInterrupt, Alarm, TimeoutError)
"""What handlers raise: that of Ctrl-C, those of programs, those of alarms."""


class Interruption(Protocol):
    """Raises once while it is entered, unless that ends too soon; then `came` stays False."""

    came: bool
    where: str

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Steps:
    """Raises at the place with this number, counted from 1; `passed` tells how many there were."""

    def __init__(self, kind: type[BaseException], place: int) -> None:
        self.came = False
        self.where = f"place {place}"
        self.passed = 0
        self._kind = kind
        self._place = place
        self._before: Any = None
        self._after: dict[FrameType, bool] = {}  # frames whose last instruction looked for signals

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._begin)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)
        self._after.clear()

    def _begin(self, frame: FrameType, event: str, argument: object) -> Any:  # noqa: ANN401
        del event, argument
        if frame.f_globals.get("__name__", "").startswith(OWN):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:  # noqa: ANN401
        del argument
        if event == "opcode":
            looks = _looks(frame.f_code)
            here = looks[frame.f_lasti]
            if here == _BEGINS or self._after.get(frame, False):
                self._pass(frame)
            self._after[frame] = here == _BEHIND
        else:  # it returns, or what it called raised: then the interpreter checks no signals
            self._after.pop(frame, None)
        return self._step

    def _pass(self, frame: FrameType) -> None:
        self.passed += 1
        if self.passed == self._place:
            self.came = True
            code = frame.f_code
            self.where += f", {code.co_qualname} line {frame.f_lineno}"
            raise self._kind


_BEGINS, _BEHIND = 1, 2
_INSIDE_YIELD_FROM = 2
_LOOKING = {
    name
    for name in dis.opmap
    if name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
    or ("JUMP_BACKWARD" in name and not name.endswith("NO_INTERRUPT"))
}
_looks_of: dict[CodeType, bytes] = {}


def _looks(code: CodeType) -> bytes:
    """For each byte of a code whether the interpreter looks for signals there."""
    found = _looks_of.get(code)
    if found is None:
        looks = bytearray(len(code.co_code))
        for step in dis.get_instructions(code):
            if step.opname == "RESUME" and (step.arg or 0) < _INSIDE_YIELD_FROM:
                looks[step.offset] = _BEGINS
            elif step.opname in _LOOKING:
                looks[step.offset] = _BEHIND
        found = _looks_of[code] = bytes(looks)
    return found


class Moments:
    """Raises in the handler of a signal that comes after so many seconds."""

    def __init__(self, kind: type[BaseException], delay_s: float) -> None:
        self.came = False
        self.where = f"after {delay_s * 1e6:.0f} us"
        self._kind = kind
        self._delay_s = delay_s
        self._armed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGALRM, self._handle)
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self._delay_s)
        return self

    def __exit__(self, *error: object) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number
        if self._armed and frame is not None and not _is_own(frame):
            self._armed = False
            self.came = True
            self.where += f", {frame.f_code.co_qualname} line {frame.f_lineno}"
            raise self._kind


def _is_own(frame: FrameType | None) -> bool:
    """Whether a frame belongs to no call of the log."""
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if name.startswith("topics."):
            return name.startswith(OWN)
        frame = frame.f_back
    return True
