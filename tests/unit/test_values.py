import pickle
from decimal import Decimal
from typing import Any

import pytest

from topics.values import (
    Ack,
    Audit,
    Created,
    CursorState,
    DeleteResult,
    Dropped,
    Gap,
    Hole,
    Holes,
    Page,
    QueueCounts,
    Record,
    Tombstone,
    TopicState,
    TopicSummary,
    Value,
    parse,
)

RECORD = Record(3, 1_790_000_004_411, "gw-south", "room:4", b'{"c":19.0}', b'{"fw":"2.3"}')
TOMBSTONE = Tombstone(gap_from=1, gap_to=2, reason="cap", earliest_seq=3, head_seq=9)


def test_a_record_shows_its_payload_parsed_and_as_stored() -> None:
    assert RECORD.data == {"c": 19.0}
    assert RECORD.meta == {"fw": "2.3"}
    assert RECORD.raw == b'{"c":19.0}'
    assert RECORD.raw_meta == b'{"fw":"2.3"}'


def test_a_record_parses_its_payload_once() -> None:
    record = Record(1, 2, None, None, b"[1]", b"[2]")
    assert record.data is record.data
    assert record.meta is record.meta


def test_a_null_payload_is_remembered_like_any_other() -> None:
    record = Record(1, 2, None, None, b"null", b"null")
    assert record.data is None
    assert record.meta is None
    assert record.to_dict() == {"$seq": 1, "$ts": 2, "data": None, "meta": None}


def test_looking_at_a_record_does_not_change_what_it_equals() -> None:
    one, two = (Record(1, 2, "n", None, b"[1]") for _ in range(2))
    assert one.data == [1]
    assert one == two
    assert hash(one) == hash(two)
    assert one != Record(1, 2, "n", None, b"[2]")
    assert one != "a record"


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        RECORD.seq = 4  # type: ignore[misc]  # the refusal is what is tested


def test_a_record_pickles_without_what_it_remembered() -> None:
    record = Record(1, 2, None, "t", b"[1]", b"{}")
    assert record.data == [1]
    copy = pickle.loads(pickle.dumps(record))
    assert copy == record
    assert copy.data == [1]
    assert copy.data is not record.data


def test_a_record_names_only_what_was_set() -> None:
    bare = Record(1, 2, None, None, b"0")
    assert bare.meta is None
    assert bare.to_dict() == {"$seq": 1, "$ts": 2, "data": 0}
    assert repr(bare) == "Record(seq=1, time=1970-01-01T00:00:00.002Z, data=0)"
    assert RECORD.to_dict() == {
        "$seq": 3,
        "$ts": 1_790_000_004_411,
        "$node": "gw-south",
        "$tag": "room:4",
        "data": {"c": 19.0},
        "meta": {"fw": "2.3"},
    }
    assert "node='gw-south', tag='room:4'" in repr(RECORD)
    assert 'meta={"fw":"2.3"}' in repr(RECORD)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"1e400", Decimal("1e400")),
        (b"-1e400", Decimal("-1e400")),
        (b"[1e400,1.5,7]", [Decimal("1e400"), 1.5, 7]),
        (b"1" * 40, int("1" * 40)),
        (b"1" * 5000, Decimal("1" * 5000)),
        (b"1e-400", 0.0),
        (b'{"a":1,"a":2}', {"a": 2}),
    ],
)
def test_numbers_too_large_for_python_are_read_exactly(raw: bytes, value: object) -> None:
    assert parse(raw) == value


def test_a_tombstone_estimates_what_was_missed() -> None:
    assert TOMBSTONE.missed_estimate == 2
    recreated = Tombstone(1, 0, "recreated", earliest_seq=1, head_seq=0)
    assert recreated.missed_estimate == 1


def test_an_ack_lists_the_seqs_in_order() -> None:
    ack = Ack("t", 4, 6, 6, 3)
    assert ack.seqs == range(4, 7)
    assert (ack.created, ack.deduped) == (False, False)


def test_an_audit_tells_whether_it_adds_up() -> None:
    assert audit().adds_up
    assert not audit(live=75).adds_up
    assert not audit(skipped=1).adds_up


def audit(**changed: int) -> Audit:
    facts: dict[str, Any] = {
        "topic": "orders",
        "epoch": 17,
        "head_seq": 120,
        "earliest_seq": 41,
        "evict_floor": 41,
        "skipped": 0,
        "source_trim": 0,
        "written": 120,
        "live": 76,
        "deleted": 2,
        "lost_cap": 40,
        "lost_ttl": 0,
        "lost_crash": 2,
        "gaps": [Gap(88, 89, "cap", "crash")],
    }
    return Audit(**{**facts, **changed})


def state(*, queue: QueueCounts | None = None) -> TopicState:
    return TopicState(
        topic="orders",
        type="log" if queue is None else "queue",
        head_seq=4,
        earliest_seq=2,
        count=3,
        bytes=30,
        config={"ttl_ms": 0},
        effective_priority=500,
        last_write_ts=None,
        last_read_ts=9,
        epoch=17,
        delete_version=1,
        queue=queue,
    )


STATE_FIELDS = {
    "topic": "orders",
    "head_seq": 4,
    "earliest_seq": 2,
    "next_seq": 5,
    "count": 3,
    "bytes": 30,
    "config": {"ttl_ms": 0},
    "effective_priority": 500,
    "last_write_ts": None,
    "last_read_ts": 9,
    "epoch": 17,
    "delete_version": 1,
}

SHAPES: list[tuple[Value, dict[str, Any]]] = [
    (
        TOMBSTONE,
        {
            "gap_from": 1,
            "gap_to": 2,
            "reason": "cap",
            "missed_estimate": 2,
            "earliest_seq": 3,
            "head_seq": 9,
        },
    ),
    (
        Ack("t", 1, 2, 2, 2, created=True),
        {
            "topic": "t",
            "first_seq": 1,
            "last_seq": 2,
            "seqs": [1, 2],
            "head_seq": 2,
            "count": 2,
            "created": True,
            "deduped": False,
        },
    ),
    (
        Page("t", [RECORD], 3, 9, 3, False, TOMBSTONE, lag=6, records_scanned=1),
        {
            "topic": "t",
            "records": [RECORD.to_dict()],
            "next_from_seq": 3,
            "head_seq": 9,
            "earliest_seq": 3,
            "caught_up": False,
            "tombstone": TOMBSTONE.to_dict(),
            "lag": 6,
            "performance": {"records_scanned": 1},
        },
    ),
    (
        Page("t", (), 0, 0, 1, True),
        {
            "topic": "t",
            "records": [],
            "next_from_seq": 0,
            "head_seq": 0,
            "earliest_seq": 1,
            "caught_up": True,
            "tombstone": None,
            "lag": 0,
            "performance": {"records_scanned": 0},
        },
    ),
    (state(), {**STATE_FIELDS, "type": "log"}),
    (
        state(queue=QueueCounts(ready=5, in_flight=1, dead_lettered=0)),
        {
            **STATE_FIELDS,
            "type": "queue",
            "queue": {"ready": 5, "in_flight": 1, "dead_lettered": 0},
        },
    ),
    (
        TopicSummary("t", 9, 3, 7, 70, False, 500),
        {
            "topic": "t",
            "head_seq": 9,
            "earliest_seq": 3,
            "count": 7,
            "bytes": 70,
            "durable": False,
            "effective_priority": 500,
        },
    ),
    (
        Created("t", True, {"ttl_ms": 0}),
        {"topic": "t", "created": True, "config": {"ttl_ms": 0}},
    ),
    (
        Dropped("t", True, ("a->b",)),
        {"topic": "t", "deleted": True, "routers_removed": ["a->b"]},
    ),
    (
        DeleteResult("t", 2, 3, 9, 7, 70),
        {"topic": "t", "deleted": 2, "earliest_seq": 3, "head_seq": 9, "count": 7, "bytes": 70},
    ),
    (
        CursorState("t", "etl", 100, 9000, 120, 18, 20, 4.21, False),
        {
            "topic": "t",
            "cursor": "etl",
            "seq": 100,
            "updated_ts": 9000,
            "head_seq": 120,
            "lag_records": 18,
            "lag_seqs": 20,
            "lag_seconds": 4.21,
            "gap_pending": False,
        },
    ),
    (
        Holes("t", 17, 9, [Hole(41, 43, "deleted"), Hole(88, 89, "crash")], 90, 1),
        {
            "topic": "t",
            "epoch": 17,
            "delete_version": 9,
            "runs": [[41, 43, "deleted"], [88, 89, "crash"]],
            "next_from_seq": 90,
            "exact_from": 1,
        },
    ),
]


@pytest.mark.parametrize(("value", "shape"), SHAPES, ids=lambda item: type(item).__name__)
def test_a_value_is_shown_with_the_field_names_of_the_api(
    value: Value, shape: dict[str, Any]
) -> None:
    assert value.to_dict() == shape


@pytest.mark.parametrize("value", [value for value, _ in SHAPES], ids=lambda v: type(v).__name__)
def test_a_value_survives_pickling(value: Value) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_an_audit_shows_its_gaps_as_objects() -> None:
    shown = audit().to_dict()
    assert shown["gaps"] == [{"gap_from": 88, "gap_to": 89, "reason": "cap", "cause": "crash"}]
    assert shown["lost_cap"] == 40
