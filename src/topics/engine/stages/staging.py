"""Staged writes: records kept aside part by part, then committed together, exactly once.

A sink stages what its tasks produce under (app, epoch, part, attempt) and commits the epoch once,
naming the attempts that count. An epoch that is committed stays committed: staging or committing
it again only repeats the answer, and an earlier epoch is refused, so a sink that does not know
whether it succeeded simply tries again.

One call at a time touches the files of an epoch, and an app commits one epoch at a time. So the
stages of a commit do not change while it runs, and no file is removed while it is written. Stages
count against the byte limit until they are committed, replaced, discarded or too old. The files of
committed stages stay until no snapshot needs them any more: replay completes a commit from them.

Whose an app is, and how much one app and one key may take, is decided in `apps` and `room`; which
run of a sink an app belongs to, in `runs`. A
commit takes only stages of the key that the app belongs to, and only if they are as they were kept:
with anything else it fails and nothing is appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec

from topics.core.catalog import StagingApp
from topics.engine.effects import PAUSE, Gate, Io, Op
from topics.engine.kernel import Kernel
from topics.engine.stages.apps import ANYBODY, Apps, Caller, decode_result
from topics.engine.stages.commit import Commit, Lander, Stranded
from topics.engine.stages.keys import name_of, stage_key, stage_keys
from topics.engine.stages.landing import Landing, TopicRecords, add
from topics.engine.stages.room import Room, Taken
from topics.engine.stages.rows import STEP_ROWS, StageRows, StageSize
from topics.engine.stages.runs import SinkRuns, run_of
from topics.engine.stages.store import StageStore
from topics.engine.writes.admission import Admission
from topics.engine.writes.lifecycle import Lifecycle
from topics.errors import Forbidden, Internal, InvalidRequest, NotFound, StaleEpoch, TopicsError
from topics.storage.stages import StageInfo, StageKey, by_topic, disk_bytes
from topics.values import CommittedRange, DroppedStages, StageCommit, Staged, WaitingStages

MAX_EPOCH_STEP = 2**32
"""How far an epoch may lie beyond the last one: a wrong number must not use up all that follow."""
APPS_BETWEEN_PAUSES = 1000
ANSWER_BYTES = 64
"""About what the answer to a commit says of each topic besides its name."""
LONG_RESULT_BYTES = 64 << 10
"""An answer of this size is decoded beside the loop."""


class _Committed(NamedTuple):
    """An epoch whose files replay may still need."""

    app: str
    epoch: int
    generation: int
    lfn: int


class _Locks:
    """One operation at a time on the files of an epoch, and one commit at a time of an app.

    The lock of an app has no epoch and is taken before that of an epoch, never after.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, int | None], Gate] = {}

    def is_held(self, app: str, epoch: int | None) -> bool:
        return (app, epoch) in self._held

    def lock(self, app: str, epoch: int | None) -> Op[None]:
        while (gate := self._held.get((app, epoch))) is not None:
            yield gate  # look again: several operations may wait, and only one gets the lock
        self._held[(app, epoch)] = Gate()

    def unlock(self, app: str, epoch: int | None) -> None:
        self._held.pop((app, epoch)).open()

    def lock_both(self, app: str, epoch: int) -> Op[None]:
        yield from self.lock(app, None)
        yield from self.lock(app, epoch)

    def unlock_both(self, app: str, epoch: int) -> None:
        self.unlock(app, epoch)
        self.unlock(app, None)


class Staging:
    def __init__(
        self, kernel: Kernel, lifecycle: Lifecycle, admission: Admission, stage_store: StageStore
    ) -> None:
        self._kernel = kernel
        self._store = stage_store
        self._lander = Lander(kernel, lifecycle, admission)
        self._locks = _Locks()
        self._room = Room(kernel.settings)
        self._committed: dict[str, list[_Committed]] = {}  # by app
        self._stranded: dict[str, Stranded] = {}  # by app
        self._apps = Apps(kernel.catalog, kernel.settings)
        self._runs = SinkRuns(kernel.settings.stage_lease_ms)
        self._apps_due_ms = 0  # no app can be forgotten before
        self.check_app = self._apps.check
        kernel.gates.complete_stranded = self.complete_stranded
        self._sort_found(stage_store.found)

    def _sort_found(self, found: Iterable[StageInfo]) -> None:
        """At a start, epochs up to the last committed one may be needed by a snapshot."""
        kept: set[tuple[str, int]] = set()
        for info in sorted(found, key=lambda info: info.created_ms):
            app = self._kernel.catalog.apps.get(info.key.app)
            if app is not None and info.key.epoch <= app.epoch:
                kept.add((info.key.app, info.key.epoch))
            else:
                self._apps.found(info)
                self._room.keep(info)
        for app_name, epoch in sorted(kept):
            self._keep_files(_Committed(app_name, epoch, self._kernel.generation, 0))

    @property
    def taken(self) -> Taken:
        """What all stages take that are not committed, those being written included."""
        return self._room.taken

    def oldest_age_ms(self, now_ms: int) -> int:
        """How long the oldest stage waits for its commit, 0 without one."""
        return max((now_ms - info.created_ms for info in islice(self._room, 1)), default=0)

    # Staging

    def stage(
        self,
        app: str,
        epoch: int,
        part: int,
        attempt: int,
        rows: StageRows,
        *,
        caller: Caller = ANYBODY,
        by_run: bool = False,
    ) -> Op[Staged]:
        """Keep records aside, durably, in place of any staged under the same names.

        With `by_run` the upper 40 bits of `attempt` name the run of the sink, see `runs`.
        """
        key = stage_key(app, epoch, part, attempt)
        try:
            size = yield from self._measured(key, rows, caller)
            yield from self._prepare(app)
            yield from self._locks.lock(app, epoch)
            try:
                return (yield from self._stage(key, rows, size, caller, by_run=by_run))
            finally:
                self._locks.unlock(app, epoch)
        except TopicsError:
            yield from self._let_go(rows)
            raise

    def _measured(self, key: StageKey, rows: StageRows, caller: Caller) -> Op[StageSize]:
        self._apps.check(key.app, caller)
        measured = partial(rows.measured, self._kernel.settings, allows=caller.allows)
        if len(rows) <= STEP_ROWS:
            return measured()
        size: StageSize = yield Io(measured)
        return size

    def _let_go(self, rows: StageRows) -> Op[None]:
        if len(rows) > STEP_ROWS:
            yield Io(rows.let_go)

    def _stage(
        self, key: StageKey, rows: StageRows, size: StageSize, caller: Caller, *, by_run: bool
    ) -> Op[Staged]:
        owner = self._enter(key.app, caller)
        staged = Staged(*key, size.records, size.nbytes)
        try:
            if self._committed_app(key.app, key.epoch) is not None:
                yield from self._let_go(rows)
                return msgspec.structs.replace(staged, deduped=True)
            if by_run:
                now_ms = self._kernel.clock.now_ms()
                min_age_ms = self._runs.enter(key.app, key.attempt, now_ms)
                if min_age_ms is not None:
                    yield from self._discard_earlier_runs(key, now_ms - min_age_ms)
            taken = Taken(1, size.nbytes, disk_bytes(key, owner, size.body_bytes))
            self._room.require(key.app, caller, taken, self._room.get(key))
            self._room.hold(key.app, owner, taken)  # before the write: others may be writing too
            try:
                yield from self._write(key, rows, owner)
            finally:
                self._room.give_back(key.app, owner, taken)
        finally:
            self._apps.leave(key.app)
        return staged

    def _write(self, key: StageKey, rows: StageRows, owner: bytes) -> Op[None]:
        now_ms = self._kernel.clock.now_ms()
        write = partial(self._store.write, key, rows.drained(), now_ms=now_ms, owner=owner)
        try:
            info: StageInfo = yield Io(write)
        except OSError as error:
            # It is unknown which of the two is on disk, and whether its name is durable.
            self._forget(key)
            yield from self._remove(key)
            raise Internal(f"the stage could not be written: {error}; stage it again") from error
        self._forget(key)
        self._apps.use(key.app)
        self._room.keep(info)

    def _forget(self, key: StageKey) -> None:
        if self._room.remove(key):
            self._apps.leave(key.app)

    def _remove(self, key: StageKey) -> Op[bool]:
        """Remove a stage's file; False when that has to be tried again."""
        try:
            yield Io(partial(self._store.remove, key))
        except OSError:
            return False
        return True

    def _discard_earlier_runs(self, key: StageKey, newest_ms: int) -> Op[None]:
        """Discard what other runs have staged up to then.

        This epoch is locked; a stage of one that is in use elsewhere goes later.
        """
        for other in self._room.of_app(key.app):
            info = self._room.get(other)
            if run_of(other.attempt) == run_of(key.attempt) or info is None:
                continue
            if info.created_ms > newest_ms:
                continue
            if other.epoch == key.epoch:
                if (yield from self._remove(other)):
                    self._forget(other)
            else:
                yield from self._discard(other)

    def _discard(self, key: StageKey) -> Op[int]:
        """Remove a stage unless its epoch is in use; returns its bytes, 0 if it stays."""
        if self._locks.is_held(key.app, key.epoch) or key.app in self._stranded:
            return 0
        yield from self._locks.lock(key.app, key.epoch)
        try:
            info = self._room.get(key)  # a commit or another discard may have taken the stage
            if info is not None and (yield from self._remove(key)):
                self._forget(key)
                return info.disk_bytes
        finally:
            self._locks.unlock(key.app, key.epoch)
        return 0

    # Looking and dropping

    def waiting(self, caller: Caller = ANYBODY) -> Op[list[WaitingStages]]:
        """What waits for its commit, by app and epoch, the oldest first."""
        found: list[WaitingStages] = []
        for count, (app, epoch) in enumerate(self._room.epochs(), 1):
            if caller.allows(app) or self._apps.is_owner(app, caller):
                found += self._room.of(app, epoch)
            if count % APPS_BETWEEN_PAUSES == 0:
                yield PAUSE
        return found

    def drop(self, app: str, *, epoch: int | None = None) -> Op[DroppedStages]:
        """Discard what an app has staged and not committed."""
        dropped = nbytes = 0
        for key in self._room.of_app(app):
            if epoch in (None, key.epoch):
                freed = yield from self._discard(key)
                dropped += freed > 0
                nbytes += freed
        return DroppedStages(app, dropped, nbytes)

    # Committing

    def commit(
        self,
        app: str,
        epoch: int,
        parts: Sequence[tuple[int, int]],
        *,
        caller: Caller = ANYBODY,
    ) -> Op[StageCommit]:
        """Append every named stage to its topics, all visible or none, across crashes.

        The caller has to be allowed every topic before anything is appended or told.
        """
        keys = stage_keys(app, epoch, parts)
        self._apps.check(app, caller)
        yield from self._prepare(app)
        yield from self._locks.lock_both(app, epoch)
        try:
            owner = self._enter(app, caller)
            self._runs.hear(app, self._kernel.clock.now_ms())
            try:
                return (yield from self._commit(keys, Commit(app, epoch, (), owner), caller))
            finally:
                self._apps.leave(app)
        finally:
            self._locks.unlock_both(app, epoch)

    def _commit(self, keys: list[StageKey], commit: Commit, caller: Caller) -> Op[StageCommit]:
        app, epoch = commit.app, commit.epoch
        known = self._committed_app(app, epoch)
        if known is not None:
            given = yield from _decoded(known.result)
            _allow(app, given, caller)
            return StageCommit(app, epoch, True, given)
        records = yield from self._read(keys, commit.owner)
        _allow(app, records, caller)
        parts = tuple((key.part, key.attempt) for key in keys)
        answer_bytes = sum(map(len, records)) + ANSWER_BYTES * len(records)
        self._apps.expect(app, caller, answer_bytes=answer_bytes)
        try:
            commit = msgspec.structs.replace(commit, parts=parts)
            landing = yield from self._lander.land(commit, records)
        except Stranded as stranded:
            self._stranded[app] = stranded
            raise
        finally:
            self._apps.committed(app)
        yield from self._settle(landing)
        return StageCommit(app, epoch, False, (yield from _decoded(landing.fact.result)))

    def _read(self, keys: list[StageKey], owner: bytes) -> Op[dict[str, TopicRecords]]:
        """The records of the stages by topic, in the order of parts and rows.

        Each stage has to be as the owner of the app has left it, or it has to be staged again.
        """
        found: list[StageInfo] = []
        oldest_ms = self._oldest_ms()
        for key in keys:
            info = self._room.get(key)
            if info is None or info.created_ms < oldest_ms or info.owner not in (b"", owner):
                raise NotFound(name_of(key))
            found.append(info)
        records: dict[str, TopicRecords] = {}
        for info in found:
            try:
                is_sound: bool = yield Io(partial(self._gather, info, records))
            except OSError as error:
                raise Internal(f"{name_of(info.key)} cannot be read: {error}") from error
            if not is_sound:  # gone, damaged, or another one
                self._forget(info.key)
                raise NotFound(name_of(info.key))
        return records

    def _gather(self, info: StageInfo, records: dict[str, TopicRecords]) -> bool:
        """Add the records of a stage; on a thread."""
        stage = self._store.read(info.key)
        if stage is None or stage.info != info:
            return False
        add(by_topic([stage]), records)
        if not self._kernel.in_memory:  # else these are the rows that the store keeps
            while stage.rows:  # a little at a time: no step holds the interpreter for long
                del stage.rows[-STEP_ROWS:]
        return True

    def _settle(self, landing: Landing) -> Op[None]:
        """A commit is complete. Its stages are consumed, but their files wait for the snapshots;
        other stages of the epoch go at once, or with age if they cannot be removed now."""
        fact = landing.fact
        app, epoch, generation = fact.app, fact.epoch, self._kernel.generation
        for part, attempt in fact.parts:
            self._forget(StageKey(app, epoch, part, attempt))
        if self._kernel.in_memory:
            self._store.remove_epoch(app, epoch)
        elif fact.parts:
            self._keep_files(_Committed(app, epoch, generation, landing.lfn))
        for key in self._room.of_epoch(app, epoch):
            if (yield from self._remove(key)):
                self._forget(key)

    # What every call asks first

    def _enter(self, app: str, caller: Caller) -> bytes:
        owner = self._apps.enter(app, caller)
        if app in self._kernel.catalog.apps:
            self._kernel.dirty_apps.add(app)  # it may belong to another key from now on
        return owner

    def _prepare(self, app: str) -> Op[None]:
        yield from self.sweep()
        self._forget_app(app)
        yield from self.complete_stranded()

    def last_commit(self, app: str, *, caller: Caller = ANYBODY) -> Op[StageCommit]:
        """The last epoch of an app and the answer that it got, until the app is forgotten."""
        self._apps.check(app, caller)
        if app in self._stranded:
            raise Internal(str(self._stranded[app]))
        known = self._kernel.catalog.apps.get(app)
        if known is None:
            raise NotFound(f'a commit of the staging app "{app}"')
        given = yield from _decoded(known.result)
        _allow(app, given, caller)
        return StageCommit(app, known.epoch, True, given)

    def _committed_app(self, app: str, epoch: int) -> StagingApp | None:
        """The app, if this is its last committed epoch; None when the epoch is still to come."""
        if app in self._stranded:
            raise Internal(str(self._stranded[app]))
        known = self._kernel.catalog.apps.get(app)
        if known is None:
            return None
        if epoch < known.epoch:
            raise StaleEpoch(app, epoch=epoch, last_epoch=known.epoch)
        if epoch - known.epoch > MAX_EPOCH_STEP:
            raise InvalidRequest(
                f"epoch {epoch} is more than 2^32 beyond {known.epoch}, the last one that app "
                f"{app!r} has committed; use the next number, or another app"
            )
        known.last_use_ms = max(known.last_use_ms, self._kernel.clock.now_ms())
        self._kernel.dirty_apps.add(app)
        return known if epoch == known.epoch else None

    # Time

    def upkeep(self) -> Op[None]:
        """What falls due by the clock."""
        yield from self.complete_stranded()
        yield from self.sweep()
        if self._kernel.clock.now_ms() >= self._apps_due_ms:
            yield from self._forget_apps()

    def _forget_apps(self) -> Op[None]:
        """Forget the apps that were not used for long, and find out when the next look is due."""
        apps, ttl_ms = self._kernel.catalog.apps, self._kernel.settings.stage_app_ttl_ms
        due_ms = self._kernel.clock.now_ms() + ttl_ms
        for count, name in enumerate(list(apps), 1):
            self._forget_app(name)
            if name in apps:
                due_ms = min(due_ms, apps[name].last_use_ms + ttl_ms)
            if count % APPS_BETWEEN_PAUSES == 0:
                yield PAUSE
        self._apps_due_ms = due_ms

    def complete_stranded(self) -> Op[None]:
        """Complete commits that a full disk held up, where there is room again."""
        for app, stranded in list(self._stranded.items()):
            landing = stranded.landing
            if not landing.is_certain or self._locks.is_held(app, None):
                continue
            epoch = landing.fact.epoch
            yield from self._locks.lock_both(app, epoch)
            try:
                yield from self._lander.resume(landing)
                del self._stranded[app]
                yield from self._settle(landing)
            except Stranded as again:
                self._stranded[app] = again
            finally:
                self._locks.unlock_both(app, epoch)

    def sweep(self) -> Op[None]:
        """Discard the stages that are too old, or of runs that are silent for too long."""
        for key in self._room.older_than(self._oldest_ms()):
            info = self._room.get(key)  # it may have been staged again meanwhile
            if info is not None and info.created_ms < self._oldest_ms():
                yield from self._discard(key)
        for app, run in self._runs.silent(self._kernel.clock.now_ms()):
            if not self._runs.forget_silent(app, self._kernel.clock.now_ms()):
                continue  # it called while other stages were removed
            for key in self._room.of_app(app):
                if self._runs.knows(app):
                    break  # it called while its stages were removed, and may have staged again
                if run_of(key.attempt) == run:
                    yield from self._discard(key)

    def _oldest_ms(self) -> int:
        """A stage that was made before this time is too old."""
        return self._kernel.clock.now_ms() - self._kernel.settings.stage_ttl_ms

    def _forget_app(self, name: str) -> None:
        """Drop the result of an app that was not used for long.

        Not while files of its epochs are kept: only the app tells a restart that they are
        committed, and a new stage must not replace them.
        """
        app = self._kernel.catalog.apps.get(name)
        if app is None or name in self._committed:
            return
        if self._kernel.clock.now_ms() - app.last_use_ms > self._kernel.settings.stage_app_ttl_ms:
            del self._kernel.catalog.apps[name]
            self._apps.forget(name)
            self._kernel.dirty_apps.add(name)

    def release(self, generation: int, agnostic_lfn: int) -> Op[None]:
        """Both kept snapshots contain the log of shard 0 up to here: let committed files go."""
        for count, app in enumerate(list(self._committed), 1):
            for kept in list(self._committed[app]):
                if (kept.generation, kept.lfn) > (generation, agnostic_lfn):
                    break  # those behind it are later ones
                yield from self._remove_files(kept)
            if count % APPS_BETWEEN_PAUSES == 0:
                yield PAUSE

    def _keep_files(self, kept: _Committed) -> None:
        self._committed.setdefault(kept.app, []).append(kept)

    def _remove_files(self, kept: _Committed) -> Op[None]:
        app, epoch = kept.app, kept.epoch
        if self._locks.is_held(app, epoch):
            return
        yield from self._locks.lock(app, epoch)
        try:
            yield Io(partial(self._store.remove_epoch, app, epoch))
        except OSError:
            return  # the next checkpoint tries again
        else:
            self._committed[app].remove(kept)
            if not self._committed[app]:
                del self._committed[app]
        finally:
            self._locks.unlock(app, epoch)


def _allow(app: str, topics: Iterable[str], caller: Caller) -> None:
    """The topics of a commit are not told: the key may not know them."""
    if not all(map(caller.allows, topics)):
        raise Forbidden(app=app)


def _decoded(result: bytes) -> Op[dict[str, CommittedRange]]:
    """The answer to a commit as it is kept with the app."""
    if len(result) <= LONG_RESULT_BYTES:
        return decode_result(result)
    given: dict[str, CommittedRange] = yield Io(partial(decode_result, result))
    return given
