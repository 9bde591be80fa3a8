"""The stages that wait for their commit, and what they take: in all, per app and per key.

One app may take `max_stage_bytes`, and all together `APPS` times as much: what one sink has left
behind does not keep others from writing. One key may take a quarter of what all may take.

Two sizes count against the limit: the data and meta of all stages, which is what callers
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
from topics.values import WaitingStages

SPARE_BYTES: Final = 1 << 20
APPS: Final = 4
"""So many apps may take as much as one app may take."""


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
        self._taken_of: dict[bytes | str, Taken] = {}  # by owner, and by app

    # Which

    def get(self, key: StageKey) -> StageInfo | None:
        return self._stages.get(key)

    def of_epoch(self, app: str, epoch: int) -> list[StageKey]:
        return list(self._by_epoch.get((app, epoch), ()))

    def of_app(self, app: str) -> list[StageKey]:
        epochs = [epoch for epoch in self._by_epoch if epoch[0] == app]
        return [key for epoch in epochs for key in self._by_epoch[epoch]]

    def epochs(self) -> list[tuple[str, int]]:
        """The apps and epochs that have stages, those first that had the first stage."""
        return list(self._by_epoch)

    def of(self, app: str, epoch: int) -> list[WaitingStages]:
        """The stages of an epoch as one entry; none if they have gone."""
        found = [self._stages[key] for key in self.of_epoch(app, epoch)]
        if not found:
            return []
        records = sum([info.records for info in found])
        nbytes = sum([info.nbytes for info in found])
        disk_bytes = sum([info.disk_bytes for info in found])
        times = found[0].created_ms, found[-1].created_ms
        return [WaitingStages(app, epoch, len(found), records, nbytes, disk_bytes, *times)]

    def older_than(self, created_ms: int) -> list[StageKey]:
        """Those that were staged before this time."""
        return [info.key for info in takewhile(lambda i: i.created_ms < created_ms, self)]

    def __iter__(self) -> Iterator[StageInfo]:
        return iter(self._stages.values())

    def keep(self, info: StageInfo) -> None:
        """A stage that is not there yet, younger than all others."""
        self._stages[info.key] = info
        self._by_epoch.setdefault(info.key[:2], {})[info.key] = None
        self.hold(info.key.app, info.owner, taken_by(info))

    def remove(self, key: StageKey) -> bool:
        """Whether the stage was there."""
        info = self._stages.pop(key, None)
        if info is None:
            return False
        of_epoch = self._by_epoch[key[:2]]
        del of_epoch[key]
        if not of_epoch:
            del self._by_epoch[key[:2]]
        self.give_back(info.key.app, info.owner, taken_by(info))
        return True

    # How much

    def require(self, app: str, caller: Caller, wanted: Taken, replaced: StageInfo | None) -> None:
        """Refuse a stage of this size in place of another one."""
        freed = NOTHING if replaced is None else taken_by(replaced)
        app_limit, stages_limit = self._settings.max_stage_bytes, self._settings.max_stages
        _, nbytes, disk_bytes = self._taken_of.get(app, NOTHING).plus(wanted).less(freed)
        _require_bytes("max_stage_bytes", app_limit, nbytes, disk_bytes)
        stages, nbytes, disk_bytes = self.taken.plus(wanted).less(freed)
        bytes_limit = APPS * app_limit
        _require_bytes("max_stage_bytes_of_all", bytes_limit, nbytes, disk_bytes)
        require("max_stages", stages_limit, stages)
        if not caller.has_share:
            return
        if replaced is not None and replaced.owner != caller.key:
            freed = NOTHING
        own = self._taken_of.get(caller.key, NOTHING)
        stages, nbytes, disk_bytes = own.plus(wanted).less(freed)
        _require_bytes("max_stage_bytes_per_key", share_of(bytes_limit), nbytes, disk_bytes)
        require("max_stages_per_key", share_of(stages_limit), stages)

    def hold(self, app: str, owner: bytes, size: Taken) -> None:
        self.taken = self.taken.plus(size)
        for taker in (app, owner):
            self._taken_of[taker] = self._taken_of.get(taker, NOTHING).plus(size)

    def give_back(self, app: str, owner: bytes, size: Taken) -> None:
        self.taken = self.taken.less(size)
        for taker in (app, owner):
            left = self._taken_of.pop(taker).less(size)
            if left != NOTHING:
                self._taken_of[taker] = left


def _require_bytes(name: str, limit: int, nbytes: int, disk_bytes: int) -> None:
    if limit and (nbytes > limit or disk_bytes > limit + SPARE_BYTES):
        raise Throttled(name, maximum=limit)
