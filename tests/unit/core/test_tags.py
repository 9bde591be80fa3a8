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


@given(st.lists(tags, max_size=30), matches, st.integers(0, 32), st.integers(0, 32))
def test_matching_seqs_are_those_of_accepted_tags_in_the_range(
    tagged: list[str], match: Match, lo: int, below: int
) -> None:
    index = TagIndex()
    for seq, tag in enumerate(tagged, 1):
        index.add(tag, seq)
    expected = [
        seq for seq, tag in enumerate(tagged, 1) if match.accepts(tag) and lo <= seq < below
    ]
    assert sorted(index.matching(match, lo=lo, below=below)) == expected


@given(st.lists(tags, max_size=30), matches, st.integers(0, 32), matches)
def test_what_was_forgotten_does_not_match_and_the_rest_still_does(
    tagged: list[str], gone: Match, below: int, asked: Match
) -> None:
    index = TagIndex()
    for seq, tag in enumerate(tagged, 1):
        index.add(tag, seq)
    index.forget_matching(gone, below=below)
    left = [(s, t) for s, t in enumerate(tagged, 1) if not (gone.accepts(t) and s < below)]
    assert sorted(index.matching(asked, lo=0, below=99)) == [
        seq for seq, tag in left if asked.accepts(tag)
    ]
    assert index.entries == len(left)


def test_postings_of_a_segment_are_taken_over_whole() -> None:
    index = TagIndex()
    index.add_many("a", array("Q", (1, 4)))
    index.add_many("a", array("Q", (9,)))
    index.add_many("b", array("Q", (5,)))
    assert list(index.matching(Match("a"), lo=0, below=99)) == [1, 4, 9]
    assert index.entries == 4


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
        assert list(index.matching(Match("t"), lo=0, below=9)) == [1]
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
    found = list(index.matching(Match("one by one"), lo=0, below=start + 9))
    assert found == [start, start + 1, start + 2]
    assert list(index.matching(Match("runs"), lo=start + 1, below=start + 5)) == [
        start + 1,
        start + 2,
        start + 3,
        start + 4,
    ]
