"""Writing one log group: beacons, the tick, growth, rotation and the fence."""

import errno
import threading
from collections.abc import Iterator
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage.wal.builders import (
    CURRENT,
    FIRST_FILE,
    LARGE,
    MS,
    SETTINGS,
    SMALL,
    STORE_ID,
    TOPIC,
    WAL_DIR,
    Log,
)

from topics.core.facts import Beacon, Fact, FileHeader
from topics.errors import Internal, LogFailed, LogFull
from topics.storage import identity, layout
from topics.storage.frames.buffer import Frame, decode_at, encode
from topics.storage.fs import Buffer
from topics.storage.wal.files import BEACON_SIZE, HEADER_SIZE, Beacons
from topics.storage.wal.settings import MIB, WalSettings
from topics.storage.wal.shard import LONG_BYTES, PIECE_BYTES, ShardState
from topics.storage.wal.submission import Position, Submission
from topics.testing import SimDisk


def facts_of(data: bytes) -> list[Fact]:
    """Every frame of a log file."""
    facts: list[Fact] = []
    offset = 0
    while isinstance(frame := decode_at(data, offset, len(data)), Frame):
        facts.append(frame.fact(data))
        offset = frame.end
    return facts


def beacons_of(data: bytes) -> list[Beacon]:
    return [fact for fact in facts_of(data) if isinstance(fact, Beacon)]


def test_a_new_group_begins_with_a_header_and_a_current_that_names_it() -> None:
    disk = SimDisk()
    Log(disk)
    header = facts_of(disk.peek_durable(FIRST_FILE))[0]
    assert isinstance(header, FileHeader)
    assert (header.generation, header.first_lfn, header.prev_first_lfn) == (1, 1, 0)
    assert header.store_id == STORE_ID
    assert header.boot_id == disk.boot_id()
    assert identity.decode_current(disk.peek_durable(CURRENT)) == (1, 1)


def test_a_submission_learns_where_it_lies() -> None:
    log = Log(SimDisk())
    submission = log.append(b"1", b"2", durable=False)
    assert (submission.offset, submission.last_lfn) == (HEADER_SIZE, 2)
    source = log.sources.get(submission.source_id)
    size = len(submission.frames)
    assert source.view(submission.offset, size) == submission.frames
    assert source.pread(submission.offset, size) == submission.frames


def test_one_write_call_and_no_sync_for_a_buffered_submission() -> None:
    log = Log(SimDisk())
    writes, syncs = log.faults.count("pwrite"), log.faults.count("fdatasync")
    log.append(b"1", durable=False)
    assert log.faults.count("pwrite") - writes == 1
    assert log.faults.count("fdatasync") == syncs


def test_a_durable_submission_is_on_the_disk_when_it_is_answered() -> None:
    disk = SimDisk()
    log = Log(disk)
    submission = log.append(b"1")
    assert submission.frames in disk.peek_durable(FIRST_FILE)
    assert log.committer.synced(0) == log.committer.position(0)


def test_the_write_after_a_sync_carries_a_beacon_in_the_same_call() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    durable = log.shard.synced
    writes = log.faults.count("pwrite")
    second = log.append(b"2", durable=False)
    assert log.faults.count("pwrite") - writes == 1
    assert second.offset == durable.offset + BEACON_SIZE
    assert second.last_lfn == 3
    (beacon,) = beacons_of(disk.peek(FIRST_FILE))
    assert (beacon.file_lfn, beacon.offset) == (1, durable.offset)
    assert beacon.store_mark == identity.store_mark(STORE_ID)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_beacon_is_what_the_codec_would_write(mark: int, file_lfn: int, offset: int) -> None:
    fact = Beacon(ts=0, store_mark=mark, file_lfn=file_lfn, offset=offset)
    assert Beacons(mark).frame(file_lfn, offset) == encode(fact)


def test_no_beacon_while_the_durable_position_stands_still() -> None:
    disk = SimDisk()
    log = Log(disk)
    for _ in range(5):
        log.append(b"1", durable=False)
    assert beacons_of(disk.peek(FIRST_FILE)) == []


def test_an_old_tail_is_synced_by_the_tick_and_hardly_before() -> None:
    log = Log(SimDisk())
    log.append(b"1", durable=False)
    log.timer.pass_ms(SETTINGS.disk_sync_ms - 2)
    log.committer.tick()
    assert log.shard.is_dirty
    log.timer.pass_ms(1)  # whoever looks this shortly before need not look again
    log.committer.tick()
    assert not log.shard.is_dirty


def test_only_who_sleeps_longer_than_a_tail_may_wait_has_to_be_told_of_it() -> None:
    shard, limit_ns = Log(SimDisk()).shard, SETTINGS.disk_sync_ms * 1_000_000
    assert shard.sleeps_too_long(None)
    assert shard.sleeps_too_long(limit_ns + 1)
    assert not shard.sleeps_too_long(limit_ns)


def test_a_write_syncs_an_old_tail_with_it() -> None:
    log = Log(SimDisk())
    log.append(b"1", durable=False)
    log.timer.pass_ms(SETTINGS.disk_sync_ms)
    log.append(b"2", durable=False)
    assert not log.shard.is_dirty


def test_a_long_tail_is_synced_whatever_its_age() -> None:
    log = Log(SimDisk(), settings=WalSettings(max_unsynced=1000, cache_bytes=0))
    log.append(b"1" * 500, durable=False)
    assert log.shard.is_dirty
    log.append(b"1" * 500, durable=False)
    assert not log.shard.is_dirty


def test_an_idle_log_leaves_one_beacon_and_then_rests() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    for _ in range(5):
        log.timer.pass_ms(SETTINGS.disk_sync_ms)
        log.committer.tick()
    assert len(beacons_of(disk.peek(FIRST_FILE))) == 1
    assert log.faults.count("fdatasync", FIRST_FILE) == 1
    assert log.shard.wait_ns() is None


def test_closing_leaves_a_durable_beacon_for_everything() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1", durable=False)
    end = log.shard.position
    log.close()
    (beacon,) = beacons_of(disk.peek_durable(FIRST_FILE))
    assert beacon.offset == end.offset


def test_closing_a_log_that_wrote_nothing_adds_nothing() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.close()
    log.close()
    assert len(facts_of(disk.peek(FIRST_FILE))) == 1


def test_a_barrier_tells_how_far_the_log_is_durable() -> None:
    log = Log(SimDisk())
    log.append(b"1", durable=False)
    assert log.committer.sync(0) == Position(1, log.shard.position.offset, 1)
    syncs = log.faults.count("fdatasync")
    assert log.committer.sync(0) == log.shard.synced
    assert log.faults.count("fdatasync") == syncs


def test_a_file_grows_in_doubling_steps_before_it_rotates() -> None:
    disk = SimDisk()
    settings = WalSettings(file_bytes=4 * MIB, cache_bytes=0)
    log = Log(disk, settings=settings)
    sizes = set()
    while log.shard.stats().rotations == 0:
        log.append(LARGE, durable=False)
        sizes.add(len(disk.peek(FIRST_FILE)))
    assert sizes == {MIB, 2 * MIB, 4 * MIB, max(sizes - {MIB, 2 * MIB, 4 * MIB})}
    header = facts_of(disk.peek(log.shard.path))[0]
    assert isinstance(header, FileHeader)
    assert header.prev_first_lfn == 1
    assert header.prev_len == len(disk.peek_durable(FIRST_FILE))


def test_rotation_keeps_counting_frames_and_repoints_current() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    submissions = [log.append(LARGE) for _ in range(8)]
    assert log.shard.stats().rotations >= 2
    lfns = [submission.last_lfn for submission in submissions]
    assert lfns == sorted(set(lfns))
    current = identity.decode_current(disk.peek_durable(CURRENT))
    assert current is not None
    assert f"{WAL_DIR}/{layout.wal_name(current.first_lfn)}" == log.shard.path
    log.close()
    disk.kill()
    again = Log(disk, settings=SMALL)
    assert again.recovered[TOPIC] == log.sent[TOPIC]


def test_old_files_stay_readable_after_rotation() -> None:
    log = Log(SimDisk(), settings=SMALL)
    first = log.append(b"1", durable=False)
    for _ in range(6):
        log.append(LARGE, durable=False)
    source = log.sources.get(first.source_id)
    assert source.view(first.offset, len(first.frames)) is None
    assert source.pread(first.offset, len(first.frames)) == first.frames


def test_a_higher_generation_in_current_fences_the_writer_at_rotation() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    disk.put(CURRENT, identity.encode_current(1, 2))
    error = None
    while error is None:
        error = log.append(LARGE).error
    assert isinstance(error, LogFailed)
    assert "generation 2" in str(error)
    assert log.state() is ShardState.FAILED


@pytest.mark.parametrize("text", [b"", b"garbage", identity.encode_current(1, 1)])
def test_a_current_that_says_nothing_newer_does_not_fence(text: bytes) -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    disk.put(CURRENT, text)
    for _ in range(6):
        assert log.append(LARGE).error is None


def test_each_shard_writes_its_own_group() -> None:
    disk = SimDisk()
    log = Log(disk, shards=3)
    for topic in range(1, 7):
        log.append(b"1", topic=topic)
    log.close()
    disk.kill()
    again = Log(disk, shards=3)
    assert again.recovered == log.sent
    assert {scan.key for scan in again.scans} == {"shard-00", "shard-01", "shard-02"}


def test_frames_of_several_submissions_share_one_write() -> None:
    log = Log(SimDisk())
    batch: list[Submission] = [log.submission(b"1"), log.submission(b"2", b"3")]
    writes = log.faults.count("pwrite")
    log.shard.write_batch(batch)
    assert log.faults.count("pwrite") - writes == 1
    assert [submission.last_lfn for submission in batch] == [1, 3]
    assert batch[1].offset == batch[0].offset + len(batch[0].frames)


def test_stats_count_what_was_written() -> None:
    log = Log(SimDisk())
    log.append(b"1", b"2")
    log.append(b"3", durable=False)
    stats = log.committer.stats(0)
    assert (stats.frames, stats.batches, stats.syncs) == (4, 2, 1)
    assert stats.bytes_written == log.shard.position.offset
    assert sum(stats.sync_buckets) == 1


def test_stats_agree_with_their_histogram_while_another_sync_ends() -> None:
    log = Log(SimDisk())
    log.append(b"1")
    times = log.shard._sync_times

    class EndsWhenRead(list[int]):
        def __iter__(self) -> Iterator[int]:
            times.add(1)
            return super().__iter__()

    times.buckets = EndsWhenRead(times.buckets)
    stats = log.committer.stats(0)
    assert stats.syncs == sum(stats.sync_buckets) == 2


def test_measured_times_come_from_the_given_clock() -> None:
    log = Log(SimDisk())
    step = 7

    def passing() -> int:
        log.timer.now_ns += step
        return log.timer.now_ns

    log.shard.clock = passing
    submission = log.append(b"1")
    assert (submission.wrote_ns, submission.synced_ns) == (step, step)
    assert step < MS


@pytest.mark.parametrize("setting", ["file_bytes", "probe_ms", "queue_bytes"])
def test_a_bad_setting_stops_the_start(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        WalSettings(**{setting: 0})


def test_a_log_file_beyond_2_gib_stops_the_start() -> None:
    with pytest.raises(ValueError, match="file_bytes"):
        WalSettings(file_bytes=2**31 + 1)


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_write_larger_than_what_let_a_full_shard_heal_is_refused_whole(earlier: int) -> None:
    disk = SimDisk()
    settings = WalSettings(file_bytes=8 * MIB, cache_bytes=0)
    log = Log(disk, settings=settings)
    for _ in range(earlier):
        log.append(b"1")
    large = b'"' + b"x" * 2 * MIB + b'"'
    log.faults.fail("fallocate", errno.ENOSPC, path="*.log", always=True)
    assert isinstance(log.append(large).error, LogFull)
    assert isinstance(log.append(b"2").error, LogFull), "it was just found full"
    log.timer.pass_ms(settings.probe_ms)
    assert isinstance(log.append(large).error, LogFull), "there is a spare, but it is too small"
    log.timer.pass_ms(settings.probe_ms)
    log.faults.clear()
    assert log.append(large).error is None
    log.close()
    disk.crash(mode="none")
    assert Log(disk, settings=settings).recovered == log.sent


def test_a_shard_that_healed_takes_what_fits_into_the_file_it_has() -> None:
    log = Log(SimDisk())
    log.faults.fail("fallocate", errno.ENOSPC, always=True)
    assert isinstance(log.append(b'"%b"' % bytes(2 * MIB)).error, LogFull)
    path = log.shard.path
    log.faults.clear()
    log.timer.pass_ms(1000)
    assert log.append(b"2").error is None
    assert log.shard.path == path
    assert log.state() is ShardState.OPEN


def test_a_shard_that_is_open_has_nothing_to_heal() -> None:
    log = Log(SimDisk())
    allocations = log.faults.count("fallocate")
    assert log.shard.try_heal()
    assert log.faults.count("fallocate") == allocations


def test_the_first_reason_of_a_failure_is_the_one_that_is_told() -> None:
    log = Log(SimDisk())
    log.shard.abandon("first")
    log.shard.abandon("second")
    assert "first" in str(log.append(b"1").error)


def test_an_interrupt_that_passes_for_a_failed_sync_is_remembered_and_not_told() -> None:
    log = Log(SimDisk())
    with mock.patch.object(log.shard._file, "fdatasync", side_effect=TimeoutError):
        assert isinstance(log.append(b"1").error, LogFailed)
    assert log.shard.was_interrupted


def test_a_sync_that_fails_behind_another_failure_is_not_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fdatasync() -> None:
        log.shard.abandon("by another thread")
        raise OSError(errno.EIO, "no")

    log = Log(SimDisk())
    with mock.patch.object(log.shard._file, "fdatasync", fdatasync):
        assert isinstance(log.append(b"1").error, LogFailed)
    assert not log.shard.was_interrupted
    assert not caplog.records


def test_a_current_that_is_gone_does_not_fence_and_is_made_again() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    disk.unlink(CURRENT)
    for _ in range(6):
        assert log.append(LARGE).error is None
    current = identity.decode_current(disk.peek(CURRENT))
    assert current is not None
    assert f"{WAL_DIR}/{layout.wal_name(current.first_lfn)}" == log.shard.path


def test_a_log_that_ends_between_a_new_file_and_its_current_loses_nothing() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    log.faults.fail("rename", errno.ENOSPC, path="*CURRENT*", always=True)
    while log.append(LARGE).error is None:
        pass
    assert log.state() is ShardState.FULL
    log.close()
    disk.crash(mode="none")
    assert Log(disk, settings=SMALL).recovered == log.sent


def test_a_log_without_threads_has_nothing_under_way() -> None:
    log = Log(SimDisk())
    log.append(b"1", durable=False)
    assert log.committer.in_flight(0) == 0
    assert log.committer.room(0, 1 << 30)


def test_a_tail_that_grew_long_is_synced_by_the_tick_too() -> None:
    log = Log(SimDisk(), settings=WalSettings(max_unsynced=1000, cache_bytes=0))
    log.shard.write_batch([log.submission(b'"%b"' % (b"x" * 1000), durable=False)])
    assert log.shard.is_dirty
    log.committer.tick()
    assert not log.shard.is_dirty


def test_a_sync_that_failed_beside_a_write_without_space_stays_final() -> None:
    """Healing would ask the disk again for pages it has dropped, and get a "yes"."""
    log = Log(SimDisk())
    (shard,) = log.shards
    log.append(b"1", durable=False)
    log.faults.fail("pwrite", errno.ENOSPC, path=FIRST_FILE)
    log.faults.fail("fdatasync", errno.EIO, path=FIRST_FILE)
    taking_back = log.faults.fail("fsync", "stall", path=FIRST_FILE)
    refusals: list[Internal] = []

    def write() -> None:
        with shard.write_lock:
            try:
                shard.write_one(log.submission(b"2"))
            except Internal as error:
                refusals.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    assert taking_back.reached.wait(60)
    with pytest.raises(LogFailed):
        shard.sync()
    taking_back.release()
    writer.join()
    assert shard.state is ShardState.FAILED
    assert [type(error) for error in refusals] == [LogFailed]
    assert not shard.try_heal()


# Long writes

HUGE = b'"' + b"y" * (LONG_BYTES - 200) + b'"'
"""Two of these are a long write."""
ROOMY = WalSettings(cache_bytes=1 << 16, max_unsynced=64 * MIB)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 16, 16 * MIB])
def test_a_long_write_lies_where_it_says_and_is_counted_once(cache_bytes: int) -> None:
    log = Log(SimDisk(), settings=msgspec.structs.replace(ROOMY, cache_bytes=cache_bytes))
    log.append(b"0", durable=False)
    before, writes = log.shard.stats(), log.faults.count("pwrite")
    submission = log.append(HUGE, HUGE, durable=False)
    after = log.shard.stats()
    assert log.faults.count("pwrite") - writes == -(-len(submission.frames) // PIECE_BYTES)
    assert (after.frames - before.frames, after.batches - before.batches) == (2, 1)
    assert after.bytes_written - before.bytes_written == len(submission.frames)
    assert submission.last_lfn == log.shard.lfn == 3
    source = log.sources.get(submission.source_id)
    size = len(submission.frames)
    assert source.pread(submission.offset, size) == submission.frames
    view = source.view(submission.offset, size)
    assert view is None or view == submission.frames
    assert log.append(b"1", durable=False).offset == submission.offset + size


def test_a_long_write_after_a_sync_begins_behind_a_beacon() -> None:
    disk = SimDisk()
    log = Log(disk, settings=ROOMY)
    log.append(b"1")
    durable = log.shard.synced
    submission = log.append(HUGE, HUGE, durable=False)
    assert submission.offset == durable.offset + BEACON_SIZE
    assert submission.last_lfn == 4
    (beacon,) = beacons_of(disk.peek(FIRST_FILE))
    assert (beacon.file_lfn, beacon.offset) == (1, durable.offset)
    log.append(b"2", durable=False)
    assert len(beacons_of(disk.peek(FIRST_FILE))) == 1, "nothing was synced since"


def test_a_long_write_in_several_submissions_tells_each_its_place() -> None:
    log = Log(SimDisk(), settings=ROOMY)
    log.append(b"0")
    batch = [log.submission(HUGE), log.submission(b"1", b"2"), log.submission(HUGE)]
    end = log.shard.position.offset + BEACON_SIZE
    log.shard.write_batch(batch)
    for submission, lfn in zip(batch, (3, 5, 6), strict=True):
        assert (submission.offset, submission.last_lfn) == (end, lfn)
        source = log.sources.get(submission.source_id)
        assert source.pread(end, len(submission.frames)) == submission.frames
        end += len(submission.frames)
    assert log.shard.position.offset == end


def test_many_short_submissions_that_are_long_together_take_few_calls() -> None:
    log = Log(SimDisk(), settings=ROOMY)
    log.append(b"0")
    short = [log.submission(b'"%d%b"' % (number, b"z" * 5000)) for number in range(1000)]
    batch = [*short[:400], log.submission(HUGE), *short[400:]]
    end, writes = log.shard.position.offset + BEACON_SIZE, log.faults.count("pwrite")
    log.shard.write_batch(batch)
    size = sum(len(submission.frames) for submission in batch)
    assert log.faults.count("pwrite") - writes <= size // PIECE_BYTES + 4
    for submission in batch:
        assert submission.offset == end
        source = log.sources.get(submission.source_id)
        assert source.pread(end, len(submission.frames)) == submission.frames
        end += len(submission.frames)
    assert log.shard.position.offset == end


def test_a_long_write_that_does_not_fit_goes_to_the_next_file() -> None:
    settings = WalSettings(file_bytes=10 * MIB, cache_bytes=1 << 16)
    log = Log(SimDisk(), settings=settings)
    log.append(HUGE, HUGE)
    second = log.append(HUGE, HUGE)
    assert second.error is None
    assert second.offset == HEADER_SIZE
    assert log.shard.stats().rotations == 1


def test_a_shard_that_has_failed_takes_no_long_write_either() -> None:
    log = Log(SimDisk(), settings=ROOMY)
    log.shard.abandon("because")
    assert isinstance(log.append(HUGE, HUGE).error, LogFailed)
    assert log.shard.lfn == 0


def test_a_sync_beside_a_long_write_speaks_for_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(SimDisk(), settings=ROOMY)
    log.append(b"1", durable=False)
    before = log.shard.position
    written: list[int] = []

    pwrite = log.shard._pwrite

    def write_and_sync(data: Buffer, offset: int) -> int:
        written.append(pwrite(data, offset))
        log.shard.sync()
        return written[-1]

    monkeypatch.setattr(log.shard, "_pwrite", write_and_sync)
    submission = log.append(HUGE, HUGE, durable=False)
    assert sum(written) == len(submission.frames)
    assert len(written) > 2
    assert log.shard.synced == before
    assert log.shard.is_dirty
    log.shard.sync()
    assert log.shard.synced == log.shard.position
