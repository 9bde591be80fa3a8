"""A file system that fails on request, counts its calls and writes down each one."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Literal, NamedTuple, NoReturn, TypeAlias

from topics.storage.fs import Buffer, File, Fs, Lock
from topics.testing._mount import PowerOff
from topics.testing._names import Name, Names

Op: TypeAlias = Literal[
    "open",
    "pread",
    "pwrite",
    "truncate",
    "fallocate",
    "fdatasync",
    "fsync",
    "rename",
    "unlink",
    "rmdir",
    "mkdirs",
    "listdir",
    "sync_dir",
    "lock",
]
Fault: TypeAlias = int | Literal["short", "zero", "stall"]
"""An errno to raise, or: half the bytes, no bytes, wait until released."""

STALL_LIMIT_S = 60.0
"""A stall that is not released in this time fails its test instead of hanging the run."""


class FsCall(NamedTuple):
    """One call through the seam; for a rename the path is the source."""

    op: Op
    path: str


@dataclass(eq=False, slots=True)
class Rule:
    """A fault waiting for its call, and afterwards the record of what happened."""

    op: Op | Literal["*"]
    fault: Fault
    nth: int
    always: bool
    path: str
    keep: int | None
    seen: int = 0
    hits: int = 0
    """How many calls this rule has spoilt."""
    reached: threading.Event = field(default_factory=threading.Event)
    """Set when a call meets the fault; lets a test wait for a stall to begin."""
    _released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let stalled calls go on, now and in future."""
        self._released.set()

    def matches(self, call: FsCall) -> bool:
        return self.op in ("*", call.op) and fnmatch(call.path, self.path)

    def claims(self, call: FsCall) -> bool:
        """Count a call; whether this rule spoils it."""
        if not self.matches(call):
            return False
        self.seen += 1
        return self.seen == self.nth or (self.always and self.seen > self.nth)

    def wait(self) -> None:
        if not self._released.wait(STALL_LIMIT_S):
            raise AssertionError(f"a stalled {self.op} was never released")


class FaultFs:
    """Wraps any `Fs`; calls fail as the rules say, the others pass through untouched.

    Calls are numbered from 1 in the order they arrive; `trace` keeps them, so a sweep can run a
    scenario once, read `len(trace)` and then fail, or cut the power before, each call in turn.
    Any thread may call.
    """

    def __init__(self, inner: Fs) -> None:
        self.inner = inner
        self.trace: list[FsCall] = []
        self._rules: list[Rule] = []
        self._names = Names()
        self._stop_at = 0
        self._stop: Callable[[], None] | None = None
        self._stopped = False
        self._mutex = threading.Lock()

    # What a test says.

    def fail(
        self,
        op: Op | Literal["*"],
        fault: Fault,
        *,
        nth: int = 1,
        always: bool = False,
        path: str = "*",
        keep: int | None = None,
    ) -> Rule:
        """Spoil the `nth` matching call from now, and with `always` those after it too.

        `path` is a glob over the name the file has at that moment. `short` and `zero` apply to
        `pread` and `pwrite` only; `keep` sets how many bytes a short call moves (half by default).
        A failed call never reaches the disk.
        """
        if fault in ("short", "zero") and op not in ("pread", "pwrite"):
            raise ValueError(f"{fault} needs pread or pwrite, not {op}")
        rule = Rule(op, fault, nth, always, path, keep)
        with self._mutex:
            self._rules.append(rule)
        return rule

    def stop_before(self, call: int, stop: Callable[[], None]) -> None:
        """Run `stop`, say `disk.crash`, in place of call number `call`, and end the program.

        That call and every later one raise `PowerOff`: give the next run its own `FaultFs`.
        """
        self._stop_at, self._stop = call, stop

    def clear(self) -> None:
        """Drop every rule, releasing what they stall."""
        with self._mutex:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release()

    def count(self, op: Op, path: str = "*") -> int:
        """How many calls of this kind were made so far, failed ones included."""
        with self._mutex:
            return sum(call.op == op and fnmatch(call.path, path) for call in self.trace)

    # The seam.

    def open(
        self,
        path: str,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        truncate: bool = False,
    ) -> File:
        self.check("open", path)
        file = self.inner.open(
            path, write=write, create=create, exclusive=exclusive, truncate=truncate
        )
        return FaultFile(self, file, self._names.of(path))

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        self.inner.rename(source, target)
        self._names.renamed(source, target)

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        self.inner.unlink(path)
        self._names.removed(path)

    def rmdir(self, path: str) -> None:
        self.check("rmdir", path)
        self.inner.rmdir(path)

    def mkdirs(self, path: str) -> list[str]:
        self.check("mkdirs", path)
        return self.inner.mkdirs(path)

    def listdir(self, path: str) -> list[str]:
        self.check("listdir", path)
        return self.inner.listdir(path)

    def exists(self, path: str) -> bool:
        self._check_running()
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        self._check_running()
        return self.inner.size(path)

    def room(self, path: str) -> tuple[int, int]:
        self._check_running()
        return self.inner.room(path)

    def sync_dir(self, path: str) -> None:
        self.check("sync_dir", path)
        self.inner.sync_dir(path)

    def lock(self, path: str) -> Lock:
        self.check("lock", path)
        return self.inner.lock(path)

    def boot_id(self) -> bytes:
        self._check_running()
        return self.inner.boot_id()

    # How a call meets its rule.

    def check(self, op: Op, path: str) -> Rule | None:
        """Record a call; raise or stall if a rule says so; return the rule that shortens it."""
        rule = self._record(FsCall(op, path))
        if rule is None:
            return None
        rule.reached.set()
        if rule.fault == "stall":
            rule.wait()
            return None
        if isinstance(rule.fault, int):
            raise OSError(rule.fault, os.strerror(rule.fault), path)
        return rule

    def _record(self, call: FsCall) -> Rule | None:
        with self._mutex:
            self._check_running()
            self.trace.append(call)
            if self._stop is not None and len(self.trace) == self._stop_at:
                self._end_program(self._stop)
            claimed = [rule for rule in self._rules if rule.claims(call)]
            if not claimed:
                return None
            claimed[0].hits += 1
            return claimed[0]

    def _check_running(self) -> None:
        if self._stopped:
            raise PowerOff

    def _end_program(self, stop: Callable[[], None]) -> NoReturn:
        self._stopped = True
        stop()
        raise PowerOff(f"stopped before call {self._stop_at}")


class FaultFile:
    """A file whose calls ask its `FaultFs` first."""

    def __init__(self, owner: FaultFs, inner: File, name: Name) -> None:
        self._owner = owner
        self._inner = inner
        self._name = name

    def pread(self, size: int, offset: int) -> bytes:
        rule = self._owner.check("pread", self._name.path)
        return self._inner.pread(size if rule is None else _shortened(size, rule), offset)

    def pwrite(self, data: Buffer, offset: int) -> int:
        rule = self._owner.check("pwrite", self._name.path)
        if rule is None:
            return self._inner.pwrite(data, offset)
        size = _shortened(len(data), rule)
        return self._inner.pwrite(data[:size], offset) if size else 0

    def truncate(self, size: int) -> None:
        self._owner.check("truncate", self._name.path)
        self._inner.truncate(size)

    def fallocate(self, size: int) -> None:
        self._owner.check("fallocate", self._name.path)
        self._inner.fallocate(size)

    def fdatasync(self) -> None:
        self._owner.check("fdatasync", self._name.path)
        self._inner.fdatasync()

    def fsync(self) -> None:
        self._owner.check("fsync", self._name.path)
        self._inner.fsync()

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()


def _shortened(size: int, rule: Rule) -> int:
    if rule.fault == "zero":
        return 0
    return min(size, (size + 1) // 2 if rule.keep is None else rule.keep)
