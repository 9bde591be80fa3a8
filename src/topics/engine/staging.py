"""Staged writes: records kept aside part by part, then committed together, exactly once.

A sink stages what its tasks produce under (app, epoch, part, attempt) and commits the epoch once,
naming the attempts that count. An epoch that is committed stays committed: staging or committing
it again only repeats the answer, and an earlier epoch is refused, so a sink that does not know
whether it succeeded simply tries again.

Calls that touch the files of one epoch take turns, as do commits of one app. The stages of a
commit are thereby frozen while it runs, and nothing is removed under a writer's hands. They count
against the byte limit until they are committed, replaced, discarded or too old. The files of
committed stages stay until no snapshot needs them any more: replay completes a commit from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import msgspec

from topics.core.batch import RecordBatch
from topics.core.catalog import App
from topics.core.config import U64, check_topic_name
from topics.engine.arenas import Arenas
from topics.engine.drafts import check_records
from topics.engine.effects import Gate, Io, Op
from topics.engine.kernel import Kernel
from topics.engine.landing import Commit, Lander, Landing, Stranded
from topics.engine.lifecycle import Lifecycle
from topics.engine.shelf import Shelf
from topics.errors import Internal, InvalidRequest, NotFound, StaleEpoch, Throttled
from topics.storage.stages import Stage, StagedRow, StageInfo, StageKey, by_topic
from topics.values import CommittedRange, StageCommit, Staged

APP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")
MAX_PARTS = 100_000
_decode_result = msgspec.json.Decoder(dict[str, CommittedRange]).decode


class StageRows(NamedTuple):
    """Records on their way into a stage: columns, and the topic of each."""

    topics: Sequence[str]
    batch: RecordBatch

    def rows(self) -> Iterator[StagedRow]:
        batch = self.batch
        count = len(batch)
        nothing: list[str | None] = [None] * count
        return map(
            StagedRow,
            self.topics,
            batch.nodes or nothing,
            batch.tags or nothing,
            batch.datas,
            batch.metas or [b""] * count,
        )


class _Committed(NamedTuple):
    """An epoch whose files replay may still need."""

    app: str
    epoch: int
    generation: int
    lfn: int


class _Turns:
    """One operation at a time on the files of an epoch, and one commit at a time of an app.

    The turn of an app has no epoch and is taken before that of an epoch, never after.
    """

    def __init__(self) -> None:
        self._taken: dict[tuple[str, int | None], Gate] = {}

    def is_taken(self, app: str, epoch: int | None) -> bool:
        return (app, epoch) in self._taken

    def take(self, app: str, epoch: int | None) -> Op[None]:
        while (gate := self._taken.get((app, epoch))) is not None:
            yield gate
        self._taken[(app, epoch)] = Gate()

    def give_back(self, app: str, epoch: int | None) -> None:
        self._taken.pop((app, epoch)).open()

    def take_both(self, app: str, epoch: int) -> Op[None]:
        yield from self.take(app, None)
        yield from self.take(app, epoch)

    def give_back_both(self, app: str, epoch: int) -> None:
        self.give_back(app, epoch)
        self.give_back(app, None)


class Staging:
    def __init__(self, kernel: Kernel, lifecycle: Lifecycle, arenas: Arenas, shelf: Shelf) -> None:
        self._kernel = kernel
        self._shelf = shelf
        self._lander = Lander(kernel, lifecycle, arenas)
        self._turns = _Turns()
        self._stages: dict[StageKey, StageInfo] = {}  # oldest first; only those not committed
        self._committed: list[_Committed] = []
        self._stranded: dict[str, Stranded] = {}  # by app
        self.bytes = 0  # of all stages that are not committed, those being written included
        kernel.sections.bring_home = self.bring_home
        kernel.chores.append(self.upkeep)
        self._sort_found(shelf.found)

    def _sort_found(self, found: Iterable[StageInfo]) -> None:
        """At a start, epochs up to the last committed one may be needed by a snapshot."""
        kept: set[tuple[str, int]] = set()
        for info in sorted(found, key=lambda info: info.created_ms):
            app = self._kernel.catalog.apps.get(info.key.app)
            if app is not None and info.key.epoch <= app.epoch:
                kept.add((info.key.app, info.key.epoch))
            else:
                self._remember(info)
        generation = self._kernel.generation
        self._committed = [_Committed(app, epoch, generation, 0) for app, epoch in sorted(kept)]

    # Staging

    def stage(self, app: str, epoch: int, part: int, attempt: int, rows: StageRows) -> Op[Staged]:
        """Keep records aside, durably, in place of any staged under the same names."""
        key = _key(app, epoch, part, attempt)
        self._check(rows)
        staged = Staged(app, epoch, part, attempt, len(rows.batch), rows.batch.nbytes)
        yield from self._prepare(app)
        yield from self._turns.take(app, epoch)
        try:
            if self._committed_app(app, epoch) is not None:
                return msgspec.structs.replace(staged, deduped=True)
            yield from self._write(key, rows)
        finally:
            self._turns.give_back(app, epoch)
        return staged

    def _check(self, rows: StageRows) -> None:
        for topic in set(rows.topics):
            check_topic_name(topic)
        if len(rows.batch):
            check_records(rows.batch, self._kernel.settings)

    def _write(self, key: StageKey, rows: StageRows) -> Op[None]:
        replaced = self._stages.get(key)
        freed = replaced.nbytes if replaced is not None else 0
        size, limit = rows.batch.nbytes, self._kernel.settings.max_stage_bytes
        if limit and self.bytes - freed + size > limit:
            raise Throttled("max_stage_bytes", maximum=limit)
        self.bytes += size  # held before the write: others may be writing too
        now_ms = self._kernel.clock.now_ms()
        try:
            write = partial(self._shelf.write, key, rows.rows(), now_ms=now_ms)
            info: StageInfo = yield Io(write)
        except OSError as error:
            # Which of the two is on disk, and whether its name is safe, nobody knows.
            self._forget(key)
            yield from self._remove(key)
            raise Internal(f"the stage could not be written: {error}; stage it again") from error
        finally:
            self.bytes -= size
        self._forget(key)
        self._remember(info)

    def _remember(self, info: StageInfo) -> None:
        self._stages[info.key] = info
        self.bytes += info.nbytes

    def _forget(self, key: StageKey) -> None:
        info = self._stages.pop(key, None)
        if info is not None:
            self.bytes -= info.nbytes

    def _remove(self, key: StageKey) -> Op[bool]:
        """Remove a stage's file; False when that has to be tried again."""
        try:
            yield Io(partial(self._shelf.remove, key))
        except OSError:
            return False
        return True

    # Committing

    def commit(
        self,
        app: str,
        epoch: int,
        parts: Sequence[tuple[int, int]],
        *,
        allow: Callable[[str], None] = lambda topic: None,
    ) -> Op[StageCommit]:
        """Append every named stage to its topics, all visible or none, across crashes.

        `allow` is asked about every topic before anything is appended or told; it may raise.
        """
        keys = _keys(app, epoch, parts)
        yield from self._prepare(app)
        yield from self._turns.take_both(app, epoch)
        try:
            return (yield from self._commit(app, epoch, keys, allow))
        finally:
            self._turns.give_back_both(app, epoch)

    def _commit(
        self, app: str, epoch: int, keys: list[StageKey], allow: Callable[[str], None]
    ) -> Op[StageCommit]:
        known = self._committed_app(app, epoch)
        if known is not None:
            given = _decode_result(known.result)
            for topic in given:
                allow(topic)
            return StageCommit(app, epoch, True, given)
        stages = yield from self._read(keys)
        parts = tuple((key.part, key.attempt) for key in keys)
        batches = by_topic(stages)
        for topic in batches:
            allow(topic)
        stages.clear()
        try:
            landing = yield from self._lander.land(Commit(app, epoch, parts), batches)
        except Stranded as stranded:
            self._stranded[app] = stranded
            raise
        yield from self._settle(landing)
        return StageCommit(app, epoch, False, _decode_result(landing.fact.result))

    def _read(self, keys: list[StageKey]) -> Op[list[Stage]]:
        now_ms = self._kernel.clock.now_ms()
        for key in keys:
            info = self._stages.get(key)
            if info is None or self._is_old(info, now_ms):
                raise NotFound(_name(key))
        stages = []
        for key in keys:
            try:
                stage: Stage | None = yield Io(partial(self._shelf.read, key))
            except OSError as error:
                raise Internal(f"{_name(key)} cannot be read: {error}") from error
            if stage is None:  # gone or damaged: to be staged again
                self._forget(key)
                raise NotFound(_name(key))
            stages.append(stage)
        return stages

    def _settle(self, landing: Landing) -> Op[None]:
        """A commit is complete. Its stages are consumed, but their files wait for the snapshots;
        other stages of the epoch go at once, or with age if they cannot be removed now."""
        fact = landing.fact
        app, epoch, generation = fact.app, fact.epoch, self._kernel.generation
        for part, attempt in fact.parts:
            self._forget(StageKey(app, epoch, part, attempt))
        if self._kernel.in_memory:
            self._shelf.remove_epoch(app, epoch)
        else:
            self._committed.append(_Committed(app, epoch, generation, landing.lfn))
        for key in [key for key in self._stages if (key.app, key.epoch) == (app, epoch)]:
            if (yield from self._remove(key)):
                self._forget(key)

    # What every call asks first

    def _prepare(self, app: str) -> Op[None]:
        yield from self.sweep()
        self._forget_app(app)
        yield from self.bring_home()

    def _committed_app(self, app: str, epoch: int) -> App | None:
        """The app, if this is its last committed epoch; None when the epoch is still to come."""
        if app in self._stranded:
            raise Internal(str(self._stranded[app]))
        known = self._kernel.catalog.apps.get(app)
        if known is None:
            return None
        if epoch < known.epoch:
            raise StaleEpoch(app, epoch=epoch, last_epoch=known.epoch)
        known.last_use_ms = max(known.last_use_ms, self._kernel.clock.now_ms())
        return known if epoch == known.epoch else None

    # Time

    def upkeep(self) -> Op[None]:
        """What falls due by the clock."""
        yield from self.bring_home()
        yield from self.sweep()
        for app in list(self._kernel.catalog.apps):
            self._forget_app(app)

    def bring_home(self) -> Op[None]:
        """Complete commits that a full disk held up, where there is room again."""
        for app, stranded in list(self._stranded.items()):
            landing = stranded.landing
            if not landing.is_certain or self._turns.is_taken(app, None):
                continue
            epoch = landing.fact.epoch
            yield from self._turns.take_both(app, epoch)
            try:
                yield from self._lander.resume(landing)
                del self._stranded[app]
                yield from self._settle(landing)
            except Stranded as again:
                self._stranded[app] = again
            finally:
                self._turns.give_back_both(app, epoch)

    def sweep(self) -> Op[None]:
        """Discard the stages that are too old."""
        now_ms = self._kernel.clock.now_ms()
        for key, info in list(self._stages.items()):
            if not self._is_old(info, now_ms):
                return  # those behind it are younger
            if self._turns.is_taken(key.app, key.epoch) or key.app in self._stranded:
                continue
            yield from self._turns.take(key.app, key.epoch)
            try:
                if (yield from self._remove(key)):
                    self._forget(key)
            finally:
                self._turns.give_back(key.app, key.epoch)

    def _is_old(self, info: StageInfo, now_ms: int) -> bool:
        return now_ms - info.created_ms > self._kernel.settings.stage_ttl_ms

    def _forget_app(self, name: str) -> None:
        """Drop the result of an app that was not used for long.

        Not while files of its epochs are kept: only the app tells a restart that they are
        committed, and a new stage must not replace them.
        """
        app = self._kernel.catalog.apps.get(name)
        if app is None or any(kept.app == name for kept in self._committed):
            return
        if self._kernel.clock.now_ms() - app.last_use_ms > self._kernel.settings.stage_app_ttl_ms:
            del self._kernel.catalog.apps[name]

    def release(self, generation: int, agnostic_lfn: int) -> Op[None]:
        """Both kept snapshots contain the log of shard 0 up to here: let committed files go."""
        for kept in list(self._committed):
            if (kept.generation, kept.lfn) > (generation, agnostic_lfn):
                continue
            if self._turns.is_taken(kept.app, kept.epoch):
                continue
            yield from self._turns.take(kept.app, kept.epoch)
            try:
                yield Io(partial(self._shelf.remove_epoch, kept.app, kept.epoch))
            except OSError:
                continue  # the next checkpoint tries again
            else:
                self._committed.remove(kept)
            finally:
                self._turns.give_back(kept.app, kept.epoch)


# Names and numbers


def _key(app: str, epoch: int, part: int, attempt: int) -> StageKey:
    if not APP_NAME.match(app):
        raise InvalidRequest(
            f"{app!r} is not a valid app name: use 1 to 128 of A-Z a-z 0-9 . _ : - "
            "and start with a letter or digit"
        )
    for what, number in (("epoch", epoch), ("part", part), ("attempt", attempt)):
        if not _is_u64(number):
            raise InvalidRequest(f"{what} must be an integer from 0 to {U64}, got {number!r}")
    return StageKey(app, epoch, part, attempt)


def _keys(app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> list[StageKey]:
    """The stages of a commit in order of their parts, each part once."""
    _key(app, epoch, 0, 0)
    if len(parts) > MAX_PARTS:
        raise InvalidRequest(f"a commit names at most {MAX_PARTS} parts, got {len(parts)}")
    keys = sorted(_key(app, epoch, part, attempt) for part, attempt in parts)
    for one, other in pairwise(keys):
        if one.part == other.part:
            raise InvalidRequest(f"part {one.part} is named twice; one attempt of it counts")
    return keys


def _is_u64(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= U64


def _name(key: StageKey) -> str:
    return f"stage {key.part}/{key.attempt} of epoch {key.epoch} of app {key.app!r}"
