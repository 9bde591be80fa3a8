"""A read of what came last, taken from memory in one step: the same page as the planned one."""

from __future__ import annotations

from typing import Unpack

import pytest
from tests.unit.engine.builders import Store

from topics.core.facts import Match
from topics.engine.effects import run
from topics.engine.reads.reading import Query, Reader
from topics.topic_settings import Durability, TopicSettings
from topics.values import Page


class Planner(Reader):
    """Never takes the one step."""

    def newest(self, topic: object, query: object) -> None:
        return None


def both(store: Store, query: Query) -> tuple[Page | None, Page]:
    """The page of one step, if there is one, and the planned one."""
    newest = store.log._engine.newest(store.topic("a"), query)
    return newest, run(Planner(store.kernel, store.log._engine.catch_up).read("a", query))


def five(**config: Unpack[TopicSettings]) -> Store:
    store = Store()
    store.log.create("a", **config)
    for number in range(5):
        store.append("a", {"n": number}, tag=f"t{number % 2}", node=f"n{number % 2}")
    return store


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("limit", [0, 5])
def test_a_follower_gets_in_one_step_what_a_plan_would_give_it(
    durability: Durability, after: int, limit: int
) -> None:
    newest, planned = both(five(durability=durability), Query(after=after, limit=limit))
    assert newest is not None
    assert newest == planned
    assert [record.seq for record in newest.records] == list(range(after + 1, 6))


def test_a_read_in_one_step_counts_as_a_read() -> None:
    store = five()
    store.clock.advance(1000)
    store.log._engine.newest(store.topic("a"), Query(after=4))
    assert store.topic("a").last_read_ts == store.clock.now_ms()
    assert store.topic("a").last_consumed == store.clock.now_ms()


@pytest.mark.parametrize(
    "query",
    [
        Query(after=5),
        Query(after=6),
        Query(after=2, limit=2),
        Query(after=2, budget=10),
        Query(after=2, to_seq=4),
        Query(from_ts=1),
        Query(after=2, nodes=frozenset({"n0"})),
        Query(after=2, match=Match("t0", is_prefix=False)),
    ],
)
def test_whatever_is_more_than_all_that_came_last_is_planned(query: Query) -> None:
    newest, _ = both(five(), query)
    assert newest is None


def test_loss_deletes_and_records_on_disk_are_planned() -> None:
    capped = five(cap_records=2)
    assert both(capped, Query(after=1))[0] is None
    assert both(capped, Query(after=3))[0] is not None

    deleted = five()
    run(deleted.log._engine.delete("a", before=None, match=Match("t1", is_prefix=False)))
    assert both(deleted, Query(after=2))[0] is None
    assert both(deleted, Query(after=4))[0] is not None

    restarted = five()
    restarted.restart()
    assert both(restarted, Query(after=4))[0] is None


def test_records_that_are_due_to_expire_are_planned() -> None:
    store = five(ttl_ms=1000)
    assert both(store, Query(after=4))[0] is not None
    store.clock.advance(1001)
    assert store.log._engine.newest(store.topic("a"), Query(after=4)) is None


def test_what_a_router_still_has_to_bring_is_planned() -> None:
    store = five()
    store.log.create("source")
    store.log.route("r", source="source", dest="a")
    assert store.log._engine.newest(store.topic("a"), Query(after=4)) is None
