"""What a restart makes of logged passes, leases, stages, cursors and keys.

The facts go straight into the log, without the calls that make them, so that replay is seen alone.
Each state is then looked at three times: after a kill, after another one, and from a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.unit.engine.builders import Store

from topics.core.facts import (
    CursorMoved,
    Forwarded,
    KeyRemembered,
    LeaseChanged,
    Match,
    RouterCreated,
    RouterDeleted,
    StageCommitted,
)
from topics.core.leases import Lease
from topics.errors import RefusedToOpen
from topics.storage.stages import StagedRow, StageKey, write_stage
from topics.topic_settings import Durability
from topics.values import Record


def each_way_back(store: Store) -> Iterator[str]:
    """Open the store again and again; what is asked each time must be answered the same."""
    store.kill()
    yield "from the log"
    store.kill()
    yield "from the log once more"
    store.log.checkpoint()
    store.kill()
    yield "from a snapshot"
    store.restart(wal_shards=3)
    yield "with another number of shards"


def records(store: Store, name: str) -> list[Record]:
    return list(store.log.read(name, limit=1000).records)


def payloads(store: Store, name: str) -> list[tuple[int, object]]:
    return [(record.seq, record.data) for record in records(store, name)]


# Routers


class Routed(Store):
    """A source and a destination, and the frames of a router between them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("a", "b", "c"):
            self.log.create(name, durability="fsync")

    def route(self, source: str, dest: str, *, cursor: int = 0, exactly_once: bool = False) -> None:
        self.commit(
            RouterCreated(
                ts=self.clock.now_ms(),
                name=f"{source}>{dest}",
                source=source,
                dest=dest,
                source_id=self.topic(source).id,
                dest_id=self.topic(dest).id,
                preserve_node=True,
                preserve_tag=True,
                create_dest=True,
                allow_cycle=False,
                exactly_once=exactly_once,
                match=Match("t", is_prefix=True),
                initial_cursor=cursor,
                initial_dest_base=0,
            )
        )

    def passed(
        self,
        source: str,
        dest: str,
        *runs: tuple[int, int, bool],
        first: int = 1,
        cursor: int,
        preserve: bool = True,
        exactly_once: bool = False,
    ) -> None:
        """Log one pass; its copies exist only in the log's promise."""
        dest_id = self.topic(dest).id
        self.commit(
            Forwarded(
                topic_id=dest_id,
                ts=self.clock.now_ms(),
                router=f"{source}>{dest}",
                source_id=self.topic(source).id,
                preserve_node=preserve,
                preserve_tag=preserve,
                create_dest=True,
                allow_cycle=False,
                exactly_once=exactly_once,
                dest_first=first,
                cursor=cursor,
                forwarded_total=sum(count for _, count, _ in runs),
                runs=runs,
            ),
            topic_id=dest_id,
        )


def test_copies_come_back_under_their_seqs_with_the_fields_of_the_source() -> None:
    store = Routed()
    store.log.append("a", [{"data": n, "tag": f"t{n}", "node": "n"} for n in (1, 2, 3)])
    store.route("a", "b")
    store.clock.advance(5)
    store.passed("a", "b", (1, 1, False), (3, 1, False), cursor=3)
    made_at = store.clock.now_ms()
    for way in each_way_back(store):
        copies = records(store, "b")
        assert [(r.seq, r.data, r.tag, r.node) for r in copies] == [
            (1, 1, "t1", "n"),
            (2, 3, "t3", "n"),
        ], way
        assert {r.ts for r in copies} == {made_at}
        router = store.kernel.catalog.routers.by_name["a>b"]
        assert (router.cursor, router.forwarded_total) == (3, 2)
        assert router.match == Match("t", is_prefix=True)


def test_a_pass_that_preserves_nothing_makes_bare_copies() -> None:
    store = Routed()
    store.log.append("a", {"data": 1, "tag": "t", "node": "n"})
    store.passed("a", "b", (1, 1, False), cursor=1, preserve=False)
    for _ in each_way_back(store):
        (copy,) = records(store, "b")
        assert (copy.data, copy.tag, copy.node) == (1, None, None)


def test_an_exactly_once_copy_is_signed_as_it_was() -> None:
    store = Routed()
    store.log.append("a", {"data": 1, "meta": {"own": True}})
    store.passed("a", "b", (1, 1, False), cursor=1, exactly_once=True)
    source = store.topic("a")
    for _ in each_way_back(store):
        (copy,) = records(store, "b")
        signature = copy.meta["_topics_router"]
        assert copy.meta["own"] is True
        assert signature["idempotency_key"] == f"router:a>b:{source.id}:{source.epoch}:1"
        assert signature["source_seq"] == 1


def test_what_was_lost_before_it_was_copied_is_announced_at_the_destination() -> None:
    store = Routed()
    store.append("a", 1, 2, 3)
    store.passed("a", "b", (1, 2, True), (3, 1, False), cursor=3)
    for _ in each_way_back(store):
        page = store.log.read("b")
        assert page.tombstone is not None
        gap = page.tombstone
        assert (gap.gap_from, gap.gap_to, gap.reason) == (1, 2, "source_trim")
        assert payloads(store, "b") == [(3, 3)]
        assert store.log.audit("b").source_trim == 2
        assert store.log.audit("b").adds_up


def test_copies_travel_down_a_chain_of_routers() -> None:
    store = Routed()
    store.append("a", 1, 2)
    store.passed("a", "b", (1, 2, False), cursor=2)
    store.passed("b", "c", (1, 2, False), cursor=2)
    for _ in each_way_back(store):
        assert payloads(store, "b") == payloads(store, "c") == [(1, 1), (2, 2)]


REMOVALS: dict[str, Callable[[Routed], object]] = {
    "deleted": lambda store: store.log.delete("a", before_seq=99),
    "evicted": lambda store: store.log.configure("a", durability="fsync", cap_bytes=1),
    "dropped": lambda store: store.log.drop("a"),
}


@pytest.mark.parametrize("is_in_a_segment", [False, True])
@pytest.mark.parametrize("how", REMOVALS)
def test_a_copy_outlives_its_source_record(how: str, is_in_a_segment: bool) -> None:
    store = Routed()
    store.append("a", "one", "two")
    if is_in_a_segment:
        store.log.checkpoint()
        store.log.checkpoint()
    store.passed("a", "b", (1, 2, False), cursor=2)
    REMOVALS[how](store)
    for _ in each_way_back(store):
        assert payloads(store, "b") == [(1, "one"), (2, "two")]


def test_a_copy_that_was_deleted_stays_deleted() -> None:
    store = Routed()
    store.append("a", 1, 2)
    store.passed("a", "b", (1, 2, False), cursor=2)
    store.kill()
    assert store.log.delete("b", before_seq=2).deleted == 1
    for _ in each_way_back(store):
        assert payloads(store, "b") == [(2, 2)]


def test_a_write_behind_copies_follows_them_in_the_next_life_too() -> None:
    store = Routed()
    store.append("a", 1, 2)
    store.passed("a", "b", (1, 2, False), cursor=2)
    store.kill()
    store.append("b", "direct")
    for _ in each_way_back(store):
        assert payloads(store, "b") == [(1, 1), (2, 2), (3, "direct")]


def test_a_dropped_router_stays_dropped_and_its_copies_stay() -> None:
    store = Routed()
    store.append("a", 1, tag="t")
    store.route("a", "b")
    store.passed("a", "b", (1, 1, False), cursor=1)
    ids = store.topic("a").id, store.topic("b").id
    store.commit(RouterDeleted(0, "a>b", *ids))
    for _ in each_way_back(store):
        assert not store.kernel.catalog.routers.by_name
        assert payloads(store, "b") == [(1, 1)]


def test_a_router_of_a_dropped_topic_is_gone() -> None:
    store = Routed()
    store.route("a", "b")
    store.log.drop("b")
    for _ in each_way_back(store):
        assert not store.kernel.catalog.routers.by_name


# Queues


def leased(durable: bool) -> Store:
    store = Store()
    store.log.create("q", type="queue", durability="fsync", leases_durable=durable)
    store.append("q", 1, 2, 3, 4)
    topic_id, now = store.topic("q").id, store.clock.now_ms()

    def note(event: int, seq: int, lease_id: int, until: int, deliveries: int = 1) -> None:
        fact = LeaseChanged(topic_id, seq, now, event, lease_id, until, deliveries, "w")
        store.commit(fact, topic_id=topic_id)

    for seq in (1, 2, 3):
        note(LeaseChanged.CLAIMED, seq, lease_id=10 + seq, until=now + 1000)
    note(LeaseChanged.RELEASED, 1, lease_id=11, until=now)
    note(LeaseChanged.CLAIMED, 1, lease_id=20, until=now + 5000, deliveries=2)
    note(LeaseChanged.RELEASED, 1, lease_id=11, until=now)  # of the lease before
    note(LeaseChanged.RELEASED, 2, lease_id=12, until=now + 300)
    note(LeaseChanged.ACKED, 3, lease_id=13, until=0)
    return store


def test_durable_leases_come_back_as_the_last_events_left_them() -> None:
    store = leased(durable=True)
    now = store.clock.now_ms()
    for way in each_way_back(store):
        book = store.topic("q").leases
        assert book is not None
        assert book.leased == {1: Lease(20, "w", now + 5000)}, way
        assert book.delayed == {2: now + 300}
        assert book.reclaim == [3]  # acked, but its delete is not in the log
        assert book.claim_cursor == 4
        assert book.deliveries[1] == 2


def test_without_durable_leases_every_job_is_claimable_again() -> None:
    store = leased(durable=False)
    for _ in each_way_back(store):
        book = store.topic("q").leases
        assert book is not None
        assert not book.leased
        assert not book.delayed
        assert not book.deliveries
        assert book.claim_cursor == 1 or book.reclaim


# Stages


def staged(store: Store, *rows: StagedRow, app: str = "etl", epoch: int = 1) -> None:
    key = StageKey(app, epoch, 0, 0)
    write_stage(store.disk, "/data", key, rows, now_ms=store.clock.now_ms())


def commit_stage(store: Store, *topics: tuple[int, int, int]) -> None:
    store.commit(
        StageCommitted(store.clock.now_ms(), "etl", 1, ((0, 0),), topics, b'{"done":true}')
    )


def test_a_committed_stage_is_completed_from_its_file() -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    store.log.create("b", durability="fsync")
    store.append("a", 0)
    staged(
        store,
        StagedRow("a", "n", "t", b"1", b'{"m":1}'),
        StagedRow("b", None, None, b"2"),
        StagedRow("a", None, None, b"3"),
    )
    commit_stage(store, (store.topic("a").id, 2, 2), (store.topic("b").id, 1, 1))
    for _ in each_way_back(store):
        assert payloads(store, "a") == [(1, 0), (2, 1), (3, 3)]
        assert payloads(store, "b") == [(1, 2)]
        record = records(store, "a")[1]
        assert (record.node, record.tag, record.meta) == ("n", "t", {"m": 1})
        app = store.kernel.catalog.apps["etl"]
        assert (app.epoch, app.result) == (1, b'{"done":true}')


def test_a_committed_stage_whose_file_is_gone_refuses_the_start() -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    commit_stage(store, (store.topic("a").id, 1, 1))
    with pytest.raises(RefusedToOpen) as refused:
        store.kill()
    assert refused.value.reason == "wal_missing"


def test_a_committed_stage_needs_no_file_for_a_topic_that_was_dropped() -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    commit_stage(store, (store.topic("a").id, 1, 1))
    store.log.drop("a")
    store.kill()
    assert store.kernel.catalog.apps["etl"].epoch == 1


# Cursors and keys


def test_the_last_move_of_a_cursor_counts() -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    store.append("a", 1, 2, 3)
    topic_id = store.topic("a").id
    for seq, present in ((3, True), (1, True)):
        store.commit(CursorMoved(topic_id, 5, "kept", seq, present), topic_id=topic_id)
    store.commit(CursorMoved(topic_id, 5, "gone", 2, True), topic_id=topic_id)
    store.commit(CursorMoved(topic_id, 6, "gone", 0, False), topic_id=topic_id)
    for _ in each_way_back(store):
        assert [(c.cursor, c.seq, c.updated_ts) for c in store.log.cursors("a")] == [("kept", 1, 5)]


def test_a_remembered_key_answers_in_every_later_life() -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    store.append("a", 1, 2)
    topic_id = store.topic("a").id
    key = KeyRemembered(topic_id, store.clock.now_ms(), "k", 1, 2, 2)
    store.commit(key, topic_id=topic_id)
    for _ in each_way_back(store):
        ack = store.log.append("a", {"data": "again"}, idempotency_key="k")
        assert ack.deduped
        assert (ack.first_seq, ack.last_seq, ack.head_seq) == (1, 2, 2)


# What a restart takes away, and no frame says


@pytest.mark.parametrize("end", [Store.kill, Store.restart, Store.lose_power])
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_what_an_ephemeral_topic_lost_in_a_restart_stays_lost_when_it_becomes_durable(
    end: Callable[[Store], object], durability: Durability
) -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    store.log.append("a", {"data": 1}, idempotency_key="k")
    store.log.set_cursor("a", "reader", 1)
    store.log.configure("a", durability="ephemeral")
    end(store)
    assert not store.log.cursors("a")
    store.log.configure("a", durability=durability)
    head = store.log.state("a").head_seq
    seen = []
    for way in each_way_back(store):
        assert not store.log.cursors("a"), way
        seen.append(store.log.audit("a").to_dict())
        assert store.log.state("a").head_seq >= head
    assert len({audit["lost_crash"] for audit in seen}) == 1
    ack = store.log.append("a", {"data": 2}, idempotency_key="k")
    assert not ack.deduped
    assert payloads(store, "a") == [(ack.first_seq, 2)]


def test_leases_that_a_restart_ended_stay_ended_when_leases_become_durable() -> None:
    store = leased(durable=True)
    store.log.configure("q", type="queue", durability="fsync", leases_durable=False)
    store.kill()
    store.log.configure("q", type="queue", durability="fsync", leases_durable=True)
    for way in each_way_back(store):
        book = store.topic("q").leases
        assert book is not None
        assert not book.leased, way
        assert not book.delayed
        assert not book.deliveries


def test_a_restart_before_the_snapshot_takes_nothing_of_what_came_after_it() -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    store.kill()
    store.log.append("a", {"data": 1}, idempotency_key="k")
    store.log.set_cursor("a", "reader", 1)
    store.log.configure("a", durability="ephemeral")
    store.log.checkpoint()
    store.log.configure("a", durability="disk")
    for way in each_way_back(store):
        assert [cursor.seq for cursor in store.log.cursors("a")] == [1], way
