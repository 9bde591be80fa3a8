"""One interface, four doors: memory, a directory, a blocking client, an asyncio client.

Each test runs against every door and asserts results, not only that there are some.
"""

from __future__ import annotations

import itertools
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.blackbox.client_doors import AsyncDoor
from tests.blackbox.conftest import ServerProcess

import topics
from topics import errors
from topics.events import Arrived, CaughtUp, Lost, TopicDropped
from topics.values import (
    Acked,
    Audit,
    CommittedRange,
    Created,
    DeleteResult,
    Dropped,
    Eviction,
    Hole,
    Nacked,
    QueueCounts,
    QueueDetails,
    Record,
    Redriven,
    Tombstone,
    TopicState,
)

SERVER_ENV = {"TOPICS_WAL_SHARDS": "1"}
_numbers = itertools.count(1)
Door = Any
"""A log by whichever door; their types differ, which is what the suite is about."""


@pytest.fixture(scope="module", params=["memory", "directory", "server-sync", "server-async"])
def door(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    if request.param.startswith("server"):
        server: ServerProcess = request.getfixturevalue("shared_server")
        if request.param == "server-async":
            log: Door = AsyncDoor(server.url, heartbeat=30.0)
        else:
            log = topics.open(server.url, token=None, heartbeat=30.0)
    else:
        where = None if request.param == "memory" else tmp_path_factory.mktemp("log")
        log = topics.open(where)
    with log:
        yield log


@pytest.fixture
def name() -> Callable[[str], str]:
    """Names that no other test uses."""
    number = next(_numbers)
    return lambda text: f"c{number}.{text}"


Name = Callable[[str], str]


def datas(items: Iterable[object]) -> list[Any]:
    return [item.data for item in items if isinstance(item, Record)]


def wait_past(ts: int) -> None:
    """Until the clock shows a later millisecond."""
    while int(time.time() * 1000) <= ts:
        time.sleep(0.001)


# Topics


def test_creating_tells_whether_it_was_new_and_the_whole_config(door: Door, name: Name) -> None:
    made = door.create(name("t"), durability="fsync", cap_records=7)
    assert (made.topic, made.created) == (name("t"), True)
    assert len(made.config) == 17
    assert (made.config["durability"], made.config["cap_records"]) == ("fsync", 7)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (b"x", r'got bytes instead of records; append \{"data": value\}. Bytes as data must be'),
        ({"data": b"x"}, "the JSON is malformed: .*Bytes as data must be JSON: decode text"),
        ([{"data": b"1"}, {"data": b"x"}], "Bytes as data must be JSON"),
        ("x", r'got str instead of records; append \{"data": value\}, or a list of such records'),
        (7, "got int instead of records"),
        (None, "got NoneType instead of records"),
        ([7], r'record 0 is of type int; wrap it: \{"data": ...\}'),
        ([b"x"], r"record 0 is of type bytes; wrap it"),
    ],
)
def test_a_value_that_is_no_record_is_refused_with_what_to_do(
    door: Door, name: Name, given: object, advice: str
) -> None:
    with pytest.raises(errors.InvalidRequest, match=advice):
        door.append(name("t"), given)
    if not isinstance(given, dict):
        with pytest.raises(errors.InvalidRequest):
            door.stage(name("app"), 1, 0, given)


def test_a_scan_gives_everything_there_was_when_it_began(door: Door, name: Name) -> None:
    door.create(name("t"), cap_records=2300)
    door.append(name("t"), [{"data": n, "tag": f"t{n % 2}"} for n in range(2500)])
    page = door.read(name("t"), after=200, limit=100_000)
    assert (len(page.records), page.caught_up) == (1000, False)
    items = door.scan(name("t"))
    lost = next(items)
    assert (lost.gap_from, lost.gap_to) == (1, 200)
    assert next(items).seq == 201
    door.append(name("t"), {"data": "came later"}, node="late")
    door.delete(name("t"), match="t1")
    assert [item.seq for item in items][-650:] == list(range(1201, 2501, 2))
    assert [item.seq for item in door.scan(name("t"), after=2400, node="late")] == list(
        range(2401, 2501, 2)
    )
    matched = [item.seq for item in door.scan(name("t"), after=2490, match="t0")]
    assert matched == [2491, 2493, 2495, 2497, 2499]
    since = door.read(name("t"), after=2500).records[0].ts
    assert next(door.scan(name("t"), from_ts=since + 1), None) is None
    assert list(door.scan(name("t"), after=2501)) == []
    with pytest.raises(errors.TopicNotFound):
        next(door.scan(name("absent")))


def test_creating_a_topic_again_changes_nothing(door: Door, name: Name) -> None:
    made = door.create(name("t"), type="queue", durability="fsync", cap_records=3, lease_ms=1)
    door.append(name("t"), [{"data": n} for n in range(3)])
    same: list[dict[str, Any]] = [
        {},
        {"type": "queue", "cap_records": 3},
        {"durable": True},
        {"durability": None, "durable": True},
        {"lease_ms": 1},  # shorter than any lease is: both mean the shortest
        {"dead_letter": None},
    ]
    for settings in same:
        assert door.create(name("t"), **settings) == Created(name("t"), False, made.config)
    assert door.state(name("t")).config == made.config
    assert door.state(name("t")).count == 3


def test_creating_with_other_settings_is_refused_and_shows_the_difference(
    door: Door, name: Name
) -> None:
    made = door.create(name("t"), durability="fsync", ttl_ms=5)
    with pytest.raises(errors.TopicExists) as caught:
        door.create(name("t"), durability="disk", cap_records=1, ttl_ms=5)
    assert caught.value.differences == {"durability": ("fsync", "disk"), "cap_records": (0, 1)}
    assert '(cap_records: 0 -> 1, durability: "fsync" -> "disk")' in str(caught.value)
    assert caught.value.detail == {
        "topic": name("t"),
        "differences": {
            "durability": {"is": "fsync", "asked": "disk"},
            "cap_records": {"is": 0, "asked": 1},
        },
    }
    with pytest.raises(errors.TopicExists, match='type: "log" -> "queue"'):
        door.create(name("t"), type="queue")
    assert door.state(name("t")).config == made.config


def test_configuring_changes_what_is_named_and_nothing_else(door: Door, name: Name) -> None:
    made = door.create(name("q"), type="queue", durability="fsync", max_deliveries=3)
    changed = door.configure(name("q"), lease_ms=5000, max_deliveries=3, durability="memory")
    assert changed.changes == {"lease_ms": (30_000, 5000), "durability": ("fsync", "memory")}
    assert changed.evicted == Eviction(0, 0)
    expected = dict(made.config) | {"lease_ms": 5000, "durability": "memory", "durable": False}
    assert changed.config == door.state(name("q")).config == expected
    nothing = door.configure(name("q"), lease_ms=5000)
    assert (nothing.config, nothing.changes) == (expected, {})
    with pytest.raises(errors.TopicExistsIncompatible):
        door.configure(name("q"), type="log")
    with pytest.raises(errors.TopicNotFound):
        door.configure(name("absent"), ttl_ms=5)


def test_a_dry_run_says_what_a_tighter_limit_would_evict_and_changes_nothing(
    door: Door, name: Name
) -> None:
    topic = name("t")
    for n in range(10):
        door.append(topic, {"data": "x" * n, "meta": n})  # 3 + n bytes
    door.delete(topic, before_seq=2)
    door.append(topic, {"data": "x" * 100_000})
    before = door.state(topic)
    expected: list[tuple[dict[str, Any], Eviction]] = [
        ({"cap_records": 100}, Eviction(0, 0)),
        ({"cap_records": 8}, Eviction(2, 4 + 5)),
        ({"cap_bytes": before.bytes - 10}, Eviction(3, 4 + 5 + 6)),
        ({"cap_bytes": before.bytes - 9}, Eviction(2, 4 + 5)),
        ({"cap_bytes": 5}, Eviction(10, before.bytes)),
        ({"cap_records": 9, "cap_bytes": before.bytes - 10}, Eviction(3, 4 + 5 + 6)),
        ({"cap_records": 1, "discard": "reject"}, Eviction(0, 0)),
        ({"ttl_ms": 3_600_000}, Eviction(0, 0)),
    ]
    for settings, evicted in expected:
        tried = door.configure(topic, dry_run=True, **settings)
        assert (tried.evicted, tried.dry_run) == (evicted, True), settings
        assert list(tried.changes) == list(settings)
    assert door.state(topic).config == before.config
    assert door.state(topic).count == 10
    done = door.configure(topic, cap_bytes=before.bytes - 10)
    assert (done.evicted, done.dry_run) == (Eviction(3, 15), False)
    after = door.state(topic)
    assert (after.count, after.bytes) == (7, before.bytes - 15)


def test_a_dry_run_counts_what_a_shorter_life_would_expire(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": 1}, {"data": 2}])
    wait_past(door.read(name("t")).records[0].ts + 1)
    assert door.configure(name("t"), dry_run=True, ttl_ms=1).evicted == Eviction(2, 2)
    young = door.configure(name("t"), dry_run=True, ttl_ms=1, cap_records=1)
    assert young.evicted == Eviction(2, 2)
    assert door.state(name("t")).count == 2


def test_state_has_the_same_fields_everywhere(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": 1}, {"data": "two"}])
    state = door.state(name("t"))
    assert (state.head_seq, state.earliest_seq, state.next_seq) == (2, 1, 3)
    assert (state.count, state.bytes, state.type, state.queue) == (2, 6, "log", None)
    assert state.config["idempotency_window_ms"] == 120_000
    assert isinstance(state.epoch, int)
    assert state.delete_version == 0
    assert isinstance(state.last_write_ts, int)
    assert sorted(state.to_dict()) == sorted([*TopicState.__struct_fields__[:-1], "next_seq"])


def test_topics_are_listed_by_prefix_and_name(door: Door, name: Name) -> None:
    for last in "cab":
        door.create(name(last))
    found = door.topics(prefix=name(""))
    assert [summary.topic for summary in found] == [name("a"), name("b"), name("c")]
    assert (found[0].count, found[0].earliest_seq, found[0].durable) == (0, 1, False)


def test_a_list_with_details_tells_kind_losses_and_jobs(door: Door, name: Name) -> None:
    door.create(name("a"), cap_records=2)
    door.append(name("a"), [{"data": n} for n in range(5)])
    door.create(name("q"), type="queue", durability="memory")
    door.append(name("q"), {"data": 1})
    plain, _ = door.topics(prefix=name(""))
    assert (plain.type, plain.lost, plain.queue) == (None, None, None)
    assert "lost" not in plain.to_dict()
    log, queue = door.topics(prefix=name(""), details=True)
    assert (log.type, log.durability, log.lost, log.queue) == ("log", "disk", 3, None)
    assert (queue.type, queue.durability, queue.lost) == ("queue", "memory", 0)
    assert queue.queue == QueueDetails(1, 0, 0, 0)


def test_dropping_tells_what_went_and_an_absent_topic_is_no_error(door: Door, name: Name) -> None:
    door.route(name("r"), source=name("a"), dest=name("b"))
    assert door.drop(name("a")) == Dropped(name("a"), True, [name("r")])
    assert door.drop(name("a")) == Dropped(name("a"), False, [])
    door.append(name("b"), {"data": 1})
    with pytest.raises(errors.TopicNotEmpty) as caught:
        door.drop(name("b"), if_empty=True)
    assert caught.value.detail == {"topic": name("b"), "count": 1}


# Records


def test_appending_acks_with_seqs(door: Door, name: Name) -> None:
    first = door.append(name("t"), {"data": 1})
    second = door.append(name("t"), [{"data": 2}, {"data": 3}])
    assert (first.first_seq, first.last_seq, first.created, first.deduped) == (1, 1, True, False)
    assert (second.first_seq, second.last_seq, second.count, second.created) == (2, 3, 2, False)
    assert (list(second.seqs), second.head_seq, second.topic) == ([2, 3], 3, name("t"))


def test_a_record_comes_back_as_it_was_written(door: Door, name: Name) -> None:
    sent = [
        {"data": {"a": [1, None, "ü"]}, "tag": "room:4", "node": "n1", "meta": {"k": "v"}},
        {"data": b'{"z":1e2, "a":-0.0,"big":123456789012345678901234567890}', "meta": [1]},
        {"data": None, "tag": "x"},
        {"data": "text"},
    ]
    door.append(name("t"), sent, node="n2")
    page = door.read(name("t"))
    one, two, three, four = page.records
    assert (one.seq, one.node, one.tag, one.data, one.meta) == (
        1,
        "n1",
        "room:4",
        {"a": [1, None, "ü"]},
        {"k": "v"},
    )
    assert two.raw == b'{"z":1e2,"a":-0.0,"big":123456789012345678901234567890}'
    assert (two.node, two.tag, two.meta) == ("n2", None, [1])
    assert (three.data, three.tag, three.raw_meta) == (None, "x", None)
    assert four.to_dict() == {"$seq": 4, "$ts": four.ts, "$node": "n2", "data": "text"}
    assert (page.next_from_seq, page.caught_up, page.lag, page.tombstone) == (4, True, 0, None)
    assert (page.head_seq, page.earliest_seq, page.records_scanned) == (4, 1, 4)


def test_reading_goes_on_page_by_page(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": n} for n in range(10)])
    page = door.read(name("t"), limit=4)
    assert (datas(page.records), page.caught_up, page.lag) == ([0, 1, 2, 3], False, 6)
    page = door.read(name("t"), after=page.next_from_seq)
    assert (datas(page.records), page.caught_up) == ([4, 5, 6, 7, 8, 9], True)


def test_reading_leaves_out_nodes_and_takes_matching_tags(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": 1, "tag": "a:1", "node": "x"}, {"data": 2, "tag": "a:2"}])
    door.append(name("t"), [{"data": 3, "tag": "b"}, {"data": 4}])
    assert datas(door.read(name("t"), node="x").records) == [2, 3, 4]
    assert datas(door.read(name("t"), node=["x", "y"], match="a:*").records) == [2]
    assert datas(door.read(name("t"), match=["tag", "Eq", "b"]).records) == [3]
    page = door.read(name("t"), match="nothing")
    assert (list(page.records), page.next_from_seq, page.caught_up) == ([], 4, True)


def test_reading_from_a_time(door: Door, name: Name) -> None:
    door.append(name("t"), {"data": 1})
    ts = door.read(name("t")).records[0].ts
    assert datas(door.read(name("t"), from_ts=ts).records) == [1]
    assert datas(door.read(name("t"), from_ts=ts + 10_000_000).records) == []
    with pytest.raises(errors.InvalidRequest):
        door.read(name("t"), from_ts=ts, after=1)


def test_an_empty_read_is_a_page_like_any_other(door: Door, name: Name) -> None:
    door.create(name("t"))
    page = door.read(name("t"), wait=0.05)
    assert (list(page.records), page.caught_up, page.tombstone) == ([], True, None)


def test_a_waiting_read_is_woken_by_an_append(door: Door, name: Name) -> None:
    door.create(name("t"))
    thread = threading.Timer(0.1, lambda: door.append(name("t"), {"data": "late"}))
    thread.start()
    assert datas(door.read(name("t"), wait=30.0).records) == ["late"]
    thread.join()


def test_loss_is_announced_before_the_records(door: Door, name: Name) -> None:
    door.create(name("t"), cap_records=2)
    door.append(name("t"), [{"data": n} for n in range(1, 6)])
    page = door.read(name("t"))
    assert page.tombstone == Tombstone(1, 3, "cap", 4, 5)
    assert datas(page.records) == [4, 5]
    assert door.audit(name("t")).lost_cap == 3


def test_deleting_is_silent(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": n, "tag": f"k:{n % 2}"} for n in range(1, 7)])
    assert door.delete(name("t"), match="k:0") == DeleteResult(name("t"), 3, 1, 6, 3, 3)
    assert door.delete(name("t"), before_seq=4) == DeleteResult(name("t"), 2, 5, 6, 1, 1)
    page = door.read(name("t"))
    assert (datas(page.records), page.tombstone) == ([5], None)
    assert door.delete(name("t"), seqs=[6, 4], match="k:*").deleted == 0
    assert door.delete(name("t"), seqs=[5, 9], before_seq=6).deleted == 1
    with pytest.raises(errors.BatchTooLarge):
        door.delete(name("t"), seqs=range(1001))
    with pytest.raises(errors.InvalidRequest):
        door.delete(name("t"))
    with pytest.raises(errors.InvalidRequest):
        door.delete(name("t"), match=["tag", "Glob", "no star"])


def test_holes_and_the_audit_account_for_every_seq(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": n, "tag": str(n)} for n in range(1, 6)])
    door.delete(name("t"), match="2")
    door.delete(name("t"), match="4")
    found = door.holes(name("t"), from_seq=1, to_seq=5)
    assert list(found.runs) == [Hole(2, 2, "deleted"), Hole(4, 4, "deleted")]
    assert (found.next_from_seq, found.exact_from) == (6, 1)
    assert found.delete_version == door.state(name("t")).delete_version
    audit = door.audit(name("t"))
    assert isinstance(audit, Audit)
    assert (audit.written, audit.live, audit.deleted, audit.adds_up) == (5, 3, 2, True)
    assert list(audit.gaps) == []


def test_a_plan_covers_the_range(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": n} for n in range(1, 6)])
    plan = door.plan(name("t"), from_seq=1, to_seq=5)
    assert (plan.head_seq, plan.evict_floor, plan.next_from_seq) == (5, 1, 6)
    assert [(cut.from_seq, cut.to_seq, cut.records) for cut in plan.ranges] == [(1, 5, 5)]


def test_a_key_makes_a_repeat_harmless(door: Door, name: Name) -> None:
    first = door.append(name("t"), {"data": 1}, idempotency_key="k")
    again = door.append(name("t"), {"data": 2}, idempotency_key="k")
    assert (again.deduped, again.first_seq, again.created) == (True, first.first_seq, False)
    assert door.append(name("t"), {"data": 3}, idempotency_key="").deduped is False
    assert door.append(name("t"), {"data": 3}, idempotency_key="").deduped is True
    assert datas(door.read(name("t")).records) == [1, 3]


def test_expect_head_guards_an_append(door: Door, name: Name) -> None:
    assert door.append(name("t"), {"data": 1}, expect_head=0).first_seq == 1
    with pytest.raises(errors.HeadMismatch) as caught:
        door.append(name("t"), {"data": 2}, expect_head=0)
    assert caught.value.detail == {"topic": name("t"), "expected": 0, "head_seq": 1}


def test_an_append_creates_only_if_it_may(door: Door, name: Name) -> None:
    with pytest.raises(errors.TopicNotFound):
        door.append(name("t"), {"data": 1}, create=False)
    door.append(name("t"), {"data": 1}, config={"cap_records": 3})
    assert door.state(name("t")).config["cap_records"] == 3


def test_staged_records_appear_together(door: Door, name: Name) -> None:
    rows = [{"topic": name("a"), "data": 1, "tag": "x"}, {"topic": name("b"), "data": 2}]
    staged = door.stage(name("app"), 1, 0, rows)
    assert (staged.records, staged.bytes, staged.deduped) == (2, 2, False)
    done = door.commit(name("app"), 1, [(0, 0)])
    assert done.topics == {
        name("a"): CommittedRange(1, 1, 1),
        name("b"): CommittedRange(1, 1, 1),
    }
    assert door.commit(name("app"), 1, [(0, 0)]).deduped
    assert door.read(name("a")).records[0].tag == "x"
    with pytest.raises(errors.StaleEpoch):
        door.commit(name("app"), 0, [])


# Refusals: the same class, code and detail


ONE = {"data": 1}
REFUSALS: list[tuple[str, Callable[[Door, str], object], type[errors.TopicsError]]] = [
    ("read absent", lambda d, t: d.read(t), errors.TopicNotFound),
    ("state absent", lambda d, t: d.state(t), errors.TopicNotFound),
    ("audit absent", lambda d, t: d.audit(t), errors.TopicNotFound),
    ("delete absent", lambda d, t: d.delete(t, before_seq=1), errors.TopicNotFound),
    ("holes absent", lambda d, t: d.holes(t, from_seq=1, to_seq=2), errors.TopicNotFound),
    ("follow absent", lambda d, t: list(d.follow(t, wait=0)), errors.TopicNotFound),
    ("watch absent", lambda d, t: list(d.watch([t], wait=0)), errors.TopicNotFound),
    ("watch nothing", lambda d, t: list(d.watch([])), errors.InvalidRequest),
    ("claim absent", lambda d, t: d.queue(t).claim(), errors.TopicNotFound),
    ("cursor of absent", lambda d, t: d.cursor(t, "c"), errors.TopicNotFound),
    ("read nameless", lambda d, t: d.read(""), errors.TopicNotFound),
    ("create nameless", lambda d, t: d.create(""), errors.InvalidRequest),
    ("create bad name", lambda d, t: d.create("_" + t), errors.InvalidRequest),
    ("create with bad field", lambda d, t: d.create(t, ttl_ms="5"), errors.InvalidRequest),
    ("create with odd field", lambda d, t: d.create(t, durabilty="fsync"), errors.InvalidRequest),
    ("append odd setting", lambda d, t: d.append(t, ONE, config={"ttl": 1}), errors.InvalidRequest),
    ("append nothing", lambda d, t: d.append(t, []), errors.InvalidRequest),
    ("append no mapping", lambda d, t: d.append(t, [1]), errors.InvalidRequest),
    ("append no data", lambda d, t: d.append(t, {"tag": "x"}), errors.InvalidRequest),
    ("append odd field", lambda d, t: d.append(t, {"data": 1, "tga": 1}), errors.InvalidRequest),
    ("append no JSON", lambda d, t: d.append(t, {"data": object()}), errors.InvalidRequest),
    ("append bad JSON", lambda d, t: d.append(t, {"data": b"{"}), errors.InvalidRequest),
    ("append NaN", lambda d, t: d.append(t, {"data": float("nan")}), errors.InvalidRequest),
    ("long tag", lambda d, t: d.append(t, {"data": 1, "tag": "x" * 300}), errors.InvalidRequest),
    ("append large", lambda d, t: d.append(t, {"data": "x" * (1 << 20)}), errors.RecordTooLarge),
    ("append many", lambda d, t: d.append(t, [{"data": 1}] * 10001), errors.BatchTooLarge),
    ("long key", lambda d, t: d.append(t, ONE, idempotency_key="k" * 300), errors.InvalidRequest),
    ("negative after", lambda d, t: d.read(t, after=-1), errors.InvalidRequest),
    ("negative seqs", lambda d, t: d.delete(t, seqs=[-1]), errors.InvalidRequest),
    ("negative before", lambda d, t: d.delete(t, before_seq=-1), errors.InvalidRequest),
    ("after beyond 64 bits", lambda d, t: d.read(t, after=1 << 64), errors.InvalidRequest),
    ("before beyond 64 bits", lambda d, t: d.delete(t, before_seq=1 << 64), errors.InvalidRequest),
    ("negative claim", lambda d, t: d.queue(t).claim(-1), errors.InvalidRequest),
    ("route to itself", lambda d, t: d.route(t, source=t, dest=t), errors.InvalidRequest),
    ("stage nameless", lambda d, t: d.stage("app", 1, 0, [{"data": 1}]), errors.InvalidRequest),
]  # fmt: skip


@pytest.mark.parametrize(
    ("act", "kind"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS]
)
def test_a_refusal_is_the_same_error(
    door: Door, name: Name, act: Callable[[Door, str], object], kind: type[errors.TopicsError]
) -> None:
    with pytest.raises(kind) as caught:
        act(door, name("absent"))
    assert type(caught.value) is kind
    assert caught.value.code == kind.code
    if kind is errors.TopicNotFound:
        assert caught.value.detail is not None
        assert caught.value.detail["topic"] in (name("absent"), "")


def test_refusals_of_a_full_topic_and_a_log_that_is_no_queue(door: Door, name: Name) -> None:
    door.create(name("full"), discard="reject", cap_records=1)
    door.append(name("full"), {"data": 1})
    with pytest.raises(errors.TopicFull) as full:
        door.append(name("full"), {"data": 2})
    assert full.value.detail == {
        "topic": name("full"),
        "cap_records": 1,
        "cap_bytes": 0,
        "head_seq": 1,
        "earliest_seq": 1,
    }
    for act in (door.queue(name("full")).claim, door.queue(name("full")).stats):
        with pytest.raises(errors.NotAQueue) as caught:
            act()
        assert caught.value.detail == {"topic": name("full")}
    with pytest.raises(errors.TopicExistsIncompatible):
        door.create(name("full"), type="queue")


# Cursors and consumers


def test_named_cursors_tell_their_lag(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": n} for n in range(5)])
    put = door.set_cursor(name("t"), "billing", 2)
    assert (put.cursor, put.seq, put.head_seq, put.lag_records, put.gap_pending) == (
        "billing",
        2,
        5,
        3,
        False,
    )
    assert put.lag_seconds >= 0
    door.set_cursor(name("t"), "audit", 5)
    assert door.cursor(name("t"), "audit").lag_seconds == 0
    assert [cursor.cursor for cursor in door.cursors(name("t"))] == ["audit", "billing"]
    assert door.drop_cursor(name("t"), "audit") is True
    assert door.drop_cursor(name("t"), "audit") is False
    with pytest.raises(errors.NotFound):
        door.cursor(name("t"), "audit")
    with pytest.raises(errors.InvalidRequest):
        door.set_cursor(name("t"), "billing", 99)


def test_a_consumer_goes_on_where_it_committed(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": n} for n in range(6)])
    consumer = door.consumer(name("t"), name="billing")
    items = consumer.follow(wait=0)
    assert [next(items).data for _ in range(3)] == [0, 1, 2]
    state = consumer.commit()
    assert (state.seq, state.lag_records) == (3, 3)
    items.close()
    successor = door.consumer(name("t"), name="billing")
    assert datas(successor.follow(wait=0)) == [3, 4, 5]
    assert successor.lag().lag_records == 3
    successor.commit()
    assert successor.lag().lag_records == 0
    assert list(successor.read().records) == []


def test_a_consumer_may_start_with_what_comes(door: Door, name: Name) -> None:
    door.append(name("t"), {"data": "old"})
    consumer = door.consumer(name("t"), name="new", start="latest")
    assert consumer.lag().lag_records == 0
    door.append(name("t"), {"data": "new"})
    assert datas(consumer.read().records) == ["new"]


def test_a_consumer_with_a_filter_does_not_lag_behind_what_it_does_not_want(
    door: Door, name: Name
) -> None:
    door.append(name("t"), [{"data": n, "tag": "ab"[n % 2]} for n in range(4)])
    consumer = door.consumer(name("t"), name="a", match="a")
    assert datas(consumer.follow(wait=0)) == [0, 2]
    consumer.commit()
    assert consumer.lag().lag_records == 0


# Live


def test_following_gives_history_then_what_comes(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": n} for n in range(3)])
    items = door.follow(name("t"), wait=30.0)
    assert [next(items).data for _ in range(3)] == [0, 1, 2]
    door.append(name("t"), {"data": "live"})
    assert next(items).data == "live"
    items.close()


def test_following_ends_when_nothing_comes_and_raises_nothing(door: Door, name: Name) -> None:
    door.create(name("t"))
    assert list(door.follow(name("t"), wait=0.05)) == []
    door.append(name("t"), [{"data": n} for n in range(700)])
    assert datas(door.follow(name("t"), wait=0, limit=100)) == list(range(700))
    assert datas(door.follow(name("t"), after=698, wait=0)) == [698, 699]


def test_following_announces_loss_with_its_reason(door: Door, name: Name) -> None:
    door.create(name("t"), cap_records=2)
    door.append(name("t"), [{"data": n} for n in range(1, 6)])
    lost, *rest = list(door.follow(name("t"), wait=0))
    assert lost == Tombstone(1, 3, "cap", 4, 5)
    assert datas(rest) == [4, 5]


def test_following_from_now_on_leaves_history_out(door: Door, name: Name) -> None:
    door.append(name("t"), {"data": "old"})
    assert list(door.follow(name("t"), after=None, wait=0)) == []


def test_following_a_topic_that_is_dropped_says_that_it_is_gone(door: Door, name: Name) -> None:
    door.append(name("t"), {"data": 1})
    items = door.follow(name("t"))
    assert next(items).data == 1
    door.drop(name("t"))
    with pytest.raises(errors.TopicNotFound):
        next(items)


def test_following_filters_like_a_read(door: Door, name: Name) -> None:
    door.append(name("t"), [{"data": 1, "node": "x"}, {"data": 2, "tag": "a"}, {"data": 3}])
    assert datas(door.follow(name("t"), node="x", wait=0)) == [2, 3]
    assert datas(door.follow(name("t"), match="a", wait=0)) == [2]


def test_watching_many_topics_tells_them_apart(door: Door, name: Name) -> None:
    a, b = name("a"), name("b")
    door.create(b, cap_records=1)
    door.append(a, [{"data": 1}, {"data": 2}])
    door.append(b, [{"data": 3}, {"data": 4}])
    events = list(door.watch([b, a], wait=0))
    shown = [
        (event.topic, event.record.data) if isinstance(event, Arrived) else event
        for event in events
    ]
    assert shown == [
        (a, 1),
        (a, 2),
        CaughtUp(a, 2),
        Lost(b, Tombstone(1, 1, "cap", 2, 2)),
        (b, 4),
        CaughtUp(b, 2),
    ]
    assert [event.seq for event in events if isinstance(event, Arrived)] == [1, 2, 2]


def test_watching_begins_where_told_and_ends_when_all_topics_are_gone(
    door: Door, name: Name
) -> None:
    a, b = name("a"), name("b")
    door.append(a, [{"data": 1}, {"data": 2}])
    door.append(b, {"data": 3})
    events = door.watch({a: 1, b: None})
    assert next(events).record.data == 2
    assert [next(events), next(events)] == [CaughtUp(a, 2), CaughtUp(b, 1)]
    door.drop(a)
    assert next(events) == TopicDropped(a)
    door.append(b, {"data": 4})
    assert next(events).record.data == 4
    assert next(events) == CaughtUp(b, 2)
    door.drop(b)
    assert list(events) == [TopicDropped(b)]


# Queues


def test_jobs_are_claimed_acked_given_back_and_extended(door: Door, name: Name) -> None:
    door.create(name("q"), type="queue", lease_ms=60_000)
    door.append(name("q"), [{"data": n, "tag": f"t{n}", "meta": {"n": n}} for n in range(4)])
    queue = door.queue(name("q"), node="w1")
    jobs = list(queue.claim(3))
    assert [(job.seq, job.data, job.tag, job.meta, job.deliveries) for job in jobs] == [
        (n + 1, n, f"t{n}", {"n": n}, 1) for n in range(3)
    ]
    assert queue.stats() == QueueCounts(1, 3, 0)
    assert queue.ack([jobs[0]]) == Acked(name("q"), 1, [], 1, 2)
    assert queue.ack([jobs[0]]) == Acked(name("q"), 0, [1], 1, 2)
    assert queue.nack([jobs[1]]) == Nacked(name("q"), 1, [], 2, 1)
    longer = queue.extend([jobs[2]], lease_ms=120_000)
    assert (longer.extended, list(longer.skipped), list(longer.deadlines)) == (1, [], [3])
    assert longer.deadlines[3] > jobs[2].deadline_ms
    (back,) = queue.claim(1)
    assert (back.seq, back.deliveries) == (2, 2)
    assert queue.ack([2, 3, 4]) == Acked(name("q"), 2, [4], 1, 0)
    assert [job.data for job in door.queue(name("q"), node="w2").claim(9)] == [3]
    assert list(queue.claim()) == []


def test_jobs_are_looked_at_without_being_taken(door: Door, name: Name) -> None:
    door.create(name("q"), type="queue")
    door.append(name("q"), [{"data": 1, "tag": "t"}, {"data": 2}, {"data": 3}])
    queue = door.queue(name("q"), node="w")
    queue.claim(2, lease_ms=60_000)
    queue.nack([2], delay_ms=50_000, error="out of paper")
    leased, delayed, ready = queue.peek().jobs
    assert (leased.seq, leased.state, leased.node, leased.tag) == (1, "leased", "w", "t")
    assert leased.deadline_ts - leased.claimed_ts == 60_000
    assert (delayed.data, delayed.ready_ts > 0) == (2, True)
    assert (delayed.last_error.worker, str(delayed.last_error)) == ("w", "out of paper")
    assert (ready.data, ready.deliveries, ready.node) == (3, 0, None)
    found = queue.peek(1, state="ready")
    assert ([job.seq for job in found.jobs], found.more) == ([3], False)
    assert queue.peek(1).more
    with pytest.raises(errors.InvalidRequest):
        queue.peek(state="dead")
    with pytest.raises(errors.InvalidRequest):
        queue.peek(-1)


def test_dead_letters_can_be_put_back(door: Door, name: Name) -> None:
    door.create(name("q"), type="queue", max_deliveries=1, dead_letter=name("dead"))
    door.append(name("q"), {"data": "poison"})
    queue = door.queue(name("q"), node="w")
    queue.nack(queue.claim())
    assert list(queue.claim()) == []
    assert queue.stats().dead_lettered == 1
    (dead,) = door.read(name("dead")).records
    assert dead.meta == {
        "$dead_letter_from": name("q"),
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
    }
    assert queue.redrive(seqs=[2, 3]) == Redriven(name("q"), name("dead"), 0, False)
    assert queue.redrive(seqs=[1]) == Redriven(name("q"), name("dead"), 1, False)
    queue.nack(queue.claim())
    assert list(queue.claim()) == []
    assert queue.redrive() == Redriven(name("q"), name("dead"), 1, False)
    assert [job.data for job in queue.claim()] == ["poison"]


def test_a_worker_finishes_every_job_once(door: Door, name: Name) -> None:
    door.create(name("q"), type="queue")
    door.append(name("q"), [{"data": n} for n in range(20)])
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    with door.worker(name("q"), lambda job: done.put(job.data), concurrency=3, idle_s=0.05):
        got = sorted(done.get(timeout=60) for _ in range(20))
    assert got == list(range(20))
    assert done.empty()
    assert door.queue(name("q")).stats() == QueueCounts(0, 0, 0)


# Routers


def test_routers_copy_and_are_listed(door: Door, name: Name) -> None:
    made = door.route(name("r"), source=name("a"), dest=name("b"), match="x*", exactly_once=True)
    assert (made.router, made.source, made.dest) == (name("r"), name("a"), name("b"))
    assert (made.filter, made.guarantee) == (("tag", "Glob", "x*"), "exactly_once")
    assert (made.preserve_node, made.preserve_tag, made.allow_cycle) == (True, True, False)
    door.append(name("a"), [{"data": 1, "tag": "x1"}, {"data": 2}])
    assert datas(door.read(name("b")).records) == [1]
    (listed,) = door.routers(prefix=name(""))
    assert listed.forwarded_total == 1
    assert listed.lag == 0
    with pytest.raises(errors.RouterCycle):
        door.route(name("back"), source=name("b"), dest=name("a"))
    assert door.drop_router(name("r")) is True
    assert door.drop_router(name("r")) is False


def test_a_router_that_is_held_up_tells_how_far_it_is_behind(door: Door, name: Name) -> None:
    door.create(name("b"), cap_records=1, discard="reject")
    door.route(name("r"), source=name("a"), dest=name("b"))
    door.append(name("b"), {"data": "full"})
    door.append(name("a"), [{"data": n} for n in range(3)])
    assert datas(door.read(name("b")).records) == ["full"]
    assert [router.lag for router in door.routers(prefix=name(""))] == [3]


# Producers


def test_a_producer_keeps_order_and_tells_seqs(door: Door, name: Name) -> None:
    told: list[int | None] = []
    producer = door.producer(name("t"), max_records=7, on_delivery=lambda d: told.append(d.seq))
    with producer:
        for n in range(100):
            producer.send({"n": n}, tag=f"t{n}")
        producer.flush()
        assert told == list(range(1, 101))
    page = door.read(name("t"), limit=1000)
    assert [record.data["n"] for record in page.records] == list(range(100))
    assert page.records[3].tag == "t3"


def test_a_producer_gives_up_only_the_record_that_is_wrong(door: Door, name: Name) -> None:
    told: dict[str, Any] = {}
    producer = door.producer(name("t"), linger_ms=60_000)
    for word in ("one", "bad", "two"):
        producer.send(
            word,
            tag="x" * 300 if word == "bad" else None,
            on_delivery=lambda d, word=word: told.__setitem__(word, d),
        )
    with pytest.raises(errors.InvalidRequest):
        producer.flush()
    producer.close()
    assert datas(door.read(name("t")).records) == ["one", "two"]
    assert isinstance(told["bad"].error, errors.InvalidRequest)
    assert (told["one"].seq, told["two"].seq) == (1, 2)
    with pytest.raises(errors.Closed):
        producer.send(1)


def test_a_closed_door_says_so_whatever_is_asked(door: Door) -> None:
    # Own doors: the shared one has to stay open.
    other = AsyncDoor(door.url) if isinstance(door, AsyncDoor) else _another(door)
    if isinstance(other, AsyncDoor):
        other._loop.run(other._inner.close())
    else:
        other.close()
    with pytest.raises(errors.Closed):
        other.state("x")
    other.close()


def _another(door: Door) -> Door:
    url = getattr(door, "url", None)
    return topics.open() if url is None else topics.open(url, token=None)


def test_a_pickled_client_is_a_client(shared_server: ServerProcess, name: Name) -> None:
    with topics.open(shared_server.url, token=None, heartbeat=2.0) as log:
        log.append(name("t"), {"data": 1})
        with pickle.loads(pickle.dumps(log)) as copy:
            assert copy.read(name("t")).records[0].data == 1
            assert copy._heartbeat == 2.0


def test_the_directory_door_is_a_directory(tmp_path: Path) -> None:
    with topics.open(tmp_path / "log") as log:
        log.append("t", {"data": 1})
    assert (tmp_path / "log").is_dir()
