"""Newest first: the same records as forwards, whatever was lost or deleted between them."""

from __future__ import annotations

import random

import pytest
from tests.unit.engine.builders import Store

from topics.core.facts import Match
from topics.engine.effects import run
from topics.engine.reads import backwards
from topics.engine.reads.reading import Query
from topics.values import BackPage, Record

LETTERS = "abc"


def pages(store: Store, query: Query, before: int | None = None) -> list[BackPage]:
    found = [run(store.log._engine.read_back("t", query, before=before))]
    while found[-1].next_before_seq is not None:
        before = found[-1].next_before_seq
        found.append(run(store.log._engine.read_back("t", query, before=before)))
    return found


def all_of(found: list[BackPage]) -> list[Record]:
    return [record for page in found for record in page.records]


@pytest.fixture
def store() -> Store:
    made = Store()
    made.log.create("t")
    for number in range(40):
        made.append("t", number, tag=LETTERS[number % 3])
    return made


def test_the_newest_record_comes_first(store: Store) -> None:
    page = run(store.log._engine.read_back("t", Query(limit=3), before=None))
    assert [record.seq for record in page.records] == [40, 39, 38]
    assert (page.next_before_seq, page.next_from_seq, page.gaps) == (38, 40, [])


def test_pages_end_at_the_beginning_of_the_topic(store: Store) -> None:
    found = pages(store, Query(limit=7), before=30)
    assert [record.seq for record in all_of(found)] == [*range(29, 0, -1)]
    assert found[-1].next_before_seq is None


def test_an_empty_topic_has_one_empty_page(store: Store) -> None:
    store.log.delete("t", before_seq=41)
    assert [(page.records, page.gaps) for page in pages(store, Query(limit=7))] == [([], [])]


def test_what_was_lost_is_told_where_it_lay(store: Store) -> None:
    store.log.configure("t", cap_records=10)
    found = pages(store, Query(limit=4))
    assert [record.seq for record in all_of(found)] == [*range(40, 30, -1)]
    (gap,) = (gap for page in found for gap in page.gaps)
    assert (gap.gap_from, gap.gap_to, gap.reason) == (1, 30, "cap")


def test_a_filter_that_hits_little_ends_a_page_early(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backwards, "FILTERED_WINDOW", 5)
    monkeypatch.setattr(backwards, "MAX_EXAMINED", 8)
    store.append("t", "last", tag="rare")
    found = pages(store, Query(limit=9, match=Match("rare", is_prefix=False)))
    assert len(found) > 1
    assert [record.seq for record in all_of(found)] == [41]


@pytest.mark.parametrize("seed", range(10))
def test_backwards_is_forwards_turned_round(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backwards, "WINDOW", 3)
    monkeypatch.setattr(backwards, "FILTERED_WINDOW", 6)
    chance = random.Random(seed)
    store = Store()
    store.log.create("t")
    for number in range(60):
        store.append("t", "x" * chance.choice([1, 50, 4000]), tag=chance.choice(LETTERS))
        if chance.random() < 0.15:
            store.log.delete(
                "t", match=chance.choice(LETTERS), before_seq=chance.randint(1, number + 2)
            )
        if chance.random() < 0.1:
            store.log.checkpoint()
        if chance.random() < 0.05:
            store.kill()
    match = chance.choice([None, Match("a", is_prefix=False)])
    query = Query(limit=chance.randint(1, 9), budget=5000, match=match)
    forwards = store.log.read("t", limit=1000, match=None if match is None else "a").records
    assert all_of(pages(store, query)) == [*reversed(list(forwards))]
