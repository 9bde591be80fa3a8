"""Reading groups back: positions, generations, what the next run hangs on."""

import errno
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage.wal.builders import (
    CURRENT,
    DATA_DIR,
    FIRST_FILE,
    LARGE,
    NOW,
    SMALL,
    STORE_ID,
    TOPIC,
    WAL_DIR,
    Log,
    log_files,
    rewrite_header,
)

from topics.core.facts import Appended, ClosedCleanly, HeadReserved
from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.frames.buffer import encode, walk
from topics.storage.frames.header import OVERHEAD
from topics.storage.wal import scan as scan_module
from topics.storage.wal.files import HEADER_SIZE, Link
from topics.storage.wal.groups import Group, discover, files_from
from topics.storage.wal.repair import quarantine
from topics.storage.wal.salvage import intact_frames
from topics.storage.wal.scan import GenerationScan, LostFrames
from topics.storage.wal.submission import Position, Submission
from topics.testing import FaultFs, SimDisk


def seqs(log: Log) -> list[int]:
    return [seq for seq, _ in log.recovered.get(TOPIC, [])]


def test_an_empty_directory_has_no_groups() -> None:
    disk = SimDisk()
    assert discover(disk, WAL_DIR) == []
    disk.mkdirs(WAL_DIR)
    assert discover(disk, WAL_DIR) == []


def test_groups_are_found_by_number_and_strangers_ignored() -> None:
    disk = SimDisk()
    for name in ("shard-100", "shard-02", "shard-2", "other"):
        disk.put(f"{WAL_DIR}/{name}/{layout.wal_name(1)}", b"")
    disk.put(f"{WAL_DIR}/wal-1.log", b"")
    disk.put(f"{WAL_DIR}/wal-spare.tmp", b"")
    assert [group.key for group in discover(disk, WAL_DIR)] == ["shard-02", "shard-100"]


def test_a_missing_or_unreadable_current_is_a_warning() -> None:
    disk = SimDisk()
    Log(disk).append(b"1")
    disk.unlink(CURRENT)
    assert "missing" in discover(disk, WAL_DIR)[0].warnings[0]
    disk.put(CURRENT, b"?")
    assert "unreadable" in discover(disk, WAL_DIR)[0].warnings[0]


def test_reading_starts_at_the_snapshots_position() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    position = log.committer.sync(0)
    log.append(b"2")
    disk.kill()
    after = Log(disk, starts={"": position})
    assert seqs(after) == [2]
    ((lfn, fact),) = after.scans[0].generations[0].entries
    assert isinstance(fact, Appended)
    assert lfn == 3, "one frame before, one beacon, then this"


def test_files_wholly_before_the_position_are_not_needed() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    for _ in range(7):
        log.append(LARGE)
    position = log.committer.sync(0)
    log.append(b"8")
    disk.kill()
    first, *_ = (path for path in disk.paths() if path.endswith(".log"))
    disk.unlink(first)
    assert seqs(Log(disk.clone(), settings=SMALL, starts={"": position})) == [8]
    with pytest.raises(RefusedToOpen):
        Log(disk, settings=SMALL)


def test_a_position_at_the_end_of_a_removed_file_goes_on_with_the_next() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    position = log.committer.sync(0)
    disk.kill()
    again = Log(disk)
    end = again.scans[0].end
    assert end == position
    again.append(b"2")
    disk.kill()
    disk.unlink(FIRST_FILE)
    assert seqs(Log(disk, starts={"": end})) == [2]


def test_an_absorbed_group_without_files_goes_on_counting() -> None:
    disk = SimDisk()
    disk.mkdirs(WAL_DIR)
    group = Group("", WAL_DIR, [])
    start = Position(7, 500, 42)
    assert files_from(disk, group, start, store_id=STORE_ID) == []
    found = scan_module.scan_group(
        disk, group, store_id=STORE_ID, start=start, add_source=lambda path: 1
    )
    assert (found.end, found.next_link) == (start, Link(43, 0, 0))
    assert found.newest_generation == 0


def test_the_next_file_hangs_on_the_valid_end() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1", b"2")
    end = log.shard.position
    disk.kill()
    (scan,) = Log(disk).scans
    assert scan.next_link == Link(3, 1, end.offset)
    assert scan.end == end


def test_a_file_without_frames_is_to_be_replaced() -> None:
    disk = SimDisk()
    Log(disk)
    disk.kill()
    (scan,) = Log(disk).scans
    assert scan.next_link == Link(1, 0, 0)
    assert not scan.has_frames


def test_each_run_is_a_generation_of_its_own() -> None:
    disk = SimDisk()
    for number in range(3):
        log = Log(disk)
        log.append(b"%d" % number)
        disk.crash(number, "none")
    (scan,) = Log(disk).scans
    assert [found.generation for found in scan.generations] == [1, 2, 3]
    assert len({found.boot_id for found in scan.generations}) == 3
    assert [found.frames for found in scan.generations] == [1, 1, 1]
    assert len(scan.sources) == 3


def closing(log: Log, head: int) -> None:
    frame = encode(ClosedCleanly(ts=NOW, heads=((TOPIC, head),)), durable=True)
    log.committer.submit(Submission(0, frame, 1, durable=True, on_done=lambda done: None))


def test_a_clean_stop_is_seen_when_nothing_but_beacons_follows() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    closing(log, 1)
    log.close()
    disk.kill()
    (generation,) = Log(disk).scans[0].generations
    assert generation.closed == ClosedCleanly(ts=NOW, heads=((TOPIC, 1),))


def test_a_stop_that_was_written_on_is_no_clean_stop() -> None:
    disk = SimDisk()
    log = Log(disk)
    closing(log, 0)
    log.append(b"1")
    disk.kill()
    generation, *_ = Log(disk).scans[0].generations
    assert generation.closed is None


def frames_of(log: Log) -> list[tuple[int, int]]:
    """The lfn and the offset of each frame of the log's first file."""
    data = log.disk.peek(FIRST_FILE)
    starts = [frame.offset for frame in intact_frames(data, HEADER_SIZE, len(data))]
    return list(enumerate(starts, 1))


def test_salvage_counts_what_it_gives_up_by_the_bytes_it_took() -> None:
    disk = SimDisk()
    log = Log(disk)
    written = [log.append(b"%d" % number * 100) for number in (1, 2, 3)]
    disk.kill()
    disk.settle()
    before = written[1].last_lfn - 1
    disk.flip(FIRST_FILE, written[1].offset + 45)
    (generation,) = Log(disk, salvage=True).scans[0].generations
    (lost,) = generation.lost
    assert lost.behind == before
    assert lost.frames == len(written[1].frames) // OVERHEAD == 3


def rotated() -> Log:
    """A log that stopped cleanly in its second file."""
    log = Log(SimDisk(), settings=SMALL)
    for number in range(40):
        log.append(b"%d" % number * 400)
    for _ in range(4):
        log.append(LARGE, durable=False)
    closing(log, 44)
    log.close()
    log.disk.kill()
    log.disk.settle()
    assert len(log_files(log.disk)) == 2
    return log


def salvaged(log: Log) -> GenerationScan:
    """What is left of it, with the ordinals in order; the clean stop is seen."""
    (generation,) = Log(log.disk, settings=SMALL, salvage=True).scans[0].generations
    lfns = [lfn for lfn, _ in generation.entries]
    assert lfns == sorted(set(lfns))
    assert isinstance(generation.closed, ClosedCleanly)
    return generation


def test_the_file_behind_tells_salvage_how_many_frames_were_lost() -> None:
    log = rotated()
    lfn, offset = frames_of(log)[10]
    log.disk.flip(FIRST_FILE, offset + 45)
    assert salvaged(log).lost == [LostFrames(lfn - 1, 1)]


def test_it_tells_so_of_several_places_together() -> None:
    log = rotated()
    places = [frames_of(log)[at] for at in (10, 20)]
    for _, offset in places:
        log.disk.flip(FIRST_FILE, offset + 45)
    first, second = salvaged(log).lost
    assert first == LostFrames(places[0][0] - 1, 2)
    assert second.frames == 2
    assert second.behind >= places[1][0] - 1


def test_frames_that_became_zeros_up_to_the_end_of_a_file_are_counted() -> None:
    log = rotated()
    frames = frames_of(log)
    lfn, offset = frames[20]
    size = len(log.disk.peek(FIRST_FILE))
    log.disk.poke(FIRST_FILE, offset, bytes(size - offset))
    assert salvaged(log).lost == [LostFrames(lfn - 1, len(frames) - 20)]


def test_a_large_log_is_read_in_bulk_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimDisk()
    log = Log(disk)
    for number in range(300):
        log.append(b"%d" % number, durable=number % 7 == 0, topic=number % 3 + 1, tag="x")
    disk.kill()
    image = disk.clone()
    plain = Log(disk)
    monkeypatch.setattr(scan_module, "BULK_BYTES", 0)
    bulk = Log(image)
    assert bulk.recovered == plain.recovered == log.sent
    assert bulk.scans[0].generations == plain.scans[0].generations


def test_submissions_longer_than_a_chunk_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_CHUNK_FRAMES", 4)
    disk = SimDisk()
    log = Log(disk)
    log.append(*[b"1"] * 11)
    log.append(*[b"2"] * 3, durable=False)
    disk.kill()
    assert Log(disk.clone()).recovered == log.sent
    disk.crash(mode="prefix", cut=200)
    assert len(Log(disk).recovered[TOPIC]) == 11


def test_following_frames_stops_where_it_is_told_or_where_they_end() -> None:
    frame = encode(HeadReserved(topic_id=1, ts=NOW, ceiling=2))
    buf = frame * 5
    paused = walk(buf, 0, len(buf), max_frames=2)
    assert (len(paused.offsets), paused.end) == (2, None)
    rest = walk(buf, paused.stop, len(buf), max_frames=99)
    assert len(rest.offsets) == 3
    assert rest.stop == len(buf)
    with_zeros = walk(buf + bytes(50), 0, len(buf) + 50, max_frames=99)
    assert (len(with_zeros.offsets), with_zeros.stop) == (5, len(buf))
    cut = walk(buf, 0, len(buf) - 1, max_frames=99)
    assert (len(cut.offsets), cut.stop) == (4, 4 * len(frame))


def test_an_open_submission_is_not_whole() -> None:
    open_frame = encode(HeadReserved(topic_id=1, ts=NOW, ceiling=2), cont=True)
    last = encode(HeadReserved(topic_id=1, ts=NOW, ceiling=2))
    buf = open_frame + last + open_frame + open_frame
    offsets = walk(buf, 0, len(buf), max_frames=9).offsets
    assert scan_module._whole_submissions(buf, offsets) == 2
    assert scan_module._whole_submissions(buf, offsets[2:]) == 0


def test_frames_are_found_in_rubbish() -> None:
    frame = encode(HeadReserved(topic_id=1, ts=NOW, ceiling=2))
    buf = b"\1\2\3" + frame + b"rubbish\0\0\0\1\1" + frame
    assert [found.offset for found in intact_frames(buf, 0, len(buf))] == [3, 15 + len(frame)]


@given(tail=st.binary(max_size=300), salvage=st.booleans())
def test_sw03_any_bytes_behind_the_frames_are_cut_or_refused(tail: bytes, salvage: bool) -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    end = log.shard.position.offset
    disk.kill()
    disk.settle()
    disk.poke(FIRST_FILE, end, tail)
    assert seqs(Log(disk, salvage=salvage)) == [1]


@given(places=st.lists(st.tuples(st.integers(0, 700), st.binary(min_size=1, max_size=8))))
def test_sw04_changed_bytes_are_noticed_or_cut_off(places: list[tuple[int, bytes]]) -> None:
    disk = SimDisk()
    log = Log(disk)
    for number in range(5):
        log.append(b"%d" % number * 20)
    disk.kill()
    disk.settle()
    for place, data in places:
        disk.poke(FIRST_FILE, place, data)
    found: list[tuple[int, bytes]] = []
    with suppress(RefusedToOpen):
        found = Log(disk).recovered.get(TOPIC, [])
    assert found == log.sent[TOPIC][: len(found)]


def test_files_are_listed_where_their_names_say() -> None:
    disk = SimDisk()
    log = Log(disk)
    assert log.shard.path == FIRST_FILE
    assert FIRST_FILE.startswith(DATA_DIR)
    assert log.shard.position.offset == HEADER_SIZE


def test_frames_that_are_missing_between_two_files_are_refused() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    while log.shard.stats().rotations == 0:
        log.append(LARGE)
    log.close()
    disk.kill()
    _, newest = log_files(disk)
    first_lfn = layout.parse_wal(newest.rsplit("/", 1)[1])
    assert first_lfn is not None
    renamed = f"{WAL_DIR}/{layout.wal_name(first_lfn + 5)}"
    disk.put(renamed, disk.peek(newest))
    disk.unlink(newest)
    disk.unlink(CURRENT)
    rewrite_header(disk, renamed, first_lfn=first_lfn + 5)
    with pytest.raises(RefusedToOpen, match=f"but frame {first_lfn} comes next") as refusal:
        Log(disk, settings=SMALL)
    assert (refusal.value.reason, refusal.value.file) == ("wal_missing", renamed)


def test_a_damaged_file_that_cannot_be_put_aside_is_not_touched() -> None:
    disk = SimDisk()
    Log(disk).append(b"1")
    disk.kill()
    faults = FaultFs(disk)
    faults.fail("fsync", errno.EIO)
    before = disk.peek(FIRST_FILE)
    with pytest.raises(RefusedToOpen, match="repair failed") as refusal:
        quarantine(faults, [FIRST_FILE], f"{DATA_DIR}/quarantine", now_ms=NOW)
    assert (refusal.value.reason, refusal.value.file) == ("io_error", FIRST_FILE)
    assert disk.peek(FIRST_FILE) == before
