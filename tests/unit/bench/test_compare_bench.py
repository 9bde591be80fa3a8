"""The bytes that the comparison speaks, and what it makes of the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topics.bench.compare import report
from topics.bench.compare.dialect import CLAIM, PAGE, RECORD
from topics.bench.compare.kafka import KafkaDialect, crc32c, record_batch
from topics.bench.compare.nats import NatsDialect
from topics.bench.compare.ours import OurDialect
from topics.bench.compare.postgres import PostgresDialect
from topics.bench.compare.redis import RedisDialect
from topics.bench.compare.rows import ROWS, Measured


def test_an_answer_ends_only_when_all_of_it_is_there() -> None:
    redis = b"*1\r\n*2\r\n$4\r\nlive\r\n*-1\r\n"
    ours = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    nats = b"MSG _INBOX.bench.1 1 4\r\n+ACK\r\n"
    postgres = b"C\0\0\0\x05x" + b"Z\0\0\0\x05I"
    kafka = b"\0\0\0\x03abc"
    dialects = [RedisDialect(), OurDialect(), NatsDialect(), PostgresDialect(), KafkaDialect()]
    for dialect, answer in zip(dialects, [redis, ours, nats, postgres, kafka], strict=True):
        for size in range(len(answer)):
            assert dialect.end_of_answer(answer[:size], 0) == 0
        assert dialect.end_of_answer(answer + b"more", 0) == len(answer)


def test_the_ids_of_jobs_are_cut_out_of_a_claim() -> None:
    redis = RedisDialect()
    entry = b"*2\r\n$3\r\n%b\r\n*2\r\n$1\r\nd\r\n$2\r\n{}\r\n"
    claimed = b"*1\r\n*2\r\n$4\r\njobs\r\n*2\r\n" + entry % b"7-0" + entry % b"8-0"
    assert redis.jobs([claimed]) == [b"7-0", b"8-0"]
    assert redis.jobs([b"*-1\r\n"]) == []
    nats = NatsDialect()
    empty = b"HMSG _INBOX.bench.1 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n"
    assert nats.jobs([b"MSG i 1 $JS.ACK.jobs.9 2\r\n{}\r\n", empty]) == [b"$JS.ACK.jobs.9"]
    ours = b'HTTP/1.1 200 OK\r\n\r\n{"jobs":[{"$seq":7,"data":1},{"$seq":8,"data":2}]}'
    assert OurDialect().jobs([ours]) == [b"7", b"8"]


def test_an_error_in_an_answer_ends_the_run() -> None:
    refused = {
        RedisDialect(): b"-LOADING Redis is loading the dataset in memory\r\n",
        OurDialect(): b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        NatsDialect(): b"-ERR 'Authorization Violation'\r\n",
        PostgresDialect(): b"E\0\0\0\x0fSERROR\0Crefused\0",
        KafkaDialect(): b"\0\0\0\x13\0\0\0\x01\0\0\0\x01\0\x03log\0\0\0\x01\0\0\0\0\0\x03",
    }
    for dialect, answer in refused.items():
        with pytest.raises(RuntimeError):
            dialect.check(answer)


def test_a_batch_for_kafka_has_the_checksum_of_its_bytes() -> None:
    assert crc32c(b"123456789") == 0xE3069283, "the check value of CRC-32C"
    batch = record_batch(3)
    assert int.from_bytes(batch[8:12], "big") == len(batch) - 12
    assert int.from_bytes(batch[17:21], "big") == crc32c(batch[21:])
    assert batch.count(RECORD) == 3


def test_pages_and_claims_divide_what_is_filled_in() -> None:
    assert 4000 % PAGE == 0
    assert 4000 % CLAIM == 0


def test_a_ratio_above_one_says_that_topics_is_better() -> None:
    rate, latency = Measured(ROWS["read"]), Measured(ROWS["write1"])
    for measured in (rate, latency):
        measured.add("topics", 200.0)
        measured.add("redis", 100.0)
    assert rate.ratio("topics", "redis") == 2
    assert latency.ratio("topics", "redis") == 0.5
    assert rate.ratio("topics", "kafka") is None, "a peer without the row has no ratio"


def test_the_result_is_json_and_a_plot(tmp_path: Path) -> None:
    measured = Measured(ROWS["read"])
    for rounds in (3.0, 1.0, 2.0):
        measured.add("topics", rounds)
        measured.add("redis", 1.0)
    settings = {"topics": ("a", "b"), "redis": ("c", "d")}
    text = report.as_json([measured], {"echo": [1.0, 3.0]}, settings, {"kafka": "Java"})
    found = json.loads(text)
    assert found["rows"][0]["median"] == {"topics": 2.0, "redis": 1.0}
    assert found["rows"][0]["ratio"] == {"redis": 2.0}
    assert found["floor_us"] == {"echo": 2.0}
    assert found["left_out"] == {"kafka": "Java"}
    png, svg = report.draw([measured], ["topics", "redis"], tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()
