"""A set of seqs in chunks behaves like a set of integers, and large changes cost few steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.runs import runs_of
from topics.core.seqset import CHUNK, FEW_CHUNKS, SeqSet, runs_of_bits

EDGES = [chunk * CHUNK for chunk in range(1, 5)]
seqs = st.one_of(
    st.integers(1, 5 * CHUNK),
    st.tuples(st.sampled_from(EDGES), st.integers(-2, 2)).map(sum),
)
spans = st.tuples(seqs, st.one_of(st.integers(0, 4), st.integers(0, 3 * CHUNK))).map(
    lambda span: (span[0], span[0] + span[1])
)
many = st.lists(spans, max_size=8)
scattered = st.sets(seqs, max_size=40)


def members(found: SeqSet) -> set[int]:
    return {seq for lo, hi in found for seq in range(lo, hi + 1)}


def of(added: list[tuple[int, int]], single: set[int]) -> tuple[SeqSet, set[int]]:
    """A set made both ways, run by run and many chunks at once, and the same as integers."""
    made = SeqSet(added)
    chunks: dict[int, int] = {}
    for seq in single:
        chunks[seq // CHUNK] = chunks.get(seq // CHUNK, 0) | 1 << seq % CHUNK
    made.update(chunks)
    return made, {seq for lo, hi in added for seq in range(lo, hi + 1)} | single


@given(many, scattered)
def test_a_set_holds_what_was_added_in_as_few_runs_as_possible(
    added: list[tuple[int, int]], single: set[int]
) -> None:
    made, expected = of(added, single)
    assert list(made) == list(runs_of(sorted(expected)))
    assert len(made) == len(list(made))
    assert bool(made) == bool(expected)


@given(many, scattered, seqs, seqs)
def test_questions_are_answered_like_those_about_a_set_of_integers(
    added: list[tuple[int, int]], single: set[int], lo: int, hi: int
) -> None:
    made, inside = of(added, single)
    assert (lo in made) == (lo in inside)
    assert made.count_between(lo, hi) == len([seq for seq in inside if lo <= seq <= hi])
    found = [seq for a, b in made.between(lo, hi) for seq in range(a, b + 1)]
    assert found == [seq for seq in range(lo, hi + 1) if seq in inside]
    gaps = [seq for a, b in made.gaps_between(lo, hi) for seq in range(a, b + 1)]
    assert gaps == [seq for seq in range(lo, hi + 1) if seq not in inside]
    lo, hi = min(lo, hi), max(lo, hi)
    assert made.has_none_of(lo, hi) == inside.isdisjoint(range(lo, hi + 1))
    assert made.next_start(lo, 99_999) == min((s for s in inside if s >= lo), default=99_999)
    run = next((run for run in made if run[0] <= lo <= run[1]), None)
    assert made.end_of(lo) == (run[1] if run else lo - 1)
    assert made.start_of(lo) == (run[0] if run else lo + 1)
    bits = made.bits(lo, hi)
    assert [seq for seq in range(lo, hi + 1) if bits >> (seq - lo) & 1] == sorted(
        inside & set(range(lo, hi + 1))
    )
    touched = {seq // CHUNK for seq in inside}
    first, last = lo // CHUNK, hi // CHUNK
    assert list(made.chunks_between(first, last)) == sorted(
        chunk for chunk in touched if first <= chunk <= last
    )


@given(many, scattered, seqs)
def test_discarding_forgets_exactly_what_lies_at_or_below(
    added: list[tuple[int, int]], single: set[int], through: int
) -> None:
    made, inside = of(added, single)
    made.discard_through(through)
    assert members(made) == {seq for seq in inside if seq > through}
    assert list(made) == list(runs_of(sorted(members(made))))


@given(many, scattered, st.integers(0, 12))
def test_the_newest_runs_begin_behind_the_last_of_the_others(
    added: list[tuple[int, int]], single: set[int], most: int
) -> None:
    made, _ = of(added, single)
    runs = list(made)
    older = runs[: len(runs) - most] if len(runs) > most else []
    assert made.start_of_newest(most) == (older[-1][1] + 1 if older else 1)


@given(many, scattered, seqs, st.sets(seqs, max_size=20))
def test_what_lies_below_a_seq_is_forgotten_but_for_what_is_to_be_kept(
    added: list[tuple[int, int]], single: set[int], floor: int, keep: set[int]
) -> None:
    made, inside = of(added, single)
    kept = inside & keep
    assert members(made.below(floor)) == {seq for seq in inside if seq < floor}
    made.forget_below(floor, keep=SeqSet((seq, seq) for seq in kept))
    assert members(made) == {seq for seq in inside if seq >= floor or seq in kept}
    assert list(made) == list(runs_of(sorted(members(made))))


@given(many, scattered, many, scattered)
def test_two_sets_become_one(
    added: list[tuple[int, int]],
    single: set[int],
    more: list[tuple[int, int]],
    others: set[int],
) -> None:
    made, inside = of(added, single)
    other, outside = of(more, others)
    made.merge(other)
    assert list(made) == list(runs_of(sorted(inside | outside)))
    assert members(other) == outside
    made.merge(SeqSet())
    assert list(made) == list(runs_of(sorted(inside | outside)))


@given(many, scattered, spans)
def test_a_copy_does_not_change_with_the_original(
    added: list[tuple[int, int]], single: set[int], more: tuple[int, int]
) -> None:
    made, inside = of(added, single)
    copy = made.copy()
    made.add(*more)
    made.discard_through(CHUNK)
    assert members(copy) == inside


def test_the_next_seq_of_a_set_may_begin_a_whole_chunk() -> None:
    made = SeqSet([(3, 3), (2 * CHUNK, 4 * CHUNK), (9 * CHUNK, 9 * CHUNK)])
    assert made.next_start(4, 0) == 2 * CHUNK
    assert made.next_start(4 * CHUNK + 1, 0) == 9 * CHUNK
    assert made.next_start(10 * CHUNK, 0) == 0


def test_a_run_may_begin_in_the_chunk_before() -> None:
    made = SeqSet([(CHUNK - 5, CHUNK + 5)])
    assert made.start_of(CHUNK + 2) == CHUNK - 5
    assert made.start_of(CHUNK + 6) == CHUNK + 7


def test_a_set_may_begin_with_seq_0() -> None:
    made = SeqSet([(0, 2 * CHUNK), (2 * CHUNK + 2, 2 * CHUNK + 3)])
    assert made.start_of(CHUNK + 5) == 0
    assert len(made) == 2
    assert len(SeqSet([(0, 5)])) == 1


def test_very_many_new_chunks_are_put_in_order_between_those_that_are_there() -> None:
    there = [(chunk * CHUNK, chunk * CHUNK) for chunk in range(1, 4 * FEW_CHUNKS, 2)]
    made = SeqSet([*there, (0, CHUNK - 1)])
    made.update(dict.fromkeys(range(0, 4 * FEW_CHUNKS, 2), 2))
    starts = [lo for lo, _ in made]
    assert starts == sorted(starts)
    assert members(made) == {seq for seq, _ in there} | set(range(CHUNK)) | {
        chunk * CHUNK + 1 for chunk in range(0, 4 * FEW_CHUNKS, 2)
    }


def test_half_a_million_single_seqs_are_kept_in_one_integer_for_each_chunk() -> None:
    every_second = sum(1 << bit for bit in range(0, CHUNK, 2))
    made = SeqSet()
    made.update(dict.fromkeys(range(1, 1001), every_second))
    assert len(made) == 1000 * CHUNK // 2
    assert made.pieces == 1000
    assert made.count_between(CHUNK, 1001 * CHUNK - 1) == 1000 * CHUNK // 2
    assert len(list(made.chunks_between(0, 1 << 54))) == 1000
    made.add(CHUNK, 1001 * CHUNK - 1)
    assert list(made) == [(CHUNK, 1001 * CHUNK - 1)]
    assert made.pieces == 1, "whole chunks are one run of chunk numbers"


@pytest.mark.parametrize("bits", [0, 1, 0b1011, 0b1100, (1 << CHUNK) - 1])
def test_runs_of_bits_are_read_from_the_lowest_up(bits: int) -> None:
    seqs = [bit for bit in range(CHUNK) if bits >> bit & 1]
    assert list(runs_of_bits(bits, 1)) == list(runs_of(seq + 1 for seq in seqs))


def test_a_run_may_begin_in_the_chunk_before_a_broken_one() -> None:
    made = SeqSet([(CHUNK - 3, CHUNK + 5), (CHUNK + 9, CHUNK + 9)])
    assert made.start_of(CHUNK + 2) == CHUNK - 3
