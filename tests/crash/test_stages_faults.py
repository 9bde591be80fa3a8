"""Commits that meet a full or failing shard, and stages that are gone when replay needs them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from tests.crash.stage_stores import (
    APP,
    LATE,
    PARTS,
    SHARDS,
    TOPICS,
    Sink,
    check_after,
    check_whole,
    new_store,
    open_sharded,
    records,
    seen,
)
from tests.crash.stores import DATA_DIR, contents, opened, settings

from topics.core.facts import CheckpointMarked
from topics.embedded import Log
from topics.engine import effects
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.stages import landing
from topics.engine.upkeep.checkpoint import Checkpointer
from topics.engine.writes.deleting import parse_match
from topics.errors import Internal, LogFailed, LogFull, RefusedToOpen
from topics.storage.crashpoints import installed
from topics.storage.frames.append import encode_append
from topics.storage.wal.inline import InlineCommitter
from topics.storage.wal.submission import Submission
from topics.testing import FaultFs, ManualClock, Op, SimDisk, WatchFs, stop_at

STORE = new_store()
PROBE_MS = 1000
CHUNK = 300
"""So many records of a topic go into the log at once, where a test says so."""


class Running(NamedTuple):
    """A log on a disk that fails on request."""

    disk: SimDisk
    faults: FaultFs
    clock: ManualClock
    log: Log
    sink: Sink

    def shows_nothing(self) -> bool:
        return not any(seen(self.log, 2).values())


def running(**settings: Any) -> Running:  # noqa: ANN401 - EngineSettings checks them
    disk, clock = STORE.clone(), ManualClock()
    faults = FaultFs(disk.mount())
    return Running(
        disk, faults, clock, open_sharded(WatchFs(faults), clock=clock, **settings), Sink()
    )


def wal(shard: int) -> str:
    return f"*/shard-{shard:02}/*.log"


def commit_while(point: str, spoil: Callable[[], object], run: Running) -> None:
    """Run the sink, with trouble that begins at a crash point."""

    def hook(name: str) -> None:
        if name == point:
            spoil()

    with installed(hook):
        run.sink.run(run.log)


def assert_refuses(log: Log, topic: str) -> None:
    """Nothing that would move a seq or a setting goes through."""
    for call in (
        lambda: log.append(topic, {"data": "no"}),
        lambda: log.delete(topic, before_seq=2),
        lambda: log.configure(topic, durability="fsync", cap_records=99),
        lambda: log.drop(topic),
    ):
        with pytest.raises(Internal):
            call()


# Before the point


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, LogFull), (errno.EIO, LogFailed)])
def test_st02_a_shard_that_cannot_take_the_barrier_changes_nothing(
    shard: int, code: int, error: type[Internal]
) -> None:
    run = running()
    run.log.append(LATE, {"data": "made"})  # else the topic's creation would fail, not the barrier
    before = records(run.log)
    for part, attempt in PARTS:
        run.log.stage(APP, 2, part, [{"topic": t, "data": [2]} for t in TOPICS], attempt=attempt)
    run.faults.fail("pwrite", code, path=wal(shard), always=True)
    with pytest.raises(error):
        run.log.commit(APP, 2, PARTS)
    assert records(run.log) == before
    run.faults.clear()
    if error is LogFull:
        run.clock.advance(PROBE_MS)
        assert not run.log.commit(APP, 2, PARTS).deduped
        assert seen(run.log, 2) == {t: [[2], [2]] for t in TOPICS} | {LATE: []}
    else:
        run.disk.crash(mode="none")
        again = open_sharded(run.disk.mount())
        assert not any(seen(again, 2).values())
        assert not again.commit(APP, 2, PARTS).deduped


def test_st02_a_full_shard_0_keeps_no_byte_of_the_commit_and_nothing_changes() -> None:
    run = running()
    full = partial(run.faults.fail, "pwrite", errno.ENOSPC, path=wal(0), always=True)
    with pytest.raises(LogFull):
        commit_while("stage.barrier", full, run)
    assert run.shows_nothing()
    run.faults.clear()
    run.clock.advance(PROBE_MS)
    for topic in TOPICS:
        run.log.append(topic, {"data": "goes on"})
    run.log.checkpoint()
    answer = run.log.commit(APP, 2, PARTS)
    assert not answer.deduped
    check_whole(run.log, answer)
    run.disk.crash(mode="none")
    check_after(run.disk, Sink(answer=answer))


# At the point


@pytest.mark.parametrize("op", ["pwrite", "fdatasync"])
@pytest.mark.parametrize("end", ["kill", "none", "all"])
def test_st02_a_point_whose_write_or_sync_failed_is_settled_by_a_restart(op: Op, end: str) -> None:
    run = running()
    with pytest.raises(Internal, match="restart"):
        commit_while("stage.barrier", partial(run.faults.fail, op, errno.EIO, path=wal(0)), run)
    assert run.shows_nothing()
    for topic in [*TOPICS, LATE]:
        assert_refuses(run.log, topic)
    for call in (
        lambda: run.log.commit(APP, 2, PARTS),
        lambda: run.log.stage(APP, 2, 0, []),
        run.log.checkpoint,
    ):
        with pytest.raises(Internal):
            call()
    other = next(name for name in "vwxyz" if _is_elsewhere(run.log, name))
    assert run.log.append(other, {"data": 1}).count == 1
    if end == "kill":
        run.disk.kill()
    else:
        run.disk.crash(mode=end)  # type: ignore[arg-type]  # a crash mode
    check_after(run.disk, run.sink)


def _is_elsewhere(log: Log, topic: str) -> bool:
    """Make a topic whose shard still writes."""
    try:
        log.create(topic)
    except Internal:
        return False
    return True


# Behind the point


def stranded(shard: int, code: int, **settings: Any) -> Running:  # noqa: ANN401 - as above
    run = running(**settings)
    spoil = partial(run.faults.fail, "pwrite", code, path=wal(shard), always=True)
    with pytest.raises(Internal):
        commit_while("stage.committed", spoil, run)
    assert run.shows_nothing()
    for topic in [*TOPICS, LATE]:
        assert_refuses(run.log, topic)
    with pytest.raises(Internal):
        run.log.checkpoint()
    with pytest.raises(Internal):
        run.log.commit(APP, 2, PARTS)
    run.faults.clear()
    return run


def by_commit(log: Log) -> None:
    assert log.commit(APP, 2, PARTS).deduped


def by_append(log: Log) -> None:
    head = log.state("plain").head_seq
    assert log.append("plain", {"data": "behind it"}).first_seq == head + 7


WAYS: dict[str, Callable[[Log], None]] = {
    "commit": by_commit,
    "append": by_append,
    "maintain": Log.maintain,
}


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("way", WAYS)
def test_st02_what_a_full_shard_held_up_is_completed_when_there_is_room(
    shard: int, way: str
) -> None:
    run = stranded(shard, errno.ENOSPC)
    run.clock.advance(PROBE_MS)
    WAYS[way](run.log)
    answer = run.log.commit(APP, 2, PARTS)
    assert answer.deduped
    check_whole(run.log, answer)
    run.log.checkpoint()
    run.disk.crash(mode="none")
    check_after(run.disk, Sink(answer=answer))


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("end", ["kill", "crash", "close"])
def test_st02_what_a_shard_did_not_take_is_complete_after_a_restart(
    shard: int, code: int, end: str
) -> None:
    run = stranded(shard, code)
    if end == "kill":
        run.disk.kill()
    elif end == "crash":
        run.disk.crash(mode="none")
    else:
        try:
            run.log.close()
        except LogFailed:
            assert code == errno.EIO
        run.disk.crash(mode="none")
    again = open_sharded(run.disk.mount())
    answer = again.commit(APP, 2, PARTS)
    assert answer.deduped
    check_whole(again, answer)
    again.close()
    check_after(run.disk, Sink(answer=answer))


class LateLog(InlineCommitter):
    """Answers the first chunk of a commit only when told to, like a log with a queue."""

    late: Submission | None = None
    is_prompt = False

    def submit(self, submission: Submission) -> None:
        is_chunk = isinstance(submission, landing.ChunkSubmission)
        if is_chunk and not self.is_prompt and self.late is None:
            self.late = submission
        else:
            super().submit(submission)

    def answer(self, error: Internal | None) -> None:
        late = self.late
        if late is None or late.done:
            return
        if error is None:
            super().submit(late)
        else:
            late.error, late.done = error, True
            late.on_done(late)


def begun_in_chunks(monkeypatch: pytest.MonkeyPatch) -> tuple[SimDisk, Log, LateLog]:
    """A log with a stage that is committed in three chunks, each encoded on a thread."""
    monkeypatch.setattr(landing, "CHUNK_RECORDS", CHUNK)
    disk = SimDisk()
    opening = Opening(settings(wal_shards=1), ManualClock(), make_committer=LateLog)
    log = Log(open_engine(disk.mount(), DATA_DIR, opening))
    log.stage(APP, 1, 0, [{"topic": "t", "data": n} for n in range(3 * CHUNK)])
    committer = log._engine.kernel.committer
    assert isinstance(committer, LateLog)
    return disk, log, committer


def commit_in_chunks(log: Log, at_wait: Callable[[effects.Wait], None]) -> None:
    def drive(op: effects.Op[object]) -> None:
        wait = next(op)
        while True:
            at_wait(wait)
            wait = effects.fulfil(op, wait)

    with pytest.raises(Internal, match="waits until the log takes its records"):
        drive(log._engine.commit(APP, 1, [(0, 0)]))
    assert log.state("t").head_seq == 0
    with pytest.raises(Internal):
        effects.run(log._engine.kernel.gates.landed())  # a checkpoint does not wait for ever


def check_completed(disk: SimDisk, log: Log) -> None:
    assert log.commit(APP, 1, [(0, 0)]).deduped
    assert log._engine.kernel.catalog.pending_bytes == 0
    assert log.append("t", {"data": "next"}).first_seq == 3 * CHUNK + 1
    disk.kill()
    again = opened(disk.mount(), wal_shards=1)
    assert [*contents(again)["t"].records] == [*range(1, 3 * CHUNK + 2)]
    again.close()


def test_st02_a_chunk_refused_while_the_next_is_encoded_has_nothing_of_its_topic_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, log, committer = begun_in_chunks(monkeypatch)

    def refuse_late(wait: effects.Wait) -> None:
        if isinstance(wait, effects.Io):
            committer.answer(Internal("no room for the next log file"))

    commit_in_chunks(log, refuse_late)
    check_completed(disk, log)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_st02_a_commit_that_lacks_memory_to_encode_a_chunk_is_completed_later(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, log, committer = begun_in_chunks(monkeypatch)
    calls = 0

    def encode(*asked: Any, **more: Any) -> Any:  # noqa: ANN401 - as the original
        nonlocal calls
        calls += 1
        if calls == failing:
            raise MemoryError
        return encode_append(*asked, **more)

    def answer_late(wait: effects.Wait) -> None:
        if isinstance(wait, Submission):
            committer.answer(None)

    monkeypatch.setattr(landing, "encode_append", encode)
    committer.is_prompt = failing == 3
    commit_in_chunks(log, answer_late)
    monkeypatch.setattr(landing, "encode_append", encode_append)
    committer.is_prompt = True
    check_completed(disk, log)


def test_st02_stages_of_a_held_up_commit_outlive_their_time() -> None:
    run = stranded(1, errno.EIO, stage_ttl_ms=1000)
    run.clock.advance(100_000)
    run.log.maintain()
    run.disk.crash(mode="none")
    check_after(run.disk, Sink())


# Stages that replay needs


def committed_without_appends() -> SimDisk:
    disk = STORE.clone()
    log = open_sharded(disk.mount())
    with stop_at("stage.committed", partial(disk.crash, mode="none")) as stop:
        Sink().run(log)
    assert stop.reached
    return disk


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("damage", ["header", "body", "gone", "cut"])
def test_st03_a_committed_stage_that_is_gone_or_damaged_refuses_the_start(
    part: int, damage: str
) -> None:
    disk = committed_without_appends()
    path = next(p for p in disk.paths() if p.endswith(f"-2/{part}-7.stage"))
    whole = disk.peek(path)
    if damage == "gone":
        disk.unlink(path)
        disk.settle()
    elif damage == "cut":
        disk.put(path, whole[:-1])
    else:
        disk.flip(path, 20 if damage == "header" else len(whole) - 5)
    before = disk.contents()
    with pytest.raises(RefusedToOpen) as refused:
        open_sharded(disk.mount())
    assert path in str(refused.value)
    assert {p: b for p, b in disk.contents().items() if "LOCK" not in p.upper()} == {
        p: b for p, b in before.items() if "LOCK" not in p.upper()
    }
    disk.put(path, whole)
    check_after(disk, Sink())


def test_st03_a_committed_stage_is_not_missed_once_the_log_has_its_records() -> None:
    disk, sink = STORE.clone(), Sink()
    log = open_sharded(disk.mount())
    sink.run(log)
    disk.crash(mode="none")
    for path in [p for p in disk.paths() if p.endswith(".stage")]:
        disk.unlink(path)
    disk.settle()
    check_after(disk, sink)


def topic_on(log: Log, shard: int) -> str:
    """A new topic whose log is on a shard."""
    kernel = log._engine.kernel
    for number in range(100):
        name = f"t{shard}-{number}"
        log.create(name, durability="fsync")
        if kernel.committer.shard_of(kernel.catalog.by_name[name].id) == shard:
            return name
    raise AssertionError


@pytest.mark.parametrize("is_deleted", [False, True])
def test_st03_a_stage_committed_between_two_barriers_is_not_missed_by_the_older_snapshot(
    is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is behind the barrier of one shard, its records before the barrier of another."""
    disk = SimDisk()
    log = open_sharded(disk.mount())
    source, between, last = topic_on(log, SHARDS - 1), topic_on(log, 1), topic_on(log, 0)
    log.route("first", source=source, dest=between)
    log.route("second", source=between, dest=last)
    log.stage(APP, 1, 0, [{"topic": source, "data": n, "tag": "x"} for n in range(3)])
    durably = Checkpointer._durably

    def commit_before_the_last(
        self: Checkpointer, shard: int, fact: CheckpointMarked
    ) -> effects.Op[Submission]:
        engine = log._engine  # the log itself is in the middle of a call
        if shard == SHARDS - 1 and not engine.kernel.topic(source).head:
            effects.run(engine.commit(APP, 1, [(0, 0)]))
            engine.forward()
            if is_deleted:
                assert engine.kernel.topic(between).head == 3
                effects.run(engine.delete(source, before=None, match=parse_match("x")))
        return (yield from durably(self, shard, fact))

    with monkeypatch.context() as patched:
        patched.setattr(Checkpointer, "_durably", commit_before_the_last)
        log.checkpoint()
    shown = [record.data for record in log.read(last).records]
    assert shown == [0, 1, 2]
    log.checkpoint()
    assert not [path for path in disk.paths() if path.endswith(".stage")]
    disk.kill()
    disk.flip(max(path for path in disk.paths() if "/meta/snapshot" in path), 100)
    log = open_sharded(disk.mount())
    for topic in (between, last):
        page = log.read(topic)
        assert [record.data for record in page.records] == shown
        assert page.tombstone is None
