"""Live records with few dead ones between them are fetched together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.test_topic import put, skip, topic

from topics.core.deleting import apply_deleted
from topics.core.facts import Deleted, SeqSkipped
from topics.core.topic import Topic
from topics.engine.reads.ranges import LONGEST, Fetched, LiveRange, next_range, without_dead


def delete(target: Topic, *seqs: int) -> None:
    apply_deleted(target, Deleted(1, 0, seqs=seqs), generation=1)


def stretches(target: Topic, lo: int, hi: int, most: int) -> list[list[int]]:
    """The live seqs of one stretch after the other."""
    found, at = [], lo
    while (stretch := next_range(target, at, hi, most)) is not None:
        lo, end, dead = stretch
        found.append([seq for seq in range(lo, end + 1) if not dead >> seq - lo & 1])
        at = end + 1
    return found


@given(
    gone=st.lists(st.tuples(st.integers(1, 300), st.sampled_from([1, 2, 31, 32, 40]))),
    hole=st.integers(0, 40),
    lo=st.integers(1, 350),
    hi=st.integers(1, 350),
    most=st.integers(1, 120),
)
def test_ranges_hold_every_live_record_once_and_no_more_than_were_asked_for(
    gone: list[tuple[int, int]], hole: int, lo: int, hi: int, most: int
) -> None:
    t = topic()
    put(t, 200)
    if hole:
        skip(t, 200 + hole, SeqSkipped.UNASSIGNED)
    put(t, 100)
    for first, count in gone:
        delete(t, *range(first, first + count))
    found = stretches(t, lo, hi, most)
    assert [seq for seqs in found for seq in seqs] == [s for s in range(lo, hi + 1) if t.is_live(s)]
    assert all(0 < len(seqs) <= most for seqs in found)


def test_single_dead_records_do_not_end_a_stretch_and_many_in_a_row_do() -> None:
    t = topic()
    put(t, 200)
    delete(t, *range(2, 50, 2), *range(100, 140))
    assert [(seqs[0], seqs[-1]) for seqs in stretches(t, 1, 200, 500)] == [(1, 99), (140, 200)]


def test_a_stretch_that_has_dead_records_in_it_is_not_very_long() -> None:
    t = topic()
    put(t, 3 * LONGEST)
    assert next_range(t, 1, t.head, t.head) == LiveRange(1, t.head)
    delete(t, 5, 3 * LONGEST - 1)
    assert next_range(t, 1, t.head, t.head) == LiveRange(1, LONGEST, 1 << 4)
    assert next_range(t, 6, t.head, t.head) == LiveRange(6, 3 * LONGEST - 2)


def test_records_that_a_stretch_knows_as_dead_are_left_out_of_its_piece() -> None:
    piece = Fetched(range(5, 9), [1, 2, 3, 4], [b"a", b"b", b"c", b"d"], [0, None, 1, 2], 8, 5)
    assert without_dead(piece, LiveRange(5, 8)) is piece
    left = without_dead(piece, LiveRange(4, 9, 0b100110))
    assert left == Fetched([7, 8], [3, 4], [b"c", b"d"], [1, 2], 8, 5)
