"""Sets of seqs as runs behave like sets of integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.runs import KindRuns, RunSet, runs_of

spans = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 6)).map(lambda s: (s[0], s[0] + s[1])),
    max_size=12,
)


def members(runs: RunSet) -> set[int]:
    return {seq for lo, hi in runs for seq in range(lo, hi + 1)}


@given(spans)
def test_a_run_set_holds_what_was_added_in_as_few_runs_as_possible(
    added: list[tuple[int, int]],
) -> None:
    runs = RunSet(added)
    expected = {seq for lo, hi in added for seq in range(lo, hi + 1)}
    assert members(runs) == expected
    assert runs.size == len(expected)
    ends = [hi for _, hi in runs]
    starts = [lo for lo, _ in runs]
    assert all(lo > hi + 1 for hi, lo in zip(ends, starts[1:], strict=False))


@given(spans, st.integers(0, 70), st.integers(0, 70))
def test_questions_about_a_run_set_are_answered_like_those_about_a_set(
    added: list[tuple[int, int]], lo: int, hi: int
) -> None:
    runs = RunSet(added)
    inside = members(runs)
    assert (lo in runs) == (lo in inside)
    assert runs.count_between(lo, hi) == len([seq for seq in inside if lo <= seq <= hi])
    gaps = [seq for a, b in runs.gaps_between(lo, hi) for seq in range(a, b + 1)]
    assert gaps == [seq for seq in range(lo, hi + 1) if seq not in inside]
    assert runs.next_start(lo, 999) == min((s for s in inside if s >= lo), default=999)
    run = runs.run_at(lo)
    assert (run is None) == (lo not in inside)


@given(spans, st.integers(0, 70))
def test_discarding_forgets_exactly_what_lies_at_or_below(
    added: list[tuple[int, int]], through: int
) -> None:
    runs = RunSet(added)
    above = {seq for seq in members(runs) if seq > through}
    runs.discard_through(through)
    assert members(runs) == above
    assert runs.size == len(above)


def test_touching_runs_of_one_kind_become_one_and_others_stay_apart() -> None:
    runs = KindRuns([(5, 6, 1), (9, 9, 1), (3, 4, 2)])
    runs.add(7, 8, 1)
    assert list(runs) == [(3, 4, 2), (5, 9, 1)]


def test_a_run_that_straddles_a_floor_keeps_its_upper_part() -> None:
    runs = KindRuns([(2, 5, 1), (8, 9, 2)])
    runs.discard_through(3)
    assert list(runs) == [(4, 5, 1), (8, 9, 2)]
    runs.discard_through(9)
    assert not len(runs)


def test_runs_of_a_range_are_cut_to_it() -> None:
    runs = KindRuns([(2, 5, 1), (8, 12, 2)])
    assert list(runs.between(4, 9)) == [(4, 5, 1), (8, 9, 2)]
    assert runs.count_between(4, 9) == 4
    assert list(runs.between(4, 3)) == []
    assert list(runs.gaps_between(1, 14)) == [(1, 1), (6, 7), (13, 14)]
    assert list(runs.gaps_between(3, 9)) == [(6, 7)]
    assert runs.run_at(6) is None
    assert runs.next_from(6) == (8, 12, 2)
    assert runs.next_from(13) is None


@pytest.mark.parametrize(
    ("seqs", "runs"),
    [([], []), ([4], [(4, 4)]), ([1, 2, 3, 7, 9, 10], [(1, 3), (7, 7), (9, 10)])],
)
def test_seqs_in_a_row_are_one_run(seqs: list[int], runs: list[tuple[int, int]]) -> None:
    assert list(runs_of(seqs)) == runs
