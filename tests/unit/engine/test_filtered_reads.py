"""Reads that pass over many records: they let others have their turn, and see what those did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.builders import Store

from topics.core.facts import Match
from topics.engine.effects import Op, Pause, fulfil
from topics.engine.reads import reading
from topics.engine.reads.reading import Query
from topics.errors import TopicNotFound
from topics.values import Page

CHUNK = 4
RECORDS = 5 * CHUNK
WANTED = Query(limit=CHUNK, match=Match("wanted", is_prefix=False))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """A topic whose last record is the only one wanted."""
    monkeypatch.setattr(reading, "FILTERED_CHUNK", CHUNK)
    made = Store()
    made.log.create("t")
    for number in range(1, RECORDS):
        made.append("t", number, tag="other")
    made.append("t", RECORDS, tag="wanted")
    return made


def played(op: Op[Any], meanwhile: Callable[[], object] = lambda: None) -> tuple[Any, int]:
    """What an operation returns, and how often it paused; something happens in its first pause."""
    pauses = 0
    try:
        wait = next(op)
        while True:
            if isinstance(wait, Pause):
                pauses += 1
                if pauses == 1:
                    meanwhile()
            wait = fulfil(op, wait)
    except StopIteration as finished:
        return finished.value, pauses


def test_a_read_that_passes_over_many_records_pauses(store: Store) -> None:
    page, pauses = played(store.log._engine.read("t", WANTED))
    assert [record.seq for record in page.records] == [RECORDS]
    assert page.caught_up
    assert pauses == RECORDS // CHUNK - 1


def test_a_read_that_finds_what_it_wants_at_once_does_not(store: Store) -> None:
    for query in (Query(limit=CHUNK), Query(after=RECORDS - 1, match=WANTED.match)):
        page, pauses = played(store.log._engine.read("t", query))
        assert len(page.records) in (1, CHUNK)
        assert pauses == 0


@pytest.mark.parametrize(
    ("meanwhile", "seqs", "caught_up"),
    [
        (lambda store: store.log.checkpoint(), [RECORDS], True),
        (lambda store: store.append("t", "more", tag="wanted"), [RECORDS], False),
        (lambda store: store.log.delete("t", match="wanted"), [], True),
        (lambda store: store.log.delete("t", before_seq=RECORDS - 2), [RECORDS], True),
    ],
    ids=["checkpoint", "append", "delete of what is wanted", "delete of the rest"],
)
def test_what_happens_in_a_pause_is_seen(
    store: Store, meanwhile: Callable[[Store], object], seqs: list[int], caught_up: bool
) -> None:
    page: Page = played(store.log._engine.read("t", WANTED), lambda: meanwhile(store))[0]
    assert [record.seq for record in page.records] == seqs
    assert page.caught_up is caught_up
    assert page.tombstone is None


def test_what_is_lost_in_a_pause_is_announced(store: Store) -> None:
    reader = store.log._engine.read("t", WANTED)
    page: Page = played(reader, lambda: store.log.configure("t", cap_records=3))[0]
    assert [record.seq for record in page.records] == [RECORDS]
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to) == (CHUNK + 1, RECORDS - 3)


def test_what_is_lost_behind_records_already_found_is_left_to_the_next_read(store: Store) -> None:
    store.log.create("u")
    store.append("u", 1, tag="wanted")
    for number in range(2, RECORDS + 1):
        store.append("u", number, tag="other")
    reader = store.log._engine.read("u", WANTED)
    page: Page = played(reader, lambda: store.log.configure("u", cap_records=3))[0]
    assert [record.seq for record in page.records] == [1]
    assert page.tombstone is None
    assert page.next_from_seq == CHUNK
    rest: Page = played(store.log._engine.read("u", Query(after=page.next_from_seq)))[0]
    assert rest.tombstone is not None
    assert (rest.tombstone.gap_from, rest.tombstone.gap_to) == (CHUNK + 1, RECORDS - 3)


def test_a_loss_that_reaches_beyond_the_page_is_announced_as_far_as_the_page(store: Store) -> None:
    def evict_all() -> None:
        store.log.configure("t", cap_records=1)
        for number in range(5):
            store.append("t", number, tag="wanted")

    page: Page = played(store.log._engine.read("t", WANTED), evict_all)[0]
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to) == (CHUNK + 1, RECORDS)
    rest: Page = played(store.log._engine.read("t", Query(after=page.next_from_seq)))[0]
    assert rest.tombstone is not None
    assert (rest.tombstone.gap_from, rest.tombstone.gap_to) == (RECORDS + 1, RECORDS + 4)
    assert [record.seq for record in rest.records] == [RECORDS + 5]


def test_a_topic_dropped_in_a_pause_is_not_found_or_read_as_it_was(store: Store) -> None:
    try:
        page = played(store.log._engine.read("t", WANTED), lambda: store.log.drop("t"))[0]
    except TopicNotFound:
        return
    assert [record.seq for record in page.records] in ([], [RECORDS])
