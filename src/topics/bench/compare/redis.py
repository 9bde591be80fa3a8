"""Redis Streams: XADD, XRANGE, XREAD, and consumer groups as queues."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from topics.bench.compare.dialect import (
    CLAIM,
    HISTORY,
    JOBS,
    LIVE,
    PAGE,
    RECORD,
    Asked,
    Dialect,
    Script,
)
from topics.bench.compare.peer import Peer, free_port, listening
from topics.bench.server_process import ServingChild

GROUP = "workers"
FIRST_ID = 1_000_000_000
"""Ids of `HISTORY` have one width, so the size of a page is known in advance."""

_ENTRY = b"*2\r\n$12\r\n1000000000-0\r\n*2\r\n$1\r\nd\r\n$%d\r\n%b\r\n" % (len(RECORD), RECORD)


class RedisDialect(Dialect):
    """RESP2. A batch is a pipeline of XADD, which is how Redis clients send many records."""

    def greeting(self) -> Sequence[Asked]:
        return []

    def preparation(self, *, synced: bool) -> Sequence[Asked]:
        del synced  # a setting of the server
        return [_command("XGROUP", "CREATE", JOBS, GROUP, "0", "MKSTREAM")]

    def write(self, topic: str, records: int) -> Asked:
        return Asked(_command("XADD", topic, "*", "d", RECORD).sent * records, records)

    def fill(self, first: int, records: int) -> Asked:
        ids = range(FIRST_ID + first, FIRST_ID + first + records)
        sent = b"".join([_command("XADD", HISTORY, f"{at}-0", "d", RECORD).sent for at in ids])
        return Asked(sent, records)

    def read(self, page: int) -> Asked:
        start = f"{FIRST_ID + page * PAGE}-0"
        asked = _command("XRANGE", HISTORY, start, "+", "COUNT", str(PAGE))
        return Asked(asked.sent, size=len(b"*%d\r\n" % PAGE) + PAGE * len(_ENTRY))

    def claim(self, worker: int) -> Asked:
        asked = ["XREADGROUP", "GROUP", GROUP, f"worker-{worker}", "COUNT", str(CLAIM)]
        return _command(*asked, "STREAMS", JOBS, ">")

    def jobs(self, answers: Sequence[bytes]) -> Sequence[bytes]:
        parts = answers[0].split(b"\r\n*2\r\n$1\r\nd\r\n")  # each but the last ends with an id
        return [part[part.rindex(b"\n") + 1 :] for part in parts[:-1]]

    def ack(self, worker: int, jobs: Sequence[bytes]) -> Asked:
        del worker
        return _command("XACK", JOBS, GROUP, *jobs)

    def watching(self) -> Script:
        last = b"$"
        while True:
            answers = yield _command("XREAD", "BLOCK", "0", "STREAMS", LIVE, last)
            last = self.jobs(answers)[-1]

    def is_delivery(self, answer: bytes) -> bool:
        return answer.startswith(b"*1")

    def end_of_answer(self, data: bytes, start: int) -> int:
        return _end_of_value(data, start)

    def check(self, answer: bytes) -> None:
        if answer.startswith(b"-"):
            raise RuntimeError(answer.decode(errors="replace"))


class Redis(Peer):
    """Debian's `redis-server`."""

    name = "redis"
    dialect = RedisDialect

    def missing(self) -> str | None:
        return None if _program() else "Debian's package redis-server"

    def sync_settings(self, *, synced: bool) -> str:
        return f"appendonly yes, appendfsync {'always' if synced else 'everysec'}"

    @contextmanager
    def serving(self, directory: Path, *, synced: bool) -> Iterator[ServingChild]:
        port = free_port()
        options = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": directory,
            "appendonly": "yes",
            "appendfsync": "always" if synced else "everysec",
            "save": "",
        }
        flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
        with listening([_program() or "redis-server", *flags], port, directory) as server:
            yield server


def _program() -> str | None:
    return shutil.which("redis-server") or shutil.which("redis-server", path=os.defpath)


def _command(*parts: str | bytes) -> Asked:
    encoded = [part if isinstance(part, bytes) else part.encode() for part in parts]
    listed = b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded])
    return Asked(b"*%d\r\n%b" % (len(encoded), listed))


def _end_of_value(data: bytes, start: int) -> int:
    line = data.find(b"\r\n", start) + 2
    if line < 2:
        return 0
    kind = data[start : start + 1]
    if kind not in b"$*":
        return line
    count = int(data[start + 1 : line - 2])
    if kind == b"$":
        end = line + count + 2 if count >= 0 else line
        return end if len(data) >= end else 0
    for _ in range(count):
        line = _end_of_value(data, line)
        if not line:
            return 0
    return line
