"""`topics serve` over HTTP/1.1, and Server-Sent Events for the watchers."""

from __future__ import annotations

import json
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
from topics.bench.compare.peer import Peer
from topics.bench.server_process import HEADERS, ServingChild, served

_LENGTH = b"content-length: "
_JOB = b'{"$seq":'
_WATCH = json.dumps({"topics": {LIVE: {"tail": True}}}).encode()
_FIELDS = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())


class OurDialect(Dialect):
    """Requests of `/v0`, one at a time."""

    is_streaming = False

    def greeting(self) -> Sequence[Asked]:
        return []

    def preparation(self, *, synced: bool) -> Sequence[Asked]:
        durability = "fsync" if synced else "disk"
        kinds = {LOG: "log", LIVE: "log", HISTORY: "log", JOBS: "queue"}
        return [
            _request("PUT", topic, {"type": kind, "durability": durability})
            for topic, kind in kinds.items()
        ]

    def write(self, topic: str, records: int) -> Asked:
        listed = b",".join([b'{"data":' + RECORD + b"}"] * records)
        return _sent("POST", f"{topic}?return_seqs=false", b'{"records":[' + listed + b"]}")

    def read(self, page: int) -> Asked:
        return _request("POST", f"{HISTORY}/diff", {"from_seq": page * PAGE, "limit": PAGE})

    def claim(self, worker: int) -> Asked:
        return _request("POST", f"{JOBS}/claim", {"node": f"worker-{worker}", "max": CLAIM})

    def jobs(self, answers: Sequence[bytes]) -> Sequence[bytes]:
        return [job[: job.index(b",")] for job in answers[0].split(_JOB)[1:]]

    def ack(self, worker: int, jobs: Sequence[bytes]) -> Asked:
        body = b'{"node":"worker-%d","seqs":[%b]}' % (worker, b",".join(jobs))
        return _sent("POST", f"{JOBS}/ack", body)

    def watching(self) -> Script:
        (opened,) = yield _sent("POST", "/v0/watch", _WATCH, prefix="")
        url = json.loads(opened.partition(b"\r\n\r\n")[2])["stream_url"]
        self.is_streaming = True
        exchange = _sent("GET", url, b"", prefix="")
        while True:
            yield exchange
            exchange = NOTHING

    def is_delivery(self, answer: bytes) -> bool:
        return b"event: record" in answer

    def end_of_answer(self, data: bytes, start: int) -> int:
        if self.is_streaming:
            return data.find(b"\n\n", start) + 2 if b"\n\n" in data[start:] else 0
        body = data.find(b"\r\n\r\n", start) + 4
        if body < 4:
            return 0
        at = data.index(_LENGTH, start) + len(_LENGTH)
        end = body + int(data[at : data.index(b"\r", at)])
        return end if len(data) >= end else 0

    def check(self, answer: bytes) -> None:
        if not self.is_streaming and not answer.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(answer.decode(errors="replace"))


class Ours(Peer):
    """This build."""

    name = "topics"
    dialect = OurDialect

    def missing(self) -> str | None:
        return None

    def sync_settings(self, *, synced: bool) -> str:
        return "durability fsync" if synced else "durability disk (sync every 10 ms)"

    @contextmanager
    def serving(self, directory: Path, *, synced: bool) -> Iterator[ServingChild]:
        del synced  # a property of each topic
        with served(directory) as server:
            yield server


def _request(method: str, path: str, body: object) -> Asked:
    return _sent(method, path, json.dumps(body).encode())


def _sent(method: str, path: str, body: bytes, *, prefix: str = "/v0/topics/") -> Asked:
    head = f"{method} {prefix}{path} HTTP/1.1\r\nhost: bench\r\n{_FIELDS}"
    length = f"content-length: {len(body)}\r\n" if body else ""
    return Asked(f"{head}{length}\r\n".encode() + body)
