"""The stages that wait for their commit, and what they take, in all and per key.

Two sizes count against `max_stage_bytes`: the data and meta of all stages, which is what callers
are told, and the files, which also hold topics, nodes, tags and a header, and take whole blocks of
the disk. The files may take `SPARE_BYTES` more than the limit, so that a small limit has room for
some small stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final, NamedTuple

from topics.engine.settings import EngineSettings
from topics.engine.stages.apps import Caller, require, share_of
from topics.errors import Throttled
from topics.storage.stages import StageInfo, StageKey

SPARE_BYTES: Final = 1 << 20


class Taken(NamedTuple):
    """What some stages take."""

    stages: int = 0
    nbytes: int = 0  # data and meta
    disk_bytes: int = 0

    def plus(self, other: Taken) -> Taken:
        return Taken(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))

    def less(self, other: Taken) -> Taken:
        return Taken(*(ours - theirs for ours, theirs in zip(self, other, strict=True)))


NOTHING: Final = Taken()


def taken_by(info: StageInfo) -> Taken:
    return Taken(1, info.nbytes, info.disk_bytes)


class Room:
    """Every stage that waits, the oldest first, and room held for those being written."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._stages: dict[StageKey, StageInfo] = {}
        self._by_epoch: dict[tuple[str, int], dict[StageKey, None]] = {}
        self.taken = NOTHING
        self._taken_of: dict[bytes, Taken] = {}  # by owner

    # Which

    def get(self, key: StageKey) -> StageInfo | None:
        return self._stages.get(key)

    def of_epoch(self, app: str, epoch: int) -> list[StageKey]:
        return list(self._by_epoch.get((app, epoch), ()))

    def older_than(self, created_ms: int) -> list[StageKey]:
        """Those that were staged before this time."""
        return [info.key for info in takewhile(lambda i: i.created_ms < created_ms, self)]

    def __iter__(self) -> Iterator[StageInfo]:
        return iter(self._stages.values())

    def keep(self, info: StageInfo) -> None:
        """A stage that is not there yet, younger than all others."""
        self._stages[info.key] = info
        self._by_epoch.setdefault(info.key[:2], {})[info.key] = None
        self.hold(info.owner, taken_by(info))

    def remove(self, key: StageKey) -> bool:
        """Whether the stage was there."""
        info = self._stages.pop(key, None)
        if info is None:
            return False
        of_epoch = self._by_epoch[key[:2]]
        del of_epoch[key]
        if not of_epoch:
            del self._by_epoch[key[:2]]
        self.give_back(info.owner, taken_by(info))
        return True

    # How much

    def require(self, caller: Caller, wanted: Taken, replaced: StageInfo | None) -> None:
        """Refuse a stage of this size in place of another one."""
        freed = NOTHING if replaced is None else taken_by(replaced)
        stages, nbytes, disk_bytes = self.taken.plus(wanted).less(freed)
        bytes_limit, stages_limit = self._settings.max_stage_bytes, self._settings.max_stages
        _require_bytes("max_stage_bytes", bytes_limit, nbytes, disk_bytes)
        require("max_stages", stages_limit, stages)
        if not caller.has_share:
            return
        if replaced is not None and replaced.owner != caller.key:
            freed = NOTHING
        own = self._taken_of.get(caller.key, NOTHING)
        stages, nbytes, disk_bytes = own.plus(wanted).less(freed)
        _require_bytes("max_stage_bytes_per_key", share_of(bytes_limit), nbytes, disk_bytes)
        require("max_stages_per_key", share_of(stages_limit), stages)

    def hold(self, owner: bytes, size: Taken) -> None:
        self.taken = self.taken.plus(size)
        self._taken_of[owner] = self._taken_of.get(owner, NOTHING).plus(size)

    def give_back(self, owner: bytes, size: Taken) -> None:
        self.taken = self.taken.less(size)
        left = self._taken_of.pop(owner).less(size)
        if left != NOTHING:
            self._taken_of[owner] = left


def _require_bytes(name: str, limit: int, nbytes: int, disk_bytes: int) -> None:
    if limit and (nbytes > limit or disk_bytes > limit + SPARE_BYTES):
        raise Throttled(name, maximum=limit)
