"""Dead runs of a topic, page by page."""

from __future__ import annotations

import pytest
from tests.unit.engine.builders import Store

import topics
from topics.core import topic as topic_module
from topics.engine.reads import views
from topics.errors import InvalidRequest


def test_a_page_of_holes_ends_at_its_limit_and_the_next_begins_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "MAX_HOLES", 2)
    with topics.open() as log:
        log.append("orders", [{"data": n, "tag": "odd" if n % 2 else "even"} for n in range(1, 11)])
        log.delete("orders", match="odd")
        pages = []
        at = 1
        while at <= 9:
            pages.append(log.holes("orders", from_seq=at, to_seq=9))
            assert pages[-1].next_from_seq > at
            at = pages[-1].next_from_seq
    assert [[hole.from_seq for hole in page.runs] for page in pages] == [[1, 3], [5, 7], [9]]
    assert at == 10, "the range is done"


def test_a_range_of_nothing_has_no_holes_and_one_that_runs_backwards_is_refused() -> None:
    with topics.open() as log:
        log.create("orders")
        page = log.holes("orders", from_seq=1, to_seq=0)
        assert (page.runs, page.next_from_seq) == ([], 1)
        log.append("orders", {"data": 1})
        log.delete("orders", before_seq=2)
        page = log.holes("orders", from_seq=2, to_seq=1)
        assert (page.runs, page.next_from_seq) == ([], 2)
        with pytest.raises(InvalidRequest):
            log.holes("orders", from_seq=3, to_seq=1)


def test_a_delete_among_those_that_only_delete_bytes_remember_is_a_hole_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_module, "MAX_DELETED_RUNS", 1)
    store = Store()
    store.log.append("t", [{"data": n, "tag": f"t{n}"} for n in range(1, 10)])
    store.log.checkpoint()
    for gone in (2, 4, 8):
        store.log.delete("t", match=f"t{gone}")
    store.log.checkpoint()
    store.kill()
    assert (store.topic("t").exact_from, list(store.topic("t").deleted)) == (
        5,
        [(2, 2), (4, 4), (8, 8)],
    )
    store.log.delete("t", match="t3")

    def holes() -> list[tuple[int, int]]:
        found = store.log.holes("t", from_seq=1, to_seq=9).runs
        return [(hole.from_seq, hole.to_seq) for hole in found]

    assert holes() == [(2, 4), (8, 8)]
    store.kill()
    assert holes() == [(2, 4), (8, 8)]
    assert [record.seq for record in store.log.read("t").records] == [1, 5, 6, 7, 9]
