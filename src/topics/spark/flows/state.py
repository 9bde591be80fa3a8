"""Which flows run on this machine: one small locked file for each, under the user's state.

    $XDG_STATE_HOME/topics/flows/<name>.json     locked for as long as the flow runs
    $XDG_STATE_HOME/topics/flows/<name>.log      what Spark said, of the last run

Whether a flow runs is decided by the lock, which the kernel releases however the process ends; the
contents of the file are for people and for `stop`. The file is rewritten in place, because a lock
belongs to a file and would not follow a rename. A reader that meets half of a rewrite looks again,
as long as a process holds the lock and can finish the rewrite.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from topics.spark.errors import FlowRuns, NoSuchFlow

Status = Literal["starting", "running", "stopped", "failed", "lost"]
"""`lost`: the file says that the flow runs, but its lock is free: the process was killed."""

_POLL_S = 0.05
_LOOK_S = 0.005
_HALF_S = 20.0
"""How long a rewrite may take on a machine that is busy with something else."""
_STARTS = 20
"""How often the lock is tried before another process counts as its holder."""


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one flow. Times are seconds since 1970; `lag` counts records by topic."""

    name: str
    status: Status
    pid: int
    host: str
    file: str
    checkpoint: str
    sources: list[str]
    target: str
    server: str
    master: str
    started: float
    ended: float | None = None
    batch: int | None = None
    rows: int = 0
    rows_per_second: float | None = None
    batch_seconds: float | None = None
    lag: dict[str, int] = {}
    error: str | None = None
    log: str | None = None


def state_home(env: Mapping[str, str] = os.environ) -> Path:
    """Where this user's flows and imports are remembered."""
    home = env.get("XDG_STATE_HOME")
    base = Path(home) if home else Path(env.get("HOME") or Path.home(), ".local", "state")
    return base / "topics"


def folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where the states of flows are kept."""
    return state_home(env) / "flows"


class Holder:
    """The running flow's side of its file."""

    def __init__(self, handle: int, path: Path) -> None:
        self._handle = handle
        self.log = path.with_suffix(".log")
        self.state: State | None = None

    def write(self, state: State) -> None:
        """Replace what the file says, with one write: of a longer text before it spaces are left
        until the file is cut."""
        self.state = state
        text = msgspec.json.format(msgspec.json.encode(state)) + b"\n"
        os.pwrite(self._handle, text.ljust(os.fstat(self._handle).st_size), 0)
        os.ftruncate(self._handle, len(text))

    def update(self, **changes: Any) -> None:  # noqa: ANN401 - fields of State, of any type
        """Replace some of what the file says."""
        assert self.state is not None
        self.write(msgspec.structs.replace(self.state, **changes))


@contextmanager
def hold(name: str, env: Mapping[str, str] = os.environ) -> Iterator[Holder]:
    """Be the one run of the flow `name` for as long as the context lasts."""
    path = _path(name, env)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _take(handle):
            raise FlowRuns(_who_runs(name, path))
        yield Holder(handle, path)
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    """Lock the file. A process that checks whether the flow runs holds the lock for a moment."""
    for _ in range(_STARTS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_S)
        else:
            return True
    return False


def _who_runs(name: str, path: Path) -> str:
    state = _read(path)
    who = f", process {state.pid} on {state.host}" if state else ""
    return f"flow {name} runs already{who}; end it with `topics flow stop {name}`"


def find(name: str, env: Mapping[str, str] = os.environ) -> State:
    """The state of one flow, running or not."""
    state = _judged(_path(name, env))
    if state is None:
        raise NoSuchFlow(name, known=[known.name for known in find_all(env)])
    return state


def find_all(env: Mapping[str, str] = os.environ) -> list[State]:
    """The states of all flows that ever ran here, by name."""
    states = (_judged(path) for path in sorted(folder(env).glob("*.json")))
    return [state for state in states if state is not None]


def is_running(state: State) -> bool:
    """Whether a process holds the flow."""
    return state.status in ("starting", "running")


def stop(name: str, *, timeout: float, env: Mapping[str, str] = os.environ) -> State:
    """Ask a flow to finish its batch and end; returns what became of it.

    The state still says that it runs when it did not end within `timeout` seconds. A flow that
    does not run is left as it is.
    """
    state = find(name, env)
    if not is_running(state):
        return state
    if state.host != socket.gethostname():
        raise FlowRuns(f"flow {name} runs on {state.host}; stop it there")
    os.kill(state.pid, signal.SIGTERM)  # its lock is held, so the process is not another one
    deadline = time.monotonic() + timeout
    while is_running(state) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        state = find(name, env)
    return state


def _path(name: str, env: Mapping[str, str]) -> Path:
    return folder(env) / f"{name}.json"


def _judged(path: Path) -> State | None:
    """What the file says, corrected by what its lock says; None when there is no such flow."""
    state = _read(path)
    if state is None or not is_running(state) or _is_locked(path):
        return state
    # Between the two looks it may have ended by itself.
    state = _read(path)
    if state is None or not is_running(state):
        return state
    return msgspec.structs.replace(state, status="lost")


def _read(path: Path) -> State | None:
    """What the file says; None if there is no file, or half a file that no process will finish."""
    deadline = time.monotonic() + _HALF_S
    is_final = False
    while True:
        try:
            return msgspec.json.decode(path.read_bytes(), type=State)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except msgspec.DecodeError:
            if is_final or time.monotonic() > deadline:
                return None
        is_final = not _is_locked(path)  # if so, one more look: it may be finished by now
        time.sleep(_LOOK_S)


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
