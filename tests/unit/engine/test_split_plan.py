"""Plans: ranges of about the size asked for, which together hold every seq exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import topics
from topics.embedded import Log
from topics.engine.effects import PAUSE
from topics.engine.reads import split_plan
from topics.engine.reads.split_plan import MIN_TARGET
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.errors import InvalidRequest, TopicNotFound
from topics.testing import FaultFs, ManualClock, SimDisk
from topics.values import PlannedRange, ReadPlan

KIB = 1024
SEGMENT = 10


def opened(fs: SimDisk | FaultFs | None = None) -> Log:
    settings = EngineSettings(cache_bytes=64 * KIB, segment_max_events=SEGMENT)
    return Log(open_engine(fs or SimDisk(), "/data", Opening(settings, ManualClock())))


def append(log: Log, count: int, kib: int = 8) -> None:
    for _ in range(count):
        log.append("t", {"data": "x" * (kib * KIB - 2)}, config={"durability": "fsync"})


def plan(log: Log, from_seq: int = 0, to_seq: int = 1 << 62, **more: Any) -> ReadPlan:  # noqa: ANN401
    return log.plan("t", from_seq=from_seq, to_seq=to_seq, **{"target_bytes": MIN_TARGET} | more)


def bounds(found: ReadPlan) -> list[tuple[int, int]]:
    return [(r.from_seq, r.to_seq) for r in found.ranges]


def test_a_plan_tells_where_and_how_much_to_read() -> None:
    log = opened()
    append(log, 3)
    log.delete("t", before_seq=2)
    found = plan(log)
    state = log.state("t")
    assert found.to_dict() == {
        "topic": "t",
        "epoch": state.epoch,
        "delete_version": state.delete_version,
        "head_seq": 3,
        "evict_floor": 1,
        "ranges": [[1, 3, 2, 16 * KIB]],
        "next_from_seq": 4,
    }


def test_cuts_fall_on_the_edges_of_segments_where_they_can() -> None:
    log = opened()
    append(log, 3 * SEGMENT + 4, kib=4)
    log.checkpoint()
    append(log, 2, kib=4)
    found = plan(log, target_bytes=88 * KIB)
    assert bounds(found) == [(1, 20), (21, 36)]
    assert [(r.records, r.bytes) for r in found.ranges] == [(20, 80 * KIB), (16, 64 * KIB)]


@pytest.mark.parametrize("block", [4, 5, 8192])
def test_a_segment_that_is_too_large_and_the_tail_are_cut_between_records(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(split_plan, "_BLOCK", block)
    log = opened()
    append(log, SEGMENT, kib=16)
    log.checkpoint()
    append(log, 6, kib=32)
    assert bounds(plan(log)) == [(1, 4), (5, 8), (9, 10), (11, 12), (13, 14), (15, 16)]


def test_a_plan_pauses_between_blocks_of_records_and_notices_that_its_topic_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(split_plan, "_BLOCK", 4)
    log = opened()
    append(log, 12)
    op = log._engine.plan("t", from_seq=0, to_seq=12, target_bytes=MIN_TARGET)
    assert [next(op), next(op)] == [PAUSE, PAUSE]
    log.drop("t")
    with pytest.raises(TopicNotFound):
        next(op)


def test_a_record_larger_than_the_target_is_a_range_of_its_own() -> None:
    log = opened()
    append(log, 1, kib=1)
    append(log, 2, kib=200)
    append(log, 1, kib=1)
    assert bounds(plan(log)) == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_the_target_is_clamped() -> None:
    log = opened()
    append(log, 16)
    assert plan(log, target_bytes=1) == plan(log, target_bytes=MIN_TARGET)
    assert len(plan(log, target_bytes=1 << 62).ranges) == 1


def test_a_range_is_cut_at_the_head_and_at_what_was_lost() -> None:
    log = opened()
    log.create("t", durability="fsync", cap_records=5)
    append(log, 8)
    assert bounds(plan(log, 1, 7)) == [(4, 7)]
    assert plan(log, 1, 7).next_from_seq == 8
    assert plan(log).evict_floor == 4
    assert bounds(plan(log, 6, 99)) == [(6, 8)]


def test_an_empty_range_has_no_plan() -> None:
    log = opened()
    append(log, 3)
    assert (plan(log, 4).ranges, plan(log, 4).next_from_seq) == ([], 4)
    assert plan(log, 99).next_from_seq == 99
    log.create("empty")
    assert log.plan("empty", from_seq=0, to_seq=9).to_dict()["ranges"] == []
    assert log.plan("empty", from_seq=0, to_seq=9).next_from_seq == 1


def test_dead_seqs_belong_to_a_range_too() -> None:
    log = opened()
    append(log, 4)
    log.delete("t", before_seq=5)
    assert plan(log).ranges == [PlannedRange(1, 4, 0, 0)]


def test_many_ranges_are_told_in_several_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_plan, "MAX_RANGES", 3)
    log = opened()
    append(log, SEGMENT, kib=32)
    log.checkpoint()
    append(log, SEGMENT, kib=32)
    found, following = [], 1
    while following <= 2 * SEGMENT:
        part = plan(log, following)
        assert 0 < len(part.ranges) <= 3
        found += bounds(part)
        following = part.next_from_seq
    assert found == [(lo, lo + 1) for lo in range(1, 2 * SEGMENT, 2)]


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_cuts_fall_where_they_fall_however_many_are_weighed_at_once(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened()
    for number in range(4 * SEGMENT):
        append(log, 1, kib=1 + 13 * number % 29)
        if number == 3 * SEGMENT:
            log.checkpoint()
    log.delete("t", before_seq=4)
    whole = plan(log)
    assert len(whole.ranges) > 5
    monkeypatch.setattr(split_plan, "_STEP", step)
    assert plan(log) == whole


def test_no_payload_is_read() -> None:
    faults = FaultFs(SimDisk())
    log = opened(faults)
    append(log, 3 * SEGMENT)
    log.checkpoint()
    before = faults.count("pread", "*.data")
    assert len(plan(log).ranges) > 1
    assert faults.count("pread", "*.data") == before


def test_a_log_in_memory_plans_too() -> None:
    log = topics.open()
    append(log, 20)
    assert bounds(plan(log)) == [(1, 8), (9, 16), (17, 20)]


def test_nothing_can_be_planned_by_whoever_is_at_the_end() -> None:
    log = topics.open()
    log.create("t")
    assert (bounds(plan(log, 1, 0)), plan(log, 1, 0).next_from_seq) == ([], 1)
    append(log, 3)
    assert (bounds(plan(log, 4, 3)), plan(log, 4, 3).next_from_seq) == ([], 4)


def test_malformed_calls_are_refused() -> None:
    log = topics.open()
    with pytest.raises(TopicNotFound):
        plan(log)
    append(log, 1)
    with pytest.raises(InvalidRequest):
        plan(log, 5, 3)
    with pytest.raises(InvalidRequest):
        plan(log, -1, 4)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=40),
    checkpoint_at=st.integers(0, 40),
    deleted=st.sets(st.integers(1, 40)),
    window=st.tuples(st.integers(0, 45), st.integers(0, 45)),
)
def test_ranges_follow_each_other_and_count_what_is_live(
    sizes: list[int], checkpoint_at: int, deleted: set[int], window: tuple[int, int]
) -> None:
    log = opened()
    for seq, kib in enumerate(sizes, 1):
        tag = "dead" if seq in deleted else None
        log.append("t", {"data": "x" * (kib * KIB - 2), "tag": tag})
        if seq == checkpoint_at:
            log.checkpoint()
    log.delete("t", match="dead")
    lo, hi = min(window), max(window)
    found = plan(log, lo, hi)
    first, last = max(lo, 1), min(hi, len(sizes))
    live = {s: kib * KIB for s, kib in enumerate(sizes, 1) if s not in deleted}
    covered = [seq for r in found.ranges for seq in range(r.from_seq, r.to_seq + 1)]
    assert covered == list(range(first, last + 1))
    for r in found.ranges:
        inside = [size for seq, size in live.items() if r.from_seq <= seq <= r.to_seq]
        assert (r.records, r.bytes) == (len(inside), sum(inside))
        assert r.bytes <= MIN_TARGET or r.records == 1
    assert found.next_from_seq == max(last + 1, first)
