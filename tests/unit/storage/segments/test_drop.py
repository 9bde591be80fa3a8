"""Removing segments and topics."""

import errno

import pytest
from tests.unit.storage.segments.builders import (
    COLD_DIR,
    DATA_DIR,
    TOPIC,
    all_frames,
    make_store,
    records,
    write_active,
    write_sealed,
)

from topics.storage.segments import drop
from topics.storage.segments.drop import (
    drop_segment,
    drop_unreferenced,
    find_retired,
    remove_topic,
    retire_topics,
)
from topics.storage.segments.store import finish
from topics.testing import FaultFs, SimDisk, stop_at

HOT_DIR = f"{DATA_DIR}/topics/0000000A"
TAGS = ["a", "b", "c"]


def with_cold_twins(disk: SimDisk) -> None:
    for path in disk.paths():
        disk.put(path.replace(DATA_DIR, COLD_DIR, 1), disk.peek(path))


def test_a_dropped_segment_leaves_both_tiers_for_good() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, records(1, 3, tags=TAGS))
    other = write_sealed(store, records(4, 3))
    with_cold_twins(disk)
    all_frames(store, seg)
    assert finish(drop_segment(store, TOPIC, seg.first)) == []
    disk.crash(mode="none", names="none")
    assert {path.rsplit("-", 1)[1].split(".")[0] for path in disk.paths()} == {"0000000000000004"}
    assert len(store.handles) == 0
    assert all_frames(make_store(disk, cold=True), other) == records(4, 3).frames


def test_dropping_what_is_gone_is_no_error() -> None:
    store = make_store(SimDisk(), cold=True)
    assert finish(drop_segment(store, TOPIC, 1)) == []


@pytest.mark.parametrize("file", ["*.data", "*.idx", "*.tag"])
def test_dl09_an_unlink_that_fails_is_reported_and_done_next_time(file: str) -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    store = make_store(fs)
    seg = write_sealed(store, records(1, 3, tags=TAGS))
    fs.fail("unlink", errno.EIO, path=file)
    (error,) = finish(drop_segment(store, TOPIC, seg.first))
    assert error.errno == errno.EIO
    assert len(disk.paths()) == 1
    assert finish(drop_segment(store, TOPIC, seg.first)) == []
    assert disk.paths() == []


@pytest.mark.parametrize("seed", range(5))
def test_dl09_a_crash_between_the_unlinks_leaves_files_a_sweep_removes(seed: int) -> None:
    disk = SimDisk()
    store = make_store(disk)
    seg = write_sealed(store, records(1, 3, tags=TAGS))
    with stop_at("drop.data_unlinked", lambda: disk.crash(seed)) as stop:
        finish(drop_segment(store, TOPIC, seg.first))
    assert stop.reached
    finish(drop_unreferenced(make_store(disk), TOPIC, set()))
    assert disk.paths() == []


def test_a_sweep_spares_what_is_registered_and_what_is_not_ours() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    kept = write_sealed(store, records(1, 3, tags=TAGS))
    write_sealed(store, records(4, 3, tags=TAGS))
    disk.put(f"{HOT_DIR}/notes.txt", b"mine")
    disk.put(f"{HOT_DIR}/seg-0000000000000001.data.tmp", b"half a copy")
    disk.put(f"{COLD_DIR}/topics/0000000A/seg-0000000000000009.data", b"")
    assert finish(drop_unreferenced(store, TOPIC, {kept.first})) == 5
    assert sorted(path.rsplit("/", 1)[1] for path in disk.paths()) == [
        "notes.txt",
        "seg-0000000000000001.data",
        "seg-0000000000000001.idx",
        "seg-0000000000000001.tag",
    ]


def test_sweeping_a_topic_without_a_directory_does_nothing() -> None:
    assert finish(drop_unreferenced(make_store(SimDisk()), TOPIC, set())) == 0


def test_a_retired_topic_can_still_be_read_until_it_is_removed() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    piece = records(1, 3)
    seg = write_sealed(store, piece)
    with_cold_twins(disk)
    all_frames(store, seg)
    finish(retire_topics(store, [TOPIC]))
    assert all(".deleted/" in path for path in disk.paths())
    assert all_frames(store, seg) == piece.frames
    finish(retire_topics(store, [TOPIC]))
    disk.crash(mode="none", names="none")
    after = make_store(disk, cold=True)
    after.retired(TOPIC)
    assert all_frames(after, seg) == piece.frames
    assert finish(remove_topic(after, TOPIC)) == []
    assert finish(remove_topic(after, TOPIC)) == []
    disk.crash(mode="none", names="none")
    assert disk.listdir(f"{DATA_DIR}/topics") == disk.listdir(f"{COLD_DIR}/topics") == []


def test_others_have_a_turn_while_very_many_topics_are_retired() -> None:
    disk = SimDisk()
    store = make_store(disk)
    write_sealed(store, records(1, 3))
    absent = [TOPIC + number for number in range(1, 2 * drop.TOPICS_PER_STEP)]
    assert len(list(retire_topics(store, [*absent, TOPIC]))) == 3
    assert all(".deleted/" in path for path in disk.paths())


def test_no_file_of_a_removed_topic_stays_open() -> None:
    store = make_store(SimDisk())
    seg = write_active(store, records(1, 3))
    all_frames(store, seg)
    assert len(store.handles) > 0
    finish(retire_topics(store, [TOPIC]))
    finish(remove_topic(store, TOPIC))
    assert len(store.handles) == 0, "the disk would not get its space back"


def test_a_topic_that_cannot_be_removed_is_reported_and_removed_later() -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    store = make_store(fs)
    write_sealed(store, records(1, 3))
    finish(retire_topics(store, [TOPIC]))
    fs.fail("unlink", errno.EIO, path="*.idx")
    fs.fail("rmdir", errno.EIO)
    assert len(finish(remove_topic(store, TOPIC))) == 1
    assert len(finish(remove_topic(store, TOPIC))) == 1
    assert finish(remove_topic(store, TOPIC)) == []
    assert disk.listdir(f"{DATA_DIR}/topics") == []


def test_errors_of_directory_syncs_are_reported() -> None:
    fs = FaultFs(SimDisk())
    store = make_store(fs)
    seg = write_sealed(store, records(1, 3))
    fs.fail("sync_dir", errno.EIO)
    assert len(finish(drop_segment(store, TOPIC, seg.first))) == 1


def test_many_files_go_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop, "UNLINKS_PER_STEP", 2)
    disk = SimDisk()
    store = make_store(disk)
    write_sealed(store, records(1, 3, tags=TAGS))
    write_sealed(store, records(4, 3))
    steps = drop_unreferenced(store, TOPIC, [4])
    left = [len(disk.paths()) for _ in steps]
    assert left == [3, 2], "after two of three files, then after all that are not referenced"
    finish(retire_topics(store, [TOPIC]))
    removal = remove_topic(store, TOPIC)
    next(removal)
    assert not disk.paths()
    assert disk.exists(f"{HOT_DIR}.deleted"), "the directory goes with the last step"
    assert finish(removal) == []
    assert not disk.exists(f"{HOT_DIR}.deleted")


def test_a_restart_finds_the_topics_that_were_dropped() -> None:
    disk = SimDisk()
    store = make_store(disk)
    write_sealed(store, records(1, 3))
    finish(retire_topics(store, [TOPIC]))
    disk.put(f"{DATA_DIR}/topics/foreign", b"")
    again = make_store(disk)
    find_retired(again)
    assert again.dropped_topics == {(DATA_DIR, TOPIC)}
