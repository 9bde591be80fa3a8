"""One topic in memory: what lives, what is lost, what the ledger says."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from unittest import mock

import pytest

from topics.core import deleting
from topics.core import topic as topic_module
from topics.core.config import parse
from topics.core.deleting import apply_deleted
from topics.core.facts import Appended, Deleted, Evicted, LeaseChanged, Match, SeqSkipped
from topics.core.live import AnnouncedLoss
from topics.core.seqset import CHUNK, SeqSet
from topics.core.tail import FRAME_OVERHEAD, NoHistory
from topics.core.topic import Topic
from topics.errors import RecordTooLarge, TopicFull


def topic(**config: object) -> Topic:
    return Topic(1, "t", 1, parse(config), max_keys=10)


def put(
    target: Topic, count: int = 1, *, size: int = 1, ts: int = 0, tag: str | None = None
) -> None:
    name = len(tag or "")
    target.apply_appended(
        Appended(
            topic_id=1,
            first_seq=target.head + 1,
            offsets=array("I", bytes(4 * count)),
            lengths=array("I", [FRAME_OVERHEAD + size + name] * count),
            times=array("Q", [ts] * count),
            name_lengths=array("H", [name] * count),
            flags=array("B", bytes(count)),
            tags=None if tag is None else [tag] * count,
        )
    )
    check(target)


def check(target: Topic) -> None:
    assert 1 <= target.evict_floor <= target.earliest <= target.head + 1
    assert target.head == target.count + target.ledger.gone
    live = [seq for seq in range(1, target.head + 1) if target.is_live(seq)]
    assert len(live) == target.count
    assert target.earliest == min(live, default=target.head + 1)
    for seq in range(max(0, target.exact_from - 1), target.head + 2):
        assert target.live_after(seq) == len(live) - bisect_right(live, seq)


def delete(target: Topic, **selector: object) -> int:
    bound = target.head + 1
    removed = apply_deleted(target, Deleted(1, 0, bound=bound, **selector), generation=3)  # type: ignore[arg-type]
    check(target)
    return removed


def skip(target: Topic, hi: int, kind: int) -> None:
    target.apply_skipped(SeqSkipped(1, 0, target.head + 1, hi, kind))
    check(target)


class Segments(NoHistory):
    """Records `1..last` of one byte each; those in `marked` have their delete byte set."""

    def __init__(self, last: int, marked: set[int]) -> None:
        self.last = last
        self.marked = marked

    def sizes(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        return iter([(seq, 1) for seq in range(lo, hi + 1) if seq not in self.marked])

    def weigh(self, lo: int, hi: int) -> tuple[int, int]:
        live = [nbytes for _, nbytes in self.sizes(lo, min(hi, self.last))]
        return len(live), sum(live)

    def weigh_bits(self, lo: int, bits: int) -> tuple[int, int]:
        live = [seq for seq, _ in self.sizes(lo, self.last) if bits >> (seq - lo) & 1]
        return len(live), len(live)


def test_the_cap_counts_live_records_only() -> None:
    t = topic(cap_records=3)
    t.tags.loaded = True
    put(t, 2, tag="x")
    put(t, 2)
    assert (t.earliest, t.cap_hi) == (2, 1)
    assert delete(t, match=Match("x")) == 1
    put(t)
    assert (t.earliest, t.cap_hi, t.count) == (3, 1, 3)


def test_both_caps_keep_the_longest_suffix_within_both() -> None:
    t = topic(cap_records=4, cap_bytes=10)
    put(t, 3, size=4)
    assert (t.count, t.bytes, t.cap_hi) == (2, 8, 1)
    put(t, 6, size=1)
    assert (t.count, t.bytes, t.cap_hi) == (4, 4, 5)


def test_a_record_above_the_byte_cap_is_lost_at_once() -> None:
    t = topic(cap_bytes=5)
    put(t, size=9)
    assert (t.count, t.evict_floor, t.ledger.lost_cap) == (0, 2, 1)


def test_a_reject_topic_refuses_instead_of_evicting() -> None:
    t = topic(cap_records=2, cap_bytes=10, discard="reject")
    put(t, 2, size=2)
    assert isinstance(t.refusal_of(1, 1), TopicFull)
    assert isinstance(t.refusal_of(3, 1), RecordTooLarge)
    assert isinstance(t.refusal_of(1, 11), RecordTooLarge)
    t.enforce_caps()
    assert t.count == 2


def test_only_live_records_raise_the_floor_when_they_expire() -> None:
    t = topic(ttl_ms=10)
    put(t, 2, ts=0)
    put(t, 1, ts=50)
    delete(t, before=3)
    assert t.expired_through(20) == 0
    assert t.expired_through(60) == 0
    assert t.expired_through(61) == 3


def test_floors_only_rise_and_the_gap_names_its_reason() -> None:
    t = topic()
    put(t, 9)
    t.apply_evicted(Evicted(1, 0, cap_hi=2, earliest=0, ttl_hi=4))
    check(t)
    t.apply_evicted(Evicted(1, 0, cap_hi=1, earliest=0, ttl_hi=1))
    check(t)
    assert t.gap_below(0) == AnnouncedLoss(1, 4, "mixed")
    assert t.gap_below(2) == AnnouncedLoss(3, 4, "ttl")
    assert t.gap_below(4) is None
    assert (t.ledger.lost_ttl, t.ledger.lost_cap) == (4, 0)


def test_a_delete_never_moves_the_floor_and_a_repeat_removes_nothing() -> None:
    t = topic()
    put(t, 5)
    assert delete(t, before=4) == 3
    assert delete(t, before=4) == 0
    assert (t.evict_floor, t.earliest, t.delete_below) == (1, 4, 4)


def test_a_delete_by_position_takes_a_step_for_each_chunk_and_not_for_each_deleted_run() -> None:
    t = topic()
    put(t, 8 * CHUNK)
    delete(t, seqs=tuple(range(2, 8 * CHUNK, 2)))
    assert len(t.deleted) == 4 * CHUNK - 1
    spied = mock.patch.object(Topic, "weigh_bits", autospec=True, side_effect=Topic.weigh_bits)
    added = mock.patch.object(SeqSet, "add", autospec=True, side_effect=SeqSet.add)
    with spied as weighed, added as runs:
        assert delete(t, before=4 * CHUNK) == 2 * CHUNK
    assert weighed.call_count <= 5
    assert runs.call_count == 2
    assert next(iter(t.deleted)) == (1, 4 * CHUNK)


def test_a_delete_reaches_only_below_its_bound() -> None:
    t = topic()
    put(t, 3)
    fact = Deleted(1, 0, before=99, bound=4)
    put(t, 2)
    assert apply_deleted(t, fact, generation=1) == 3
    assert t.count == 2


def test_delete_versions_count_up_and_begin_anew_in_each_generation() -> None:
    t = topic()
    put(t, 4)
    delete(t, seqs=(1,))
    delete(t, seqs=(2, 99))
    assert t.delete_version == (3 << 32) + 2
    apply_deleted(t, Deleted(1, 0, seqs=(3,)), generation=5)
    assert t.delete_version == (5 << 32) + 1


def test_holes_take_seqs_and_only_loss_is_announced() -> None:
    t = topic()
    put(t, 2)
    skip(t, 4, SeqSkipped.UNASSIGNED)
    skip(t, 6, SeqSkipped.POWER_LOSS)
    skip(t, 7, SeqSkipped.SOURCE_TRIM)
    put(t, 1)
    assert t.head == 8
    assert t.gap_at(3) is None
    assert t.gap_at(5) == AnnouncedLoss(5, 6, "cap")
    assert t.gap_at(6) == AnnouncedLoss(6, 6, "cap")
    assert t.gap_at(7) == AnnouncedLoss(7, 7, "source_trim")
    assert t.next_announced(1) == 5
    assert list(t.extents(1, 8)) == [(1, 2), (8, 8)]
    assert (t.ledger.skipped, t.ledger.lost_crash, t.ledger.source_trim) == (2, 2, 1)


def test_a_hole_that_is_already_known_changes_nothing() -> None:
    t = topic()
    put(t, 3)
    skip(t, 3, SeqSkipped.POWER_LOSS)
    t.apply_skipped(SeqSkipped(1, 0, 1, 5, SeqSkipped.POWER_LOSS))
    check(t)
    assert (t.head, t.ledger.lost_crash) == (5, 2)


def test_a_floor_that_passes_a_run_absorbs_it() -> None:
    t = topic(cap_records=1)
    put(t, 1)
    skip(t, 3, SeqSkipped.POWER_LOSS)
    put(t, 2)
    assert (t.cap_hi, len(t.runs)) == (4, 0)
    assert t.gap_below(0) == AnnouncedLoss(1, 4, "cap")


def test_a_start_by_time_is_never_past_a_record_that_is_new_enough() -> None:
    t = topic()
    for ts in (10, 20, 30):
        put(t, 2, ts=ts)
    assert t.start_of(20) == 2
    assert t.start_of(5) == 0
    assert t.start_of(99) == 6
    t.apply_evicted(Evicted(1, 0, cap_hi=3, earliest=0, ttl_hi=0))
    assert t.start_of(21) == 4
    assert t.start_of(20) == 0
    assert t.start_of(5) == 0


def test_a_wiped_topic_goes_on_above_its_seqs_and_has_nothing_below() -> None:
    t = topic(durability="ephemeral")
    put(t, 3)
    t.ledger.lost_crash, t.count = 9, 0
    t.wipe(9)
    check(t)
    assert t.gap_below(0) == AnnouncedLoss(1, 9, "cap")
    put(t, 1)
    assert t.earliest == 10


def test_old_deletes_are_forgotten_only_where_nothing_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_module, "MAX_DELETED_RUNS", 1)
    t = topic()
    put(t, 9)
    delete(t, seqs=(1, 3, 5, 7))
    t.apply_evicted(Evicted(1, 0, cap_hi=4, earliest=0, ttl_hi=0))
    t.unflipped.discard_through(9)
    assert t.exact_from_now_on() == 6
    t.forget_deleted_below(t.exact_from_now_on())
    assert (t.exact_from, list(t.deleted)) == (6, [(7, 7)])
    assert [seq for seq in range(1, 10) if t.is_live(seq)] == [6, 8, 9]
    check(t)


def test_a_byte_cap_that_cuts_behind_whole_chunks_counts_every_record() -> None:
    t = topic(cap_bytes=4 * CHUNK)
    put(t, 3 * CHUNK)
    delete(t, seqs=(2, CHUNK + 7))
    put(t, 2, size=2 * CHUNK)
    assert (t.bytes, t.count) == (4 * CHUNK, 2), "room for these and no other"
    put(t, 3 * CHUNK, size=1)
    assert (t.bytes, t.count) == (3 * CHUNK, 3 * CHUNK)
    assert t.weigh(1, t.head) == (t.count, t.bytes)


def test_what_goes_is_weighed_by_what_is_left_if_that_is_less() -> None:
    t = topic()
    put(t, 2 * CHUNK)
    put(t, CHUNK, size=2)
    with mock.patch.object(Topic, "weigh", return_value=(3, 6)) as asked:
        assert delete(t, before=3 * CHUNK - 2) == 3 * CHUNK - 3
    asked.assert_called_once_with(3 * CHUNK - 2, 3 * CHUNK)
    assert (t.count, t.bytes) == (3, 6)


def test_what_is_weighed_beforehand_is_all_that_a_loss_or_a_delete_has_to_know() -> None:
    t = topic()
    put(t, 4 * CHUNK)
    through = 3 * CHUNK + 5
    assert len(list(t.weigh_front(through))) == 3
    assert not list(t.weigh_front(through))
    assert t.rest_of(through) == 3 * CHUNK
    t.history = mock.Mock(last=t.rest_of(through) - 1)  # which nobody may ask
    t.apply_evicted(Evicted(1, 0, cap_hi=through, earliest=0, ttl_hi=0))
    check(t)
    assert (t.count, t.bytes, t.earliest) == (CHUNK - 5, CHUNK - 5, through + 1)
    assert t.rest_of(through) == through + 1


def test_the_last_live_record_below_deletes_and_holes_is_found() -> None:
    t = topic()
    put(t, 4)
    skip(t, 6, SeqSkipped.UNASSIGNED)
    put(t, 3)
    delete(t, seqs=(1, 3, 4, 8))
    found = [t.last_live_at_or_below(seq) for seq in range(10)]
    assert found == [0, 0, 2, 2, 2, 2, 2, 7, 7, 9]
    assert t.hole_bits(0, CHUNK - 1) == 0b1100000
    assert t.hole_bits(CHUNK, 2 * CHUNK - 1) == 0


def test_holes_below_a_floor_are_nobodys_concern() -> None:
    t = topic()
    put(t, 2)
    t.apply_evicted(Evicted(1, 0, cap_hi=9, earliest=0, ttl_hi=0))
    t.apply_skipped(SeqSkipped(1, 0, 3, 5, SeqSkipped.UNASSIGNED))
    assert len(t.runs) == 0
    assert t.ledger.skipped == 3


def test_tags_of_which_all_is_deleted_are_forgotten_in_replay_too() -> None:
    t = topic()
    t.tags.loaded = True
    for tag in ("xa", "xb", "xc"):
        put(t, 2, tag=tag)
    put(t, 1, tag="y")
    with mock.patch.object(deleting, "ALL_TAGS", 1):
        assert delete(t, match=Match("x", is_prefix=True)) == 6
    assert t.tags.some(Match("", is_prefix=True), None, 9) == ["y"]


def test_what_is_known_of_the_weight_of_many_records_follows_deletes_and_losses() -> None:
    t = topic()
    put(t, 5 * CHUNK, size=2)
    skip(t, 5 * CHUNK + 3, SeqSkipped.POWER_LOSS)
    put(t, CHUNK, size=3)
    every = t.head + 1
    assert t.weigh(1, every) == (t.count, t.bytes) == (6 * CHUNK, 13 * CHUNK)
    known = len(t.weights)
    delete(t, seqs=(5, CHUNK, CHUNK + 1, 3 * CHUNK))
    delete(t, seqs=tuple(range(2 * CHUNK - 3, 2 * CHUNK + 3)))
    assert len(t.weights) == known
    assert t.weigh(1, every) == (t.count, t.bytes)
    t.apply_evicted(Evicted(1, 0, cap_hi=CHUNK + 9, earliest=0, ttl_hi=0))
    assert t.weigh(1, every) == (t.count, t.bytes)
    delete(t, before=5 * CHUNK + 9)
    assert list(t.deleted.between(3 * CHUNK, every)) == [
        (3 * CHUNK, 5 * CHUNK),
        (5 * CHUNK + 4, 5 * CHUNK + 8),
    ]
    assert t.weigh(1, every) == (t.count, t.bytes) == (CHUNK - 5, 3 * CHUNK - 15)


def test_only_deletes_whose_bytes_are_on_disk_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_module, "MAX_DELETED_RUNS", 1)
    t = topic()
    put(t, 9)
    delete(t, seqs=(1, 3, 5))
    floor = t.exact_from_now_on()
    t.history, t.unflipped = Segments(9, {1, 3, 5}), SeqSet()
    delete(t, seqs=(2, 7))  # during the checkpoint
    t.forget_deleted_below(floor)
    assert (floor, list(t.deleted)) == (4, [(2, 2), (5, 5), (7, 7)])
    check(t)
    t.forget_deleted_below(2)
    assert t.exact_from == 4, "what is forgotten stays so"


def test_deletes_of_records_that_no_file_holds_are_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_module, "MAX_DELETED_RUNS", 1)
    t = topic(durability="ephemeral")
    put(t, 9)
    delete(t, seqs=(2, 4, 6))
    assert t.exact_from_now_on() == 1
    delete(t, before=4)
    delete(t, seqs=(8,))
    assert (t.earliest, t.exact_from_now_on()) == (5, 5)
    t.apply_config(parse({}))
    put(t, 1)
    assert t.exact_from_now_on() == 5
    t.forget_deleted_below(5)
    check(t)


def test_a_floor_that_was_restored_takes_records_that_replay_below_it() -> None:
    t = topic()
    t.cap_hi = 2
    put(t, 3)
    assert (t.count, t.earliest, t.ledger.lost_cap) == (1, 3, 2)


def test_jobs_that_are_lost_or_deleted_are_held_by_nobody() -> None:
    t = topic(type="queue", cap_records=4)
    put(t, 4)
    assert t.leases is not None
    for seq in (1, 2):
        t.leases.apply(LeaseChanged(1, seq, 0, LeaseChanged.CLAIMED, seq, 500, 1, "worker"))
    put(t, 1)
    assert set(t.leases.leased) == {2}
    delete(t, before=5)
    assert not t.leases.leased


def test_a_queue_that_is_wiped_or_made_from_a_log_begins_without_leases() -> None:
    t = topic(durability="ephemeral")
    assert not t.config.is_queue
    t.apply_config(parse({"durability": "ephemeral", "type": "queue"}))
    assert t.leases is not None
    put(t, 1)
    t.leases.apply(LeaseChanged(1, 1, 0, LeaseChanged.CLAIMED, 1, 500, 1, "worker"))
    t.wipe(5)
    assert not t.leases.leased


def test_a_delete_by_prefix_walks_over_its_tags_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleting, "ALL_TAGS", 1)
    t = topic()
    t.tags.loaded = True
    for tag in ("a1", "a2", "b1"):
        put(t, tag=tag)
    assert delete(t, match=Match("a", is_prefix=True)) == 2
    assert t.count == 1


def test_a_tag_chooses_nothing_that_was_skipped() -> None:
    t = topic()
    put(t, tag="a")
    skip(t, 3, SeqSkipped.POWER_LOSS)
    put(t, tag="a")
    assert t.live_bits(0, 0b11110, 10) == 0b10010


def test_seqs_skipped_below_the_floor_are_no_run_of_their_own() -> None:
    t = topic()
    t.apply_evicted(Evicted(1, 0, cap_hi=5, earliest=0, ttl_hi=0))
    t.apply_skipped(SeqSkipped(1, 0, 1, 3, SeqSkipped.POWER_LOSS))
    assert (t.head, len(t.runs)) == (3, 0)
