"""The tag index answers like a look at every record."""

from array import array
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core import tags as tags_module
from topics.core.facts import Match
from topics.core.tags import NARROW_MAX, TagIndex, TagOrder

tags = st.sampled_from(["", "a", "ab", "abc", "b", "a*", "é", "\U0001f600"])
matches = st.builds(Match, tags, st.booleans())
STEPS = st.integers(1, 3)


def matching(index: TagIndex, match: Match, *, lo: int, below: int, step: int = 99) -> list[int]:
    """Seqs that a selector accepts, tag by tag, asked for in small steps."""
    found: list[int] = []
    after = None
    while some := index.some(match, after, step):
        for after in some:
            at = lo
            while seqs := index.seqs_of(after, lo=at, below=below, most=step):
                found += seqs
                at = seqs[-1] + 1
    return found


def forget(index: TagIndex, match: Match, *, below: int, step: int = 99) -> int:
    """Drop the postings of a selector; returns in how many steps."""
    return len(list(index.forget_matching(match, below=below, step=step)))


@given(st.lists(tags, max_size=30), matches, st.integers(0, 32), st.integers(0, 32), STEPS)
def test_matching_seqs_are_those_of_accepted_tags_in_the_range(
    tagged: list[str], match: Match, lo: int, below: int, step: int
) -> None:
    index = TagIndex()
    for seq, tag in enumerate(tagged, 1):
        index.add(tag, seq)
    expected = [
        seq for seq, tag in enumerate(tagged, 1) if match.accepts(tag) and lo <= seq < below
    ]
    assert sorted(matching(index, match, lo=lo, below=below, step=step)) == expected


@given(st.lists(tags, max_size=30), matches, st.integers(0, 32), matches, STEPS)
def test_what_was_forgotten_does_not_match_and_the_rest_still_does(
    tagged: list[str], gone: Match, below: int, asked: Match, step: int
) -> None:
    index = TagIndex()
    for seq, tag in enumerate(tagged, 1):
        index.add(tag, seq)
    forget(index, gone, below=below, step=step)
    left = [(s, t) for s, t in enumerate(tagged, 1) if not (gone.accepts(t) and s < below)]
    assert sorted(matching(index, asked, lo=0, below=99)) == [
        seq for seq, tag in left if asked.accepts(tag)
    ]
    assert index.entries == len(left)


def test_postings_of_a_segment_are_taken_over_whole() -> None:
    index = TagIndex()
    index.add_many("a", array("Q", (1, 4)))
    index.add_many("a", array("Q", (9,)))
    index.add_many("b", array("Q", (5,)))
    assert matching(index, Match("a"), lo=0, below=99) == [1, 4, 9]
    assert index.entries == 4


def test_very_many_tags_are_forgotten_a_few_at_a_time_and_no_longer_count_as_dead() -> None:
    index = TagIndex()
    for seq in range(1, 11):
        index.add(f"t{seq}", seq)
    index.note_dead(9)
    assert forget(index, Match("t", is_prefix=True), below=10, step=4) == 2
    assert (index.entries, index.dead) == (1, 0)
    assert index.seqs_of("t1", lo=1, below=99, most=9) == ()


def test_whoever_chooses_records_is_told_of_those_that_come() -> None:
    index, told = TagIndex(), list[tuple[str, int]]()
    chosen = mock.Mock(note=lambda tag, seq: told.append((tag, seq)))
    index.add("a", 1)
    with index.telling(chosen), index.telling(mock.Mock()):
        index.add("a", 2)
        index.add_many("b", [3])
    index.add("a", 4)
    assert told == [("a", 2), ("b", 3)]


def test_an_index_that_is_mostly_dead_is_thrown_away() -> None:
    index = TagIndex()
    for seq in range(3000):
        index.add("t", seq)
    index.loaded = True
    index.note_dead(1500)
    assert index.entries == 3000
    index.note_dead(1)
    assert index.entries == 0
    assert not index.loaded


def test_an_index_that_is_held_stays_until_it_is_let_go() -> None:
    index = TagIndex()
    index.add("t", 1)
    index.loaded = True
    with index.held():
        with index.held():
            index.note_dead(2000)
        assert matching(index, Match("t"), lo=0, below=9) == [1]
    assert not index.loaded


@given(st.lists(st.tuples(st.booleans(), st.text("abc", max_size=4)), max_size=60), tags)
def test_tags_come_in_order_however_they_came_and_went(
    changes: list[tuple[bool, str]], prefix: str
) -> None:
    order, there = TagOrder(), set[str]()
    with mock.patch.object(tags_module, "ROW_TAGS", 2):
        for is_new, tag in changes:
            if is_new and tag not in there:
                order.add(tag)
                there.add(tag)
            elif not is_new and tag in there:
                order.remove(tag)
                there.remove(tag)
    expected = sorted(tag for tag in there if tag.startswith(prefix))
    assert list(order.beginning_with(prefix)) == expected
    for tag in ["", *expected]:
        rest = [each for each in expected if each > tag]
        assert list(order.beginning_with(prefix, tag)) == rest


def test_tags_find_their_place_though_all_around_it_went() -> None:
    order, names = TagOrder(), "abcdef"
    with mock.patch.object(tags_module, "ROW_TAGS", 2):
        for tag in names:
            order.add(tag)
        for tag in names[2:]:
            order.remove(tag)
        order.add("e")
    assert list(order.beginning_with("")) == ["a", "b", "e"]


@pytest.mark.parametrize("start", [1, NARROW_MAX - 1, NARROW_MAX + 1])
def test_seqs_of_any_size_are_kept(start: int) -> None:
    index = TagIndex()
    index.add("one by one", start)
    index.add("one by one", start + 1)
    index.add("one by one", start + 2)
    index.add_many("runs", array("Q", (start, start + 1)))
    index.add_many("runs", array("Q", (start + 2, start + 3)))
    index.add_many("runs", array("Q", (start + 4, start + 5)))
    found = matching(index, Match("one by one"), lo=0, below=start + 9)
    assert found == [start, start + 1, start + 2]
    assert matching(index, Match("runs"), lo=start + 1, below=start + 5) == [
        start + 1,
        start + 2,
        start + 3,
        start + 4,
    ]
