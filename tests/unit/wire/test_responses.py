import json
from typing import Any

import msgspec
import pytest

from topics import errors, values
from topics.wire import shapes
from topics.wire.responses import (
    claimed,
    diff_page,
    error_body,
    health,
    holes,
    job_members,
    performance,
    present,
    ready,
    records_page,
    time_spent,
    topic_configured,
    topic_state,
    write_ack,
    write_time_spent,
)

SPENT = performance(0.2)
TOMBSTONE = values.Tombstone(gap_from=1, gap_to=2, reason="cap", earliest_seq=3, head_seq=9)
ACK = values.Ack("orders", 1, 2, 2, 2, created=True)
CONFIG: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


def page(tombstone: values.Tombstone | None = None) -> values.Page:
    return values.Page("orders", [], 3, 9, 3, False, tombstone, 6, 1)


def state(queue: values.QueueCounts | None = None) -> values.TopicState:
    return values.TopicState(
        topic="orders",
        type="log" if queue is None else "queue",
        head_seq=0,
        earliest_seq=1,
        count=0,
        bytes=0,
        config=CONFIG,
        effective_priority=500,
        last_write_ts=None,
        last_read_ts=1790000000123,
        epoch=17,
        delete_version=9,
        queue=queue,
    )


# Performance


def test_times_are_short_floats_and_nothing_waited_is_exactly_zero() -> None:
    assert performance(0.19000000000000003) == b'{"server_total_ms":0.19}'
    assert performance(1) == b'{"server_total_ms":1.0}'
    assert write_time_spent(600_000, 100_400, 0, 0) == (
        b'{"server_total_ms":0.6,"wal_append_ms":0.1,"fsync_ms":0.0}'
    )


def test_what_did_not_happen_is_not_reported() -> None:
    assert performance(0.1, cold_segments_read=0, records_scanned=0) == (
        b'{"server_total_ms":0.1,"records_scanned":0}'
    )
    assert performance(0.1, cold_segments_read=3) == (
        b'{"server_total_ms":0.1,"cold_segments_read":3}'
    )
    assert write_time_spent(100_000, 0, 0, 2_500_000).endswith(b',"throttle_wait_ms":2.5}')


# Bodies, spelled as the API documents them


def test_a_write_lists_its_seqs_unless_declined() -> None:
    spent = write_time_spent(600_000, 100_000, 0, 0)
    tail = b'"performance":{"server_total_ms":0.6,"wal_append_ms":0.1,"fsync_ms":0.0}}'
    assert write_ack(ACK, spent) == (
        b'{"topic":"orders","first_seq":1,"last_seq":2,"seqs":[1,2],"head_seq":2,"count":2,'
        b'"created":true,"deduped":false,' + tail
    )
    assert write_ack(ACK, spent, return_seqs=False) == (
        b'{"topic":"orders","first_seq":1,"last_seq":2,"head_seq":2,"count":2,'
        b'"created":true,"deduped":false,' + tail
    )


def test_a_page_always_has_a_tombstone_if_only_null() -> None:
    rendered = b'[{"$seq":3,"$ts":1,"data":19.0}]'
    spent = performance(0.2, records_scanned=1)
    head = b'{"topic":"orders","records":[{"$seq":3,"$ts":1,"data":19.0}],"next_from_seq":3,'
    tail = b',"lag":6,"performance":{"server_total_ms":0.2,"records_scanned":1}}'
    assert b"".join(diff_page(page(TOMBSTONE), rendered, spent)) == (
        head + b'"head_seq":9,"earliest_seq":3,"caught_up":false,'
        b'"tombstone":{"gap_from":1,"gap_to":2,"reason":"cap","missed_estimate":2,'
        b'"earliest_seq":3,"head_seq":9}' + tail
    )
    assert b"".join(diff_page(page(), rendered, spent)) == (
        head + b'"head_seq":9,"earliest_seq":3,"caught_up":false,"tombstone":null' + tail
    )
    assert records_page(page(), rendered) == head + b'"caught_up":false,"tombstone":null}'


def test_a_topic_shows_its_state() -> None:
    config = msgspec.json.encode(CONFIG)
    assert topic_state(state(), SPENT) == (
        b'{"topic":"orders","type":"log","head_seq":0,"earliest_seq":1,"next_seq":1,"count":0,'
        b'"bytes":0,"config":%b,"effective_priority":500,"last_write_ts":null,'
        b'"last_read_ts":1790000000123,"epoch":17,"delete_version":9,'
        b'"performance":{"server_total_ms":0.2}}' % config
    )
    assert b'"queue":{"ready":5,"in_flight":0,"dead_lettered":0}' in topic_state(
        state(values.QueueCounts(5, 0, 0)), SPENT
    )


@pytest.mark.parametrize("ns", [0, 499, 500, 1_499_500, 1_500_000, 10_000_000, 12_345_678_901])
def test_the_time_alone_is_told_to_the_microsecond(ns: int) -> None:
    shown = json.loads(time_spent(ns))
    assert shown == {"server_total_ms": pytest.approx(ns / 1e6, abs=0.00051)}
    assert time_spent(ns) == performance((ns + 500) // 1000 / 1000)


def test_a_claim_shows_each_job_without_its_writer() -> None:
    rows = [
        (1, 10, 1790000030500, 1790000000500, 1, b'{"order":771}', "order:771", None),
        (2, 31, 5, 4, 2, b"null", None, b"{}"),
        (3, 32, 5, 4, 1, b"7", None, None),
    ]
    assert claimed("shop", list(map(job_members, rows)), SPENT, ready=3) == (
        b'{"topic":"shop","claimed":[{"$seq":1,"lease_id":"lease_a","deadline":1790000030500,'
        b'"$ts":1790000000500,"$tag":"order:771","deliveries":1,"data":{"order":771}},'
        b'{"$seq":2,"lease_id":"lease_1f","deadline":5,"$ts":4,"deliveries":2,"data":null,'
        b'"meta":{}},{"$seq":3,"lease_id":"lease_20","deadline":5,"$ts":4,"deliveries":1,"data":7}],'
        b'"count":3,"ready":3,"performance":{"server_total_ms":0.2}}'
    )
    assert claimed("shop", [], SPENT, ready=0).startswith(
        b'{"topic":"shop","claimed":[],"count":0,"ready":0,'
    )


def test_holes_are_triples() -> None:
    runs = [values.Hole(41, 43, "deleted"), values.Hole(88, 89, "crash")]
    assert holes(values.Holes("orders", 17, 9, runs, 90, 1), SPENT) == (
        b'{"topic":"orders","epoch":17,"delete_version":9,"runs":[[41,43,"deleted"],'
        b'[88,89,"crash"]],"next_from_seq":90,"exact_from":1,'
        b'"performance":{"server_total_ms":0.2}}'
    )


ROUTER = shapes.RouterShape(
    router="orders->packing",
    created=True,
    source="orders",
    dest="packing",
    preserve_node=True,
    preserve_tag=True,
    filter=("tag", "Glob", "eu:*"),
    allow_cycle=False,
    guarantee="at_least_once",
)
PRESENTED: list[tuple[msgspec.Struct, bytes]] = [
    (
        ROUTER,
        b'{"router":"orders->packing","created":true,"source":"orders","dest":"packing",'
        b'"preserve_node":true,"preserve_tag":true,"filter":["tag","Glob","eu:*"],'
        b'"allow_cycle":false,"guarantee":"at_least_once"',
    ),
    (
        shapes.RouterList([shapes.RouterSummary("r", "a", "b", "exactly_once", 3)]),
        b'{"routers":[{"router":"r","source":"a","dest":"b","guarantee":"exactly_once",'
        b'"forwarded_total":3}]',
    ),
    (shapes.RouterDropped("r", False), b'{"router":"r","deleted":false'),
    (
        shapes.TopicList([shapes.TopicEntry("a", 2, 1, 2, 8, False, 0)], "eyJ"),
        b'{"topics":[{"topic":"a","head_seq":2,"earliest_seq":1,"count":2,"bytes":8,'
        b'"durable":false,"effective_priority":0}],"next_cursor":"eyJ"',
    ),
    (
        values.Dropped("a", True, ["r1", "r2"]),
        b'{"topic":"a","deleted":true,"routers_removed":["r1","r2"]',
    ),
    (
        values.DeleteResult("a", 1, 2, 9, 8, 64),
        b'{"topic":"a","deleted":1,"earliest_seq":2,"head_seq":9,"count":8,"bytes":64',
    ),
    (
        shapes.WatchOpened("wid_x", "/v0/watch/wid_x", 300_000, {"a": shapes.StreamStart(1, 4, 3)}),
        b'{"wid":"wid_x","stream_url":"/v0/watch/wid_x","session_ttl_ms":300000,'
        b'"topics":{"a":{"from_seq":1,"head_seq":4,"earliest_seq":3}}',
    ),
    (
        shapes.AckedShape("q", 1, [7], 2, 3),
        b'{"topic":"q","acked":1,"skipped":[7],"ready":2,"in_flight":3',
    ),
    (
        shapes.NackedShape("q", 1, [], 2, 3),
        b'{"topic":"q","nacked":1,"skipped":[],"ready":2,"in_flight":3',
    ),
    (
        shapes.ExtendedShape("q", 1, [], {"17": 1790000060000}),
        b'{"topic":"q","extended":1,"skipped":[],"deadlines":{"17":1790000060000}',
    ),
    (
        shapes.RedrivenShape("q", "dead", 2, True),
        b'{"topic":"q","from":"dead","moved":2,"more":true',
    ),
    (
        values.CursorState("orders", "etl", 100, 1790000009000, 120, 18, 20, 4.21, False),
        b'{"topic":"orders","cursor":"etl","seq":100,"updated_ts":1790000009000,"head_seq":120,'
        b'"lag_records":18,"lag_seqs":20,"lag_seconds":4.21,"gap_pending":false',
    ),
    (shapes.CursorList("a", []), b'{"topic":"a","cursors":[]'),
    (shapes.CursorDropped("a", "c", True), b'{"topic":"a","cursor":"c","deleted":true'),
    (
        values.Audit(
            "a", 17, 120, 41, 41, 0, 0, 120, 76, 2, 40, 0, 2, [values.Gap(88, 89, "cap", "crash")]
        ),
        b'{"topic":"a","epoch":17,"head_seq":120,"earliest_seq":41,"evict_floor":41,"skipped":0,'
        b'"source_trim":0,"written":120,"live":76,"deleted":2,"lost_cap":40,"lost_ttl":0,'
        b'"lost_crash":2,"gaps":[{"gap_from":88,"gap_to":89,"reason":"cap","cause":"crash"}]',
    ),
    (
        shapes.PlanShape("a", 17, 9, 120_000, 41, [(41, 10_000, 9958, 2_491_020)], 120_001),
        b'{"topic":"a","epoch":17,"delete_version":9,"head_seq":120000,"evict_floor":41,'
        b'"ranges":[[41,10000,9958,2491020]],"next_from_seq":120001',
    ),
    (
        shapes.StagedShape("app", 3, 0, 1, 2, 64),
        b'{"app":"app","epoch":3,"part":0,"attempt":1,"records":2,"bytes":64',
    ),
    (
        shapes.Committed("app", 3, False, {"a": shapes.CommittedRun(1, 2, 2)}),
        b'{"app":"app","epoch":3,"deduped":false,'
        b'"topics":{"a":{"first_seq":1,"last_seq":2,"count":2}}',
    ),
]


@pytest.mark.parametrize(
    ("shape", "body"), PRESENTED, ids=[type(shape).__name__ for shape, _ in PRESENTED]
)
def test_a_shape_is_sent_compact_in_field_order(shape: msgspec.Struct, body: bytes) -> None:
    assert present(shape, SPENT) == body + b',"performance":{"server_total_ms":0.2}}'


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (write_ack(ACK, SPENT), shapes.WriteAck),
        (write_ack(ACK, SPENT, return_seqs=False), shapes.WriteAck),
        (
            b"".join(diff_page(page(TOMBSTONE), b'[{"$seq":1,"$ts":2,"data":{}}]', SPENT)),
            shapes.DiffPage,
        ),
        (records_page(page(), b"[]"), shapes.RecordsPage),
        (topic_state(state(), SPENT), shapes.TopicStateBody),
        (topic_state(state(values.QueueCounts(1, 2, 3)), SPENT), shapes.TopicStateBody),
        (topic_configured(values.Created("a", True, CONFIG), SPENT), shapes.TopicConfigured),
        (holes(values.Holes("a", 1, 2, [], 3, 4), SPENT), shapes.HolesPage),
        (
            claimed("q", [job_members((1, 2, 3, 4, 5, b"1", "t", b"{}"))], SPENT, ready=0),
            shapes.ClaimedShape,
        ),
    ],
)
def test_a_spliced_body_has_exactly_the_fields_of_its_shape(
    body: bytes, shape: type[msgspec.Struct]
) -> None:
    parsed = msgspec.json.decode(body, type=shape)
    shown = json.loads(body)
    shown.pop("performance", None)
    assert json.loads(msgspec.json.encode(parsed)) == shown


# Errors and probes


def test_an_error_has_a_detail_only_if_there_is_one() -> None:
    assert error_body(errors.TopicNotFound("x")) == (
        b'{"error":{"code":"topic_not_found",'
        b'"message":"topic \\"x\\" does not exist; create it or write to it first",'
        b'"detail":{"topic":"x"}}}'
    )
    assert error_body(errors.Internal("no")) == b'{"error":{"code":"internal","message":"no"}}'


def test_an_error_always_has_a_message_that_can_be_sent() -> None:
    assert b'"message":"internal"' in error_body(errors.Internal(""))
    assert b'"message":"file ?.wal"' in error_body(errors.Internal("file \udcff.wal"))


def test_probes_say_nothing_of_performance() -> None:
    assert health(version="1.2", uptime_ms=5) == b'{"status":"ok","version":"1.2","uptime_ms":5}'
    assert ready(topics=3) == b'{"status":"ready","wal_replay_complete":true,"topics":3}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "the stage could not be written: [Errno 28] No space left on device: "
            "'/srv/my data/it\\'s/stages/a.tmp' -> '/srv/my data/stages/a'; stage it again",
            "",
        ),
        (
            """log shard 0 failed (write: [Errno 5] Input/output error: "/srv/it's/wal/0.log")""",
            'log shard 0 failed (write: [Errno 5] Input/output error: "0.log")',
        ),
        (
            "[Errno 2] No such file or directory: '/data/segments/00/1.seg'",
            "[Errno 2] No such file or directory: '1.seg'",
        ),
        ("cannot read /srv/topics/wal/00.log, or (/srv/x/y)", "cannot read 00.log, or (y)"),
        ("records of topic 'a/b' could not be read", "records of topic 'a/b' could not be read"),
    ],
)
def test_where_a_server_keeps_its_files_is_not_told(text: str, told: str) -> None:
    message = json.loads(error_body(errors.Internal(text)))["error"]["message"]
    assert "/srv" not in message
    assert "/data" not in message
    if told:
        assert message == told
    else:
        assert message.startswith("the stage could not be written: [Errno 28] No space left")
        assert message.endswith("; stage it again")


def test_a_path_in_what_a_client_asked_for_is_told_as_it_was() -> None:
    message = json.loads(error_body(errors.NotFound("the path /v0/nothing/here")))
    assert "/v0/nothing/here" in message["error"]["message"]


def test_an_error_never_repeats_megabytes_of_what_was_sent() -> None:
    name = "x" * 5_000_000
    for error in (
        errors.Forbidden(topic=name),
        errors.InvalidRequest(name + "; use another", dead_letter=name),
        errors.MisspeltField(name, did_you_mean="match"),
    ):
        told = error_body(error)
        assert len(told) < 4000
        assert b"use another" in told or b"correct the name" in told
