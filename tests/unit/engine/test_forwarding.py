"""Router passes: what they copy, what stops them, and what a restart finds."""

from __future__ import annotations

from itertools import count, pairwise
from typing import Any

import pytest
from tests.unit.engine.builders import Held, Store

from topics.batch import RecordBatch
from topics.engine.effects import Op, fulfil, resumed, run
from topics.engine.reads.reading import Query
from topics.engine.routers.routing import RouterSpec
from topics.engine.writes.append import Timing
from topics.errors import (
    InvalidRequest,
    RouterCycle,
    RouterNotFound,
    Throttled,
    TopicExistsIncompatible,
    TopicNotFound,
    TopicsError,
)
from topics.topic_settings import Durability
from topics.values import Record

KEY = "_topics_router"


@pytest.fixture
def store() -> Store:
    return Store()


def records(store: Store, name: str) -> list[Record]:
    """Everything there is, over announced losses too."""
    events = store.log.follow(name, limit=1000, wait=0.0)
    return [event for event in events if isinstance(event, Record)]


def datas(store: Store, name: str) -> list[Any]:
    return [record.data for record in records(store, name)]


def chain(store: Store, *names: str, **config: Any) -> None:  # noqa: ANN401 - topic settings
    for name in names:
        store.log.create(name, **config)
    for source, dest in pairwise(names):
        store.log.route(f"{source}->{dest}", source=source, dest=dest)


# What is copied


def test_a_router_starts_at_the_head_and_copies_what_follows(store: Store) -> None:
    store.append("a", 1, 2, 3)
    store.log.route("r", source="a", dest="b")
    store.append("a", 4, tag="t", node="n")
    (copy,) = records(store, "b")
    assert (copy.seq, copy.data, copy.tag, copy.node) == (1, 4, "t", "n")
    store.kill()
    assert datas(store, "b") == [4], "no history comes in by replay"


def test_names_are_left_out_on_request_and_filters_pass_no_untagged_record(store: Store) -> None:
    store.log.route(
        "r", source="a", dest="b", match="eu:*", preserve_node=False, preserve_tag=False
    )
    store.append("a", 1, tag="eu:1", node="n")
    store.append("a", 2, tag="us:1")
    store.append("a", 3)
    (copy,) = records(store, "b")
    assert (copy.data, copy.tag, copy.node) == (1, None, None)
    (state,) = store.log.routers()
    assert (state.filter, state.forwarded_total, state.lag) == (("tag", "Glob", "eu:*"), 1, 0)


def test_a_read_brings_the_whole_chain_up_to_date_however_long(store: Store) -> None:
    names = [f"t{at}" for at in range(12)]
    chain(store, *names)
    store.append("t0", 1)
    assert datas(store, "t11") == [1], "chains without a cycle know no hop limit"
    store.kill()
    store.append("t0", 2)
    assert store.log.state("t11").count == 2


def test_deletes_do_not_travel_and_deleted_records_are_not_copied(store: Store) -> None:
    chain(store, "a", "b")
    store.append("a", 1, tag="x")
    assert datas(store, "b") == [1]
    store.append("a", 2, tag="x")
    store.log.delete("a", match="x")
    store.append("a", 3)
    assert datas(store, "b") == [1, 3]


def test_two_mirrors_end_with_five_and_four_copies_of_one_record(store: Store) -> None:
    store.log.route("ab", source="a", dest="b", allow_cycle=True)
    store.log.route("ba", source="b", dest="a", allow_cycle=True)
    store.append("a", "x", node="n")
    for _ in range(4):
        datas(store, "b")
    store.kill()  # hops survive
    for _ in range(20):
        datas(store, "a")
        datas(store, "b")
    assert (len(datas(store, "a")), len(datas(store, "b"))) == (5, 4)
    assert {record.node for record in records(store, "a") + records(store, "b")} == {"n"}


def test_one_write_is_logged_once_whatever_the_fan_out(store: Store) -> None:
    for at in range(100):
        store.log.route(f"r{at}", source="a", dest=f"d{at}")
    written = store.kernel.committer.stats(0).bytes_written
    store.append("a", "x" * 100_000)
    for at in range(100):
        assert store.log.state(f"d{at}").count == 1
    assert store.kernel.committer.stats(0).bytes_written - written < 150_000
    store.kill()
    assert all(store.log.state(f"d{at}").bytes == 100_002 for at in range(100))


def test_a_wide_source_is_read_once_for_all_its_routers(store: Store) -> None:
    for at in range(10):
        store.log.route(f"r{at}", source="a", dest=f"d{at}")
    store.append("a", *range(50))
    forwarder = store.log._engine.forwarder
    fetched = 0
    fetch = forwarder._fetch

    def counted(*args: Any) -> Op[Any]:  # noqa: ANN401 - passed on
        nonlocal fetched
        fetched += 1
        return fetch(*args)

    forwarder._fetch = counted  # type: ignore[assignment, method-assign]  # it counts as well
    for at in range(10):
        assert store.log.state(f"d{at}").count == 50
    assert fetched == 1


def test_more_records_than_one_pass_takes_arrive_in_order(store: Store) -> None:
    chain(store, "a", "b")
    store.append("a", *range(3000))
    page = store.log.read("b", limit=1000)
    assert page.head_seq == 3000
    assert [record.data for record in page.records] == list(range(1000))


# Loss and pressure


def test_what_the_source_lost_unforwarded_is_announced_all_the_way_down(store: Store) -> None:
    chain(store, "a", "b", "c")
    store.append("a", 0)
    assert datas(store, "c") == [0]
    store.log.configure("a", cap_records=2)
    store.append("a", 1, 2, 3, 4, 5)  # 1, 2 and 3 are evicted before a pass
    for name in ("b", "c"):
        page = store.log.read(name, after=1)
        assert page.tombstone is not None
        assert (page.tombstone.reason, page.tombstone.gap_from, page.tombstone.gap_to) == (
            "source_trim",
            2,
            4,
        )
        assert [record.data for record in page.records] == [4, 5]
        assert datas(store, name)[0] == 0, "what was there stays readable"
    before = {name: store.log.audit(name).to_dict() for name in ("b", "c")}
    assert before["c"]["source_trim"] == 3
    store.kill()
    for name, audit in before.items():
        found = store.log.audit(name).to_dict()
        assert (found["source_trim"], found["live"]) == (audit["source_trim"], audit["live"])
    assert store.log.routers()[0].forwarded_total == 6


def test_a_full_destination_holds_its_router_up_and_nobody_else(store: Store) -> None:
    store.log.create("full", cap_records=2, discard="reject")
    store.log.route("r", source="a", dest="full")
    store.log.route("s", source="a", dest="free")
    store.append("a", 1, 2, 3, 4)
    assert datas(store, "full") == [1, 2]
    assert datas(store, "free") == [1, 2, 3, 4]
    store.log.route("r", source="a", dest="full")  # a re-PUT keeps the place
    assert datas(store, "full") == [1, 2]
    store.kill()
    store.log.delete("full", before_seq=3)
    assert datas(store, "full") == [3, 4]
    assert [state.forwarded_total for state in store.log.routers()] == [4, 4]


def test_a_byte_quota_holds_copies_back_like_a_cap() -> None:
    store = Store(settings={"wal_shards": 1, "max_total_bytes": 1000})
    chain(store, "a", "b")
    store.append("a", "x" * 400)
    store.append("a", "y" * 250)
    assert len(datas(store, "b")) == 0
    store.log.delete("a", before_seq=2)
    assert [len(data) for data in datas(store, "b")] == [250]


# Exactly once


def test_a_signed_copy_names_its_record_and_is_not_made_twice(store: Store) -> None:
    store.log.create("a")
    store.log.route("r", source="a", dest="b", exactly_once=True)
    source = store.topic("a")
    key = f"router:r:{source.id}:{source.epoch}:"
    store.append("a", 1, meta={"m": 1})
    (copy,) = records(store, "b")
    assert copy.meta == {
        "m": 1,
        KEY: {
            "idempotency_key": f"{key}1",
            "router": "r",
            "source_topic": "a",
            "source_topic_id": source.id,
            "source_epoch": source.epoch,
            "source_seq": 1,
        },
    }
    store.append("b", "mine", meta={KEY: {"idempotency_key": f"{key}2"}})
    store.append("a", 2)
    store.append("a", 3)
    assert datas(store, "b") == [1, "mine", 3]
    assert store.log.routers()[0].forwarded_total == 3, "what is suppressed counts"
    store.kill()
    assert datas(store, "b") == [1, "mine", 3]
    assert records(store, "b")[0].meta == copy.meta


def test_a_record_at_the_size_limit_is_copied_with_its_signature(store: Store) -> None:
    store.log.route("r", source="a", dest="b", exactly_once=True)
    store.append("a", "x" * ((1 << 20) - 2))
    (copy,) = records(store, "b")
    assert len(copy.raw) == 1 << 20
    assert copy.meta[KEY]["source_seq"] == 1


# Restarts


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_acks_and_deletes_at_a_destination_stay_done(store: Store, durability: Durability) -> None:
    store.log.create("b", type="queue", durability=durability)
    store.log.route("r", source="a", dest="b")
    store.append("a", 1, 2, 3, tag="t")
    queue = store.log.queue("b")
    assert [job.data for job in queue.claim(2)] == [1, 2]
    queue.ack([1])
    store.append("b", "direct")
    seen = [(record.seq, record.data) for record in records(store, "b")]
    store.log.delete("a", match="t")  # the copies need nothing but the log
    store.kill()
    assert [(record.seq, record.data) for record in records(store, "b")] == seen
    assert seen == [(2, 2), (3, 3), (4, "direct")]


def test_copies_outlive_their_source_router_and_checkpoints(store: Store) -> None:
    chain(store, "a", "b", "c")
    store.append("a", 1, 2, tag="x")
    assert datas(store, "c") == [1, 2]
    store.log.checkpoint()
    store.append("a", 3, 4, tag="x")
    assert datas(store, "c") == [1, 2, 3, 4]
    store.log.route("b->c", source="b", dest="c", match="none")
    store.log.drop_router("b->c")
    store.log.drop("a")
    store.log.drop("b")
    for _ in range(3):
        store.kill()
        assert [(r.seq, r.data) for r in records(store, "c")] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    store.restart()
    assert datas(store, "c") == [1, 2, 3, 4]


def test_copies_of_records_that_were_never_logged_are_logged_themselves(store: Store) -> None:
    store.log.create("a", durability="ephemeral")
    store.log.create("b", durability="fsync")
    store.log.route("r", source="a", dest="b")
    store.append("a", 1, 2)
    assert datas(store, "b") == [1, 2]
    store.kill()
    page = store.log.read("b")
    assert [record.data for record in page.records] == [1, 2]
    store.append("a", 3)
    assert datas(store, "b") == [1, 2, 3]


def test_an_ephemeral_destination_keeps_its_place_but_not_its_copies(store: Store) -> None:
    store.log.create("b", durability="ephemeral")
    store.log.route("r", source="a", dest="b")
    store.append("b", "direct")
    store.append("a", 1, 2)
    assert datas(store, "b") == ["direct", 1, 2]
    store.append("a", 3)
    assert datas(store, "b") == ["direct", 1, 2, 3]
    store.kill()
    assert datas(store, "b") == []
    store.append("a", 4)
    assert datas(store, "b") == [4]


def test_a_source_in_another_shard_is_named_right_after_a_restart() -> None:
    store = Store(settings={"wal_shards": 3, "segment_max_events": 4})
    for at in range(6):
        store.log.route(f"r{at}", source=f"s{at}", dest=f"d{at}", exactly_once=True)
        store.append(f"s{at}", at)
        assert datas(store, f"d{at}") == [at]
    store.kill()
    for at in range(6):
        (copy,) = records(store, f"d{at}")
        assert copy.meta[KEY]["source_topic"] == f"s{at}"


def test_a_durable_copy_does_not_outlive_its_original_in_a_power_cut() -> None:
    store = Store(settings={"wal_shards": 3, "disk_sync_ms": 60_000})
    chain(store, "a", "b", durability="disk")
    store.log.create("c", durability="fsync")
    store.log.route("bc", source="b", dest="c")
    store.append("a", 1)
    assert datas(store, "c") == [1]
    store.lose_power()
    assert datas(store, "c") == [1], "shown by an fsync topic: there for good"


def test_copies_are_known_to_rest_on_their_originals_until_those_are_synced() -> None:
    store = Store(settings={"wal_shards": 3, "disk_sync_ms": 60_000})
    chain(store, "a", "b", "c", durability="disk")
    store.append("a", 1)
    assert datas(store, "c") == [1]
    shards = [store.kernel.committer.shard_of(store.topic(name).id) for name in "abc"]
    assert len(set(shards)) > 1
    store.log.drop_router("a->b")
    assert store.kernel.sync_marks.of(store.topic("c")).keys() == set(shards)
    store.log.sync()
    assert store.kernel.sync_marks.of(store.topic("c")).keys() == {shards[2]}


def test_a_copy_as_long_as_what_the_log_has_of_its_pass_is_found_between_direct_writes(
    store: Store,
) -> None:
    """The copy lies elsewhere, though the writes around it have just its length between them."""
    wanted = {}
    for size in range(40, 61):
        source, dest = f"a{size}", f"b{size}"
        chain(store, source, dest)
        store.append(source, "x" * size)
        store.append(dest, "before")
        store.log.state(dest)
        store.append(dest, "after")
        wanted[dest] = ["before", "x" * size, "after"]
        page = run(store.log._engine.page(store.topic(dest), 0, 3))
        assert [record.data for record in page.records] == wanted[dest]
    store.log.checkpoint()
    assert {dest: datas(store, dest) for dest in wanted} == wanted, "nor is it lost to a segment"


# Under way


def write(store: Store, name: str, value: int) -> Op[Any]:
    return store.log._engine.append(name, RecordBatch([b"%d" % value]))


def test_new_knobs_during_a_pass_do_not_send_its_records_twice() -> None:
    store = Held()
    chain(store, "a", "b")
    store.append("a", 1, 2)
    store.hold()
    engine = store.log._engine
    passing = store.tasks.begin(engine.forwarder.catch_up(store.topic("b")))
    changing = store.tasks.begin(engine.routing.put("a->b", RouterSpec("a", "b")))
    store.held.held.reverse()  # the new knobs are applied first
    store.let_go()
    assert passing.is_over
    assert changing.result[0] is False
    store.held.is_holding = False
    assert datas(store, "b") == [1, 2]


def test_direct_writes_and_copies_take_turns_at_a_destination() -> None:
    store = Held()
    chain(store, "a", "b", durability="fsync")
    store.append("a", 1)
    store.hold()
    engine = store.log._engine
    store.tasks.begin(write(store, "b", 100))
    store.tasks.begin(engine.forwarder.catch_up(store.topic("b")))
    store.tasks.begin(write(store, "b", 101))
    store.let_go()
    store.held.is_holding = False
    assert [(r.seq, r.data) for r in records(store, "b")] == [(1, 100), (2, 1), (3, 101)]
    store.kill()
    assert [(r.seq, r.data) for r in records(store, "b")] == [(1, 100), (2, 1), (3, 101)]


@pytest.mark.parametrize("together", [False, True])
def test_a_write_to_an_ephemeral_destination_does_not_overtake_copies(together: bool) -> None:
    """It needs no log itself; the copies, which have the lower seqs, do."""
    store = Held()
    chain(store, "a", "b")
    store.log.configure("b", durability="ephemeral")
    store.append("b", 0)
    store.append("a", 1, 2)
    store.hold()
    engine = store.log._engine
    store.tasks.begin(engine.forwarder.catch_up(store.topic("b")))
    assert engine.submit("b", RecordBatch([b"9"])) is None
    if together:
        batches = [RecordBatch([b"9"]), RecordBatch([b"9"])]
        assert run(engine.append_together("b", batches, Timing())) is None
    writing = [store.tasks.begin(write(store, "b", value)) for value in (3, 4)]
    assert not any(task.is_over for task in writing)
    store.let_go()
    assert [task.result.first_seq for task in writing] == [4, 5]
    store.held.is_holding = False
    assert [(r.seq, r.data) for r in records(store, "b")] == [(n + 1, n) for n in range(5)]


def test_a_read_that_waits_for_copies_to_a_topic_that_is_dropped_finds_none() -> None:
    store = Held()
    chain(store, "a", "b")
    store.log.configure("b", durability="ephemeral")
    store.append("b", 0)
    store.append("a", 1)
    store.hold()
    engine = store.log._engine
    reading = store.tasks.begin(engine.read("b", Query()))
    store.held.is_holding = False
    store.held.let_go()
    run(engine.drop("b"))
    store.tasks.settle()
    with pytest.raises(TopicNotFound):
        _ = reading.result


def test_a_checkpoint_waits_for_passes_and_passes_wait_for_it() -> None:
    store = Held()
    chain(store, "a", "b", durability="fsync")
    store.append("a", 1, tag="x")
    store.log.checkpoint()
    store.append("a", 2, tag="x")
    store.hold()
    engine = store.log._engine
    passing = store.tasks.begin(engine.forwarder.catch_up(store.topic("b")))
    store.tasks.begin(engine.delete("a", before=9, match=None))
    assert engine.upkeep is not None
    checkpoint = store.tasks.begin(engine.upkeep.checkpoint())
    store.held.held.sort(key=lambda submission: submission.durable)  # in whatever order
    store.let_go()
    assert passing.is_over
    assert checkpoint.is_over
    store.held.is_holding = False
    store.kill()
    assert datas(store, "b") == [1, 2]
    assert store.log.read("b").tombstone is None


def test_a_pass_that_waits_while_its_destination_becomes_one_that_syncs_syncs_its_source() -> None:
    store = Held(settings={"wal_shards": 3, "disk_sync_ms": 60_000})
    chain(store, "a", "b", durability="disk")
    shard_of = store.kernel.committer.shard_of
    assert shard_of(store.topic("a").id) != shard_of(store.topic("b").id)
    store.append("a", *range(300))  # more than the seqs that b has reserved
    store.hold()
    engine = store.log._engine
    passing = store.tasks.begin(engine.forwarder.catch_up(store.topic("b")))
    changing = store.tasks.begin(engine.put("b", {"durability": "fsync"}))
    store.let_go()
    assert passing.is_over
    assert changing.is_over
    store.held.is_holding = False
    assert store.topic("b").head == 300
    store.lose_power()
    assert datas(store, "b") == [*range(300)]


def test_copies_that_go_while_a_checkpoint_writes_them_do_not_stop_it() -> None:
    """A queue fed by a router is worked off at any moment of a checkpoint."""
    finished = False
    for moment in count():
        store = Store()
        chain(store, "a", "b")
        store.append("a", 1, 2, 3)
        assert datas(store, "b") == [1, 2, 3]
        engine = store.log._engine
        assert engine.upkeep is not None
        checkpoint = engine.upkeep.checkpoint()
        try:
            wait = next(checkpoint)
            for _ in range(moment):
                wait = fulfil(checkpoint, wait)
        except StopIteration:
            finished = True
            break
        run(engine.delete("b", before=4, match=None))
        run(resumed(checkpoint, wait))
        store.append("a", 4)
        assert datas(store, "b") == [4]
    assert finished


def test_a_failed_pass_leaves_its_router_where_it_was(store: Store) -> None:
    chain(store, "a", "b", durability="fsync")
    store.append("a", 1)
    forwarder = store.log._engine.forwarder

    def refuse(*args: object, **more: object) -> bool:
        raise Throttled.backlog(pressure=1.0, retry_after_ms=50)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forwarder._admission, "decide", refuse)
        assert datas(store, "b") == [], "a read does not fail for a router's sake"
    assert datas(store, "b") == [1]


# Refusals


def test_refusals_come_in_order_and_leave_nothing_behind() -> None:
    store = Store(settings={"wal_shards": 1, "max_routers": 2, "max_topics": 4})
    log = store.log
    log.route("r", source="a", dest="b")
    cases: list[tuple[str, dict[str, Any], type[TopicsError]]] = [
        (".bad", {"source": "x", "dest": "x"}, InvalidRequest),
        ("new", {"source": "x", "dest": "x"}, InvalidRequest),
        ("new", {"source": "_x", "dest": "b"}, InvalidRequest),
        ("new", {"source": "x", "dest": "y", "create_dest": False}, TopicNotFound),
        ("new", {"source": "x", "dest": "b"}, TopicExistsIncompatible),
        ("r", {"source": "a", "dest": "x"}, TopicExistsIncompatible),
        ("new", {"source": "b", "dest": "a"}, RouterCycle),
    ]
    for name, spec, kind in cases:
        with pytest.raises(kind):
            log.route(name, **spec)
    log.route("s", source="a", dest="b")
    with pytest.raises(Throttled):
        log.route("new", source="b", dest="a")  # the cap is judged before the cycle
    log.drop_router("s")
    log.create("c")
    with pytest.raises(Throttled):
        log.route("new", source="x", dest="y")  # two topics where one has room
    assert sorted(topic.topic for topic in log.topics()) == ["a", "b", "c"]
    assert [router.router for router in log.routers()] == ["r"]
    with pytest.raises(RouterNotFound):
        run(log._engine.routing.get("absent"))


def test_the_cycle_is_named_from_the_new_source_back_to_it(store: Store) -> None:
    chain(store, "a", "b", "c")
    with pytest.raises(RouterCycle) as caught:
        store.log.route("r", source="c", dest="a")
    assert caught.value.detail == {"cycle": ["c", "a", "b", "c"]}


def test_a_dropped_topic_takes_its_routers_and_a_new_one_has_none(store: Store) -> None:
    chain(store, "a", "b", "c")
    assert store.log.drop("b").routers_removed == ["a->b", "b->c"]
    store.append("b", 1)
    store.append("a", 2)
    store.kill()
    assert store.log.routers() == []
    assert (datas(store, "b"), datas(store, "c")) == ([1], [])
    assert store.log.drop_router("a->b") is False
