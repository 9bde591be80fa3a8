"""Relocation to the cold tier and its errors."""

import errno
from collections.abc import Generator

import pytest
from tests.unit.storage.segments.builders import (
    COLD_DIR,
    DATA_DIR,
    NOW,
    TOPIC,
    all_frames,
    make_store,
    records,
    write_sealed,
)

from topics.core.facts import TierFlipped
from topics.errors import RefusedToOpen
from topics.storage.checksum import h64
from topics.storage.segments.segment import COLD, HOT, Segment
from topics.storage.segments.store import SegmentStore, finish
from topics.storage.segments.tiering import (
    Moved,
    NotMoved,
    Outcome,
    Relocated,
    candidates,
    check_cold_dir,
    claim_cold_dir,
    has_hot_files,
    relocate,
    remove_hot,
    settled,
)
from topics.testing import FaultFs, SimDisk, WatchFs

PIECE = records(1, 40, tags=["a", None] * 20)
STEM = "topics/0000000A/seg-0000000000000001"
HOT_STEM = f"{DATA_DIR}/{STEM}"
COLD_STEM = f"{COLD_DIR}/{STEM}"
STORE_ID = bytes(range(16))


def moved(
    store: SegmentStore,
    seg: Segment,
    *,
    logged: bool = True,
    facts: list[TierFlipped] | None = None,
    watch: WatchFs | None = None,
) -> Outcome:
    """Relocate, answering the question whether the flip is durable with `logged`."""
    work: Generator[Relocated | None, bool | None, Outcome]
    work = relocate(store, TOPIC, seg, now_ms=NOW)
    try:
        step = next(work)
        while True:
            answer = None
            if isinstance(step, Relocated):
                answer = logged
                if facts is not None:
                    facts.append(step.fact)
                if watch is not None and logged:
                    watch.tier_flip_durable(f"{HOT_STEM}.data")
            step = work.send(answer)
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome


def files(disk: SimDisk, root: str) -> list[str]:
    return [path.rsplit(".", 1)[1] for path in disk.paths() if path.startswith(root)]


def test_a_relocated_segment_reads_the_same_and_lies_only_in_the_cold_tier() -> None:
    disk = SimDisk()
    watch = WatchFs(disk, data_dir=DATA_DIR, cold_dir=COLD_DIR)
    store = make_store(watch, cold=True)
    seg = write_sealed(store, PIECE)
    data, idx = disk.peek(f"{HOT_STEM}.data"), disk.peek(f"{HOT_STEM}.idx")
    facts: list[TierFlipped] = []
    outcome = moved(store, seg, facts=facts, watch=watch)
    cold = seg.in_tier(COLD)
    assert outcome == Moved(cold, hot_left=False)
    assert facts == [
        TierFlipped(TOPIC, NOW, 1, COLD, seg.data_len, seg.idx_len, h64(data), h64(idx))
    ]
    disk.crash(mode="none", names="none")
    watch.check()
    assert files(disk, DATA_DIR) == []
    assert files(disk, COLD_DIR) == ["data", "idx", "tag"]
    after = make_store(disk, cold=True)
    assert all_frames(after, cold) == PIECE.frames
    assert list(after.tags(TOPIC, cold)) == ["a"]
    assert after.cold_reads > 0
    assert after.tags_rebuilt == 0


def test_reads_go_on_across_a_move() -> None:
    store = make_store(SimDisk(), cold=True)
    seg = write_sealed(store, PIECE)
    before = all_frames(store, seg)
    moved(store, seg)
    assert all_frames(store, seg) == before


def test_a_segment_is_copied_in_chunks_with_a_pause_after_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("topics.storage.segments.tiering.CHUNK", 500)
    store = make_store(SimDisk(), cold=True)
    seg = write_sealed(store, PIECE)
    steps = 0
    for step in relocate(store, TOPIC, seg, now_ms=NOW):
        steps += 1
        if isinstance(step, Relocated):
            break
    assert steps > 3 * seg.data_len // 500


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC, errno.ESTALE])
@pytest.mark.parametrize("op", ["open", "pwrite", "fsync", "rename", "sync_dir", "mkdirs"])
def test_tr01_a_failed_copy_leaves_hot_in_place_and_nothing_cold(op: str, fault: int) -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    store = make_store(fs, cold=True)
    seg = write_sealed(store, PIECE)
    before = disk.contents()
    fs.fail(op, fault, path=f"{COLD_DIR}/*")  # type: ignore[arg-type]
    outcome = moved(store, seg)
    assert isinstance(outcome, NotMoved)
    assert isinstance(outcome.reason, OSError)
    assert disk.contents() == before
    assert all_frames(store, seg) == PIECE.frames
    assert isinstance(moved(store, seg), Moved)


def test_tr03_a_copy_that_differs_is_caught_before_the_flip() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, PIECE)
    before = disk.contents()
    work = relocate(store, TOPIC, seg, now_ms=NOW)
    for step in work:
        assert not isinstance(step, Relocated)
        if disk.exists(f"{COLD_STEM}.idx"):
            disk.flip(f"{COLD_STEM}.data", 100)
            break
    assert finish(work) == NotMoved("the cold copy differs")
    assert disk.contents() == before


def test_a_flip_that_is_not_logged_keeps_both_copies_equal() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, PIECE)
    assert isinstance(moved(store, seg, logged=False), NotMoved)
    for part in "data", "idx":
        assert disk.peek(f"{HOT_STEM}.{part}") == disk.peek(f"{COLD_STEM}.{part}")
    assert settled(store, TOPIC, seg) == seg
    assert isinstance(moved(store, seg), Moved)


def test_tr04_of_two_copies_the_hot_one_is_read_and_then_removed() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, PIECE)
    moved(store, seg, logged=False)
    cold = seg.in_tier(COLD)
    assert all_frames(store, cold) == PIECE.frames
    assert store.cold_reads == 0
    assert settled(store, TOPIC, cold) == cold
    assert has_hot_files(store, TOPIC, cold)
    assert finish(remove_hot(store, TOPIC, cold))
    assert not has_hot_files(store, TOPIC, cold)
    assert all_frames(store, cold) == PIECE.frames
    assert store.cold_reads > 0


def test_tr05_a_torn_cold_copy_is_not_read_and_written_over() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, PIECE)
    disk.put(f"{COLD_STEM}.data", b"torn")
    disk.put(f"{COLD_STEM}.idx", b"")
    assert all_frames(store, seg) == PIECE.frames
    assert settled(store, TOPIC, seg.in_tier(COLD)).tier == HOT
    assert isinstance(moved(store, seg), Moved)
    assert all_frames(make_store(disk, cold=True), seg) == PIECE.frames


def test_tr06_a_pointer_to_a_missing_cold_copy_is_put_right() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, PIECE)
    cold = seg.in_tier(COLD)
    assert all_frames(store, cold) == PIECE.frames
    assert settled(store, TOPIC, cold) == seg
    assert not finish(remove_hot(store, TOPIC, cold))
    assert all_frames(store, cold) == PIECE.frames


@pytest.mark.parametrize("file", ["*.data", "*.idx", "*.tag"])
def test_tr08_a_hot_file_that_cannot_be_removed_is_removed_later(file: str) -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    store = make_store(fs, cold=True)
    seg = write_sealed(store, PIECE)
    fs.fail("unlink", errno.EIO, path=f"{DATA_DIR}/{file}")
    outcome = moved(store, seg)
    assert isinstance(outcome, Moved)
    assert outcome.hot_left
    assert all_frames(store, outcome.segment) == PIECE.frames
    assert finish(remove_hot(store, TOPIC, outcome.segment))
    assert files(disk, DATA_DIR) == []


def test_a_move_needs_a_complete_hot_copy_and_never_harms_the_cold_one() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, PIECE)
    moved(store, seg)
    before = disk.contents()
    assert moved(store, seg) == NotMoved("there is no complete hot copy")
    assert disk.contents() == before


def test_an_unreadable_hot_copy_does_not_cost_an_older_cold_one() -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    store = make_store(fs, cold=True)
    seg = write_sealed(store, PIECE)
    moved(store, seg, logged=False)
    before = disk.contents()
    fs.fail("pread", errno.EIO, path=f"{HOT_STEM}.data")
    assert isinstance(moved(store, seg), NotMoved)
    assert disk.contents() == before


def test_a_bad_idx_is_repaired_before_it_is_copied() -> None:
    disk = SimDisk()
    seg = write_sealed(make_store(disk, cold=True), PIECE)
    disk.flip(f"{HOT_STEM}.idx", 0)
    store = make_store(disk, cold=True)
    assert isinstance(moved(store, seg), Moved)
    fresh = make_store(disk, cold=True)
    fresh.idx(TOPIC, seg)
    assert fresh.repairs == {}


def test_rot_in_one_tier_is_served_from_the_other() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, PIECE)
    moved(store, seg, logged=False)
    disk.flip(f"{HOT_STEM}.data", 60)
    assert all_frames(store, seg) == PIECE.frames
    assert store.rotten_frames == 0


def test_files_past_their_registered_length_are_copied_without_the_rest() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, PIECE)
    disk.put(f"{HOT_STEM}.data", disk.peek(f"{HOT_STEM}.data") + b"unrecorded")
    assert isinstance(moved(store, seg), Moved)
    assert len(disk.peek(f"{COLD_STEM}.data")) == seg.data_len


# Which segments move


def segment(first: int, *, tier: int = HOT) -> Segment:
    return Segment(first, first + 9, 80, 20, 0, tier, 0, 0)


SEGMENTS = [segment(first) for first in range(1, 61, 10)]


@pytest.mark.parametrize(
    ("retain_segments", "retain_bytes", "expected"),
    [(4, 0, 2), (0, 300, 3), (4, 300, 3), (2, 300, 4), (0, 0, 0), (9, 0, 0), (0, 1, 6)],
)
def test_the_stricter_limit_decides_and_zero_is_none(
    retain_segments: int, retain_bytes: int, expected: int
) -> None:
    chosen = candidates(SEGMENTS, retain_segments=retain_segments, retain_bytes=retain_bytes)
    assert chosen == SEGMENTS[:expected]


def test_cold_segments_are_no_candidates() -> None:
    segments = [segment(1, tier=COLD), *SEGMENTS[1:]]
    assert candidates(segments, retain_segments=4, retain_bytes=0) == [SEGMENTS[1]]


# The marker


def test_a_claimed_cold_directory_is_accepted_by_its_store_alone() -> None:
    disk = SimDisk()
    claim_cold_dir(disk, COLD_DIR, STORE_ID)
    disk.crash(mode="none", names="none")
    check_cold_dir(disk, COLD_DIR, STORE_ID)
    with pytest.raises(RefusedToOpen, match="another store") as refusal:
        check_cold_dir(disk, COLD_DIR, bytes(16))
    assert refusal.value.reason == "cold_missing"


def test_tr09_a_cold_directory_without_a_marker_is_refused() -> None:
    with pytest.raises(RefusedToOpen, match="no marker") as refusal:
        check_cold_dir(SimDisk(), COLD_DIR, STORE_ID)
    assert refusal.value.reason == "cold_missing"
