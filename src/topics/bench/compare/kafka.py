"""Apache Kafka: one broker that is its own controller (KRaft), one partition a topic.

There is no queue in the protocol that this benchmark speaks, so that row stays empty.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from topics.bench.compare import kafka_jars
from topics.bench.compare.dialect import HISTORY, LIVE, LOG, PAGE, RECORD, Asked, Dialect, Script
from topics.bench.compare.peer import Peer, free_port, listening
from topics.bench.server_process import ServingChild

PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS = (0, 3), (1, 4), (2, 1), (19, 2)
"""Numbers of requests, each with the version that is spoken here."""

PATIENCE_MS = 30_000
CLUSTER = "dG9waWNzLWJlbmNoLTAwMQ"
FILLED = 500
"""Records of a batch that fills `HISTORY`: a page is an even number of such batches."""

_CRC32C = 0x82F63B78


class KafkaDialect(Dialect):
    """Produce, Fetch, ListOffsets and CreateTopics. A batch is one record batch."""

    has_queue = False

    def greeting(self) -> Sequence[Asked]:
        return []

    def preparation(self, *, synced: bool) -> Sequence[Asked]:
        del synced  # a setting of the broker
        one = struct.pack(">ihii", 1, 1, 0, 0)  # a partition, a replica, no details
        listed = b"".join([_text(topic) + one for topic in (LOG, LIVE, HISTORY)])
        asked = struct.pack(">i", 3) + listed + struct.pack(">i?", PATIENCE_MS, False)
        return [_request(CREATE_TOPICS, asked)]

    def write(self, topic: str, records: int) -> Asked:
        batch = record_batch(records)
        head = struct.pack(">hhi", -1, 1, PATIENCE_MS)  # no transaction, the leader's ack
        return _request(PRODUCE, head + _partition(topic, struct.pack(">i", len(batch)) + batch))

    def read(self, page: int) -> Asked:
        size = PAGE // FILLED * len(record_batch(FILLED))
        return self._fetch(HISTORY, page * PAGE, size)

    def watching(self) -> Script:
        asked = struct.pack(">i", -1) + _partition(LIVE, struct.pack(">q", -1))
        (answer,) = yield _request(LIST_OFFSETS, asked)
        (offset,) = struct.unpack(">q", answer[-8:])
        while True:
            (answer,) = yield self._fetch(LIVE, offset, 1 << 20)
            offset += self.is_delivery(answer)

    def is_delivery(self, answer: bytes) -> bool:
        return RECORD in answer

    def end_of_answer(self, data: bytes, start: int) -> int:
        if len(data) < start + 4:
            return 0
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
        return end if len(data) >= end else 0

    def check(self, answer: bytes) -> None:
        """Behind the name of the topic and its partition stands the number of an error, or 0."""
        for topic in (LOG, LIVE, HISTORY):
            at = answer.find(_text(topic) + struct.pack(">ii", 1, 0))
            if at >= 0:
                (error,) = struct.unpack_from(">h", answer, at + 2 + len(topic) + 8)
                if error:
                    raise RuntimeError(f"Kafka answered with error {error} for {topic}")

    def _fetch(self, topic: str, offset: int, size: int) -> Asked:
        limits = struct.pack(">iiiib", -1, PATIENCE_MS, 1, size, 0)
        return _request(FETCH, limits + _partition(topic, struct.pack(">qi", offset, size)))


class Kafka(Peer):
    """The jars that `kafka_jars` fetches, on the Java of the path."""

    name = "kafka"
    dialect = KafkaDialect

    def missing(self) -> str | None:
        if shutil.which("java") is None:
            return "Java"
        if not any(kafka_jars.directory().glob("kafka_*.jar")):
            return "Kafka's jars (python -m topics.bench.compare.kafka_jars)"
        return None

    def sync_settings(self, *, synced: bool) -> str:
        return f"acks 1, {_flushing(synced=synced)}"

    @contextmanager
    def serving(self, directory: Path, *, synced: bool) -> Iterator[ServingChild]:
        port, controller = free_port(), free_port()
        settings = directory / "server.properties"
        settings.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
{_flushing(synced=synced)}
"""
        )
        java = ["java", "-Xms512m", "-Xmx1g", "-cp", f"{kafka_jars.directory()}/*"]
        if not (directory / "data").exists():
            made = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
            subprocess.run(made, check=True, capture_output=True, cwd=directory)
        with listening([*java, "kafka.Kafka", settings], port, directory) as server:
            yield server


def _flushing(*, synced: bool) -> str:
    return "log.flush.interval.messages=1" if synced else "log.flush.interval.ms=1000"


@cache
def record_batch(records: int) -> bytes:
    """That many records in the format of Kafka since version 0.11."""
    listed = b"".join([_record(number) for number in range(records)])
    counted = struct.pack(">hiqqqhii", 0, records - 1, 0, 0, -1, -1, -1, records) + listed
    checked = struct.pack(">ibI", -1, 2, crc32c(counted)) + counted
    return struct.pack(">qi", 0, len(checked)) + checked


def _record(number: int) -> bytes:
    """No key, no headers, no time of its own."""
    body = b"\0\0" + _varint(number) + _varint(-1) + _varint(len(RECORD)) + RECORD + b"\0"
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    """Zigzag, seven bits a byte."""
    left, parts = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        parts.append(left & 0x7F | 0x80)
        left >>= 7
    parts.append(left)
    return bytes(parts)


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum, bit by bit: it is computed once per kind of request."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ _CRC32C * (crc & 1)
    return crc ^ 0xFFFFFFFF


def _request(kind: tuple[int, int], body: bytes) -> Asked:
    head = struct.pack(">hhi", *kind, 1) + _text("bench")
    return Asked(struct.pack(">i", len(head) + len(body)) + head + body)


def _partition(topic: str, rest: bytes) -> bytes:
    """One topic, its partition 0, and what is said of it."""
    return struct.pack(">i", 1) + _text(topic) + struct.pack(">ii", 1, 0) + rest


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
