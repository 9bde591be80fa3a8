"""The columns of records that are not in a segment yet."""

from array import array

import pytest

from topics.core.facts import Appended
from topics.core.tail import FRAME_OVERHEAD, NoHistory, Tail


def run(first: int, *sizes: int, ts: int = 10, base: int = 0) -> Appended:
    count = len(sizes)
    return Appended(
        topic_id=1,
        first_seq=first,
        offsets=array("I", range(count)),
        lengths=array("I", [FRAME_OVERHEAD + 3 + size for size in sizes]),
        times=array("Q", [ts] * count),
        name_lengths=array("H", [3] * count),
        flags=array("B", bytes(count)),
        base=base,
    )


def test_records_keep_their_place_and_their_size() -> None:
    tail = Tail(1)
    tail.extend(run(1, 4, 6, base=100))
    tail.extend(run(3, 5, base=900))
    assert list(tail.sizes(1, 3)) == [(1, 4), (2, 6), (3, 5)]
    assert list(tail.locations) == [100, 101, 900]
    assert tail.weigh(2, 9) == (2, 11)
    assert tail.weigh(2, 2) == (1, 6)
    assert tail.weigh(4, 9) == (0, 0)


def test_records_that_are_chosen_by_bits_are_weighed_as_far_as_they_have_slots() -> None:
    tail = Tail(3)
    tail.extend(run(3, 4, 6, 5))
    assert tail.weigh_bits(3, 0b101) == (2, 9)
    assert tail.weigh_bits(1, 0b11011) == (2, 11)
    assert tail.weigh_bits(1, 0b10100) == (2, 9)
    assert tail.weigh_bits(4, 0b1111) == (2, 11)
    assert tail.weigh_bits(9, 1) == (0, 0)
    assert NoHistory().weigh_bits(1, 1) == (0, 0)


def test_a_first_run_may_begin_anywhere_and_later_gaps_hold_empty_slots() -> None:
    tail = Tail(1)
    tail.extend(run(7, 1, ts=20))
    assert (tail.first, tail.end) == (7, 8)
    tail.extend(run(10, 2, ts=30))
    assert (tail.first, tail.end) == (7, 11)
    assert list(tail.times) == [20, 20, 20, 30]
    assert list(tail.lengths)[1:3] == [0, 0]


def test_the_last_slot_before_a_time_is_found_dead_or_alive() -> None:
    tail = Tail(1)
    tail.extend(run(1, 1, 1, ts=10))
    tail.extend(run(3, 1, ts=30))
    assert tail.last_before(10) == 0
    assert tail.last_before(11) == 2
    assert tail.last_before(99) == 3


def test_cutting_the_front_moves_nothing_else() -> None:
    tail = Tail(1)
    tail.extend(run(1, 4, 6, 8))
    tail.drop_front(3)
    assert (tail.first, tail.end, list(tail.sizes(1, 9))) == (3, 4, [(3, 8)])
    tail.drop_front(2)
    assert tail.first == 3
    tail.drop_front(99)
    assert len(tail) == 0


def test_where_there_are_no_segments_nothing_is_in_them() -> None:
    nothing = NoHistory()
    assert nothing.last == nothing.last_before(99) == 0
    assert nothing.weigh(1, 9) == (0, 0)
    assert list(nothing.sizes(1, 9)) == []
    with pytest.raises(KeyError):
        nothing.time_of(1)
