"""Long bodies are decoded in several steps, unless there is something odd about them."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TypeVar

import pytest
from msgspec import Raw

from topics.batch import RecordBatch
from topics.wire.requests import (
    PublishCommand,
    StageRequest,
    WriteRequest,
    decode_command_and_write,
    decode_command_in_steps,
    decode_stage_in_steps,
    decode_write_in_steps,
    long_writes,
    writing,
)

T = TypeVar("T")
RECORDS = [{"topic": f"t{n}", "data": n} for n in range(5)]
DATAS = [b"0", b"1", b"2", b"3", b"4"]


def counted(steps: Generator[None, None, T]) -> tuple[T, int]:
    """What the steps come to, and how many there were."""
    for count in range(1000):
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
    raise AssertionError("it never ends")


def as_json(**body: object) -> bytes:
    return json.dumps(body).encode()


def test_a_write_takes_a_step_for_each_piece() -> None:
    body = as_json(records=RECORDS, idempotency_key="k", expect_head=4, create=False)
    sent, steps = counted(decode_write_in_steps(body, piece_bytes=0))
    assert sent == WriteRequest(
        RecordBatch(DATAS), idempotency_key="k", expect_head=4, create=False
    )
    assert steps == len(RECORDS)


def test_columns_begin_with_the_first_record_that_uses_them() -> None:
    mixed = [
        {"data": 0},
        {"data": 1, "tag": "a"},
        {"data": 2, "node": "own"},
        {"data": 3, "meta": {"m": 1}},
        {"data": 4},
    ]
    sent, _ = counted(decode_write_in_steps(as_json(records=mixed, node="all"), piece_bytes=0))
    assert sent is not None
    assert sent.drafts == RecordBatch(
        DATAS,
        [b"", b"", b"", b'{"m":1}', b""],
        [None, "a", None, None, None],
        ["all", "all", "own", "all", "all"],
    )


def test_a_stage_keeps_the_topic_of_each_record() -> None:
    sent, steps = counted(decode_stage_in_steps(as_json(records=RECORDS), piece_bytes=0))
    assert sent == StageRequest([f"t{n}" for n in range(5)], RecordBatch(DATAS))
    assert steps == len(RECORDS)


def test_a_publish_comes_with_what_it_writes() -> None:
    body = as_json(op="publish", topic="orders", request_id=7, records=RECORDS)
    read, steps = counted(decode_command_in_steps(body, piece_bytes=0))
    assert read is not None
    command, sent = read
    assert isinstance(command, PublishCommand)
    assert (command.topic, command.request_id) == ("orders", Raw(b"7"))
    assert sent == WriteRequest(RecordBatch(DATAS))
    assert steps == len(RECORDS)


def test_another_command_is_not_cut_though_it_has_records() -> None:
    body = as_json(op="ping", request_id=7, records=RECORDS)
    assert counted(decode_command_in_steps(body, piece_bytes=0))[0] is None
    command, sent = decode_command_and_write(body)
    assert sent is None
    assert not isinstance(command, PublishCommand)


def test_of_too_many_records_only_the_number_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, long_writes):
        monkeypatch.setattr(module, "REFUSED_RECORDS", 3)
    write, _ = counted(decode_write_in_steps(as_json(records=RECORDS), piece_bytes=0))
    assert write == WriteRequest(RecordBatch([b""] * 5))
    config = {"type": "queue"}
    body = as_json(op="publish", topic="t", records=RECORDS, config=config)
    read, _ = counted(decode_command_in_steps(body, piece_bytes=0))
    assert read is not None
    publish = read[1]
    assert publish is not None
    assert publish.drafts == RecordBatch([b""] * 5)
    assert publish.config is not None, "whoever may not configure is told that first"


def test_a_mistake_is_left_to_who_reads_the_whole_body() -> None:
    records = [*RECORDS, {"data": 1, "tag": 5}]
    assert counted(decode_write_in_steps(as_json(records=records), piece_bytes=0))[0] is None
