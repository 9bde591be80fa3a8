"""PostgreSQL: a table as a log, SKIP LOCKED as a queue, LISTEN and NOTIFY for watchers."""

from __future__ import annotations

import os
import pwd
import shutil
import struct
import subprocess
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

FIRST_SEQ = 1_000_000_000
"""Seqs of the benchmark have one width, so the size of a page is known."""

_CREATE = [
    "CREATE TABLE {topic} (seq bigserial PRIMARY KEY, data text NOT NULL)",
    f"ALTER SEQUENCE {{topic}}_seq_seq RESTART WITH {FIRST_SEQ} CACHE 1",
]
_CLAIM = f"""
    UPDATE {JOBS} SET held_until = now() + interval '30 s', worker = $1 WHERE seq IN (
        SELECT seq FROM {JOBS} WHERE held_until IS NULL OR held_until < now()
        ORDER BY seq LIMIT {CLAIM} FOR UPDATE SKIP LOCKED)
    RETURNING seq, data"""
_ACK = f"DELETE FROM {JOBS} WHERE seq = ANY ($1::bigint[])"
_READ = f"SELECT seq, data FROM {HISTORY} WHERE seq >= $1::bigint ORDER BY seq LIMIT {PAGE}"
_ROW = 7 + 4 + 10 + 4 + len(RECORD)
"""A row of `_READ`: header and count, a seq of ten digits with its length, data with its length."""

_NOTIFYING = f"WITH made AS (INSERT INTO {LIVE} (data) VALUES ($1) RETURNING data) \
SELECT pg_notify('{LIVE}', data) FROM made"


class PostgresDialect(Dialect):
    """Protocol 3 with prepared statements. A batch is one INSERT with a hundred rows."""

    is_listening = False

    def greeting(self) -> Sequence[Asked]:
        start = struct.pack(">i", 196_608) + b"user\0postgres\0database\0postgres\0\0"
        return [Asked(struct.pack(">i", len(start) + 4) + start)]

    def __init__(self) -> None:
        self._known: set[str] = set()

    def preparation(self, *, synced: bool) -> Sequence[Asked]:
        del synced  # a setting of the server
        statements = [
            line.format(topic=topic) for topic in (LOG, LIVE, HISTORY) for line in _CREATE
        ]
        statements += [line.format(topic=JOBS) for line in _CREATE]
        statements.append(f"ALTER TABLE {JOBS} ADD held_until timestamptz, ADD worker text")
        return [_simple(statement) for statement in statements]

    def write(self, topic: str, records: int) -> Asked:
        values = ", ".join(f"(${number})" for number in range(1, records + 1))
        inserting = f"INSERT INTO {topic} (data) VALUES {values}"
        return self._run(_NOTIFYING if topic == LIVE else inserting, [RECORD] * records)

    def read(self, page: int) -> Asked:
        asked = self._run(_READ, [b"%d" % (FIRST_SEQ + page * PAGE)])
        size = 5 * (asked.sent[0] == ord("P")) + 5 + PAGE * _ROW + len("C....SELECT 1000\0") + 6
        return Asked(asked.sent, size=size)

    def claim(self, worker: int) -> Asked:
        return self._run(_CLAIM, [b"worker-%d" % worker])

    def jobs(self, answers: Sequence[bytes]) -> Sequence[bytes]:
        return [body[6 : 6 + _int(body, 2)] for kind, body in _messages(answers[0]) if kind == b"D"]

    def ack(self, worker: int, jobs: Sequence[bytes]) -> Asked:
        del worker
        return self._run(_ACK, [b"{%b}" % b",".join(jobs)])

    def watching(self) -> Script:
        yield _simple(f"LISTEN {LIVE}")
        self.is_listening = True
        while True:
            yield NOTHING

    def is_delivery(self, answer: bytes) -> bool:
        return answer.startswith(b"A")

    def end_of_answer(self, data: bytes, start: int) -> int:
        """Behind the next ReadyForQuery; for a listener, behind the next message of any kind."""
        while len(data) >= start + 5:
            end = start + 1 + _int(data, start + 1)
            if len(data) < end:
                return 0
            if data[start] == ord("Z") or self.is_listening:
                return end
            start = end
        return 0

    def check(self, answer: bytes) -> None:
        if answer.startswith(b"E") or b"SERROR\0" in answer:
            raise RuntimeError(answer.decode(errors="replace"))

    def _run(self, statement: str, values: Sequence[bytes]) -> Asked:
        """Bind and execute; a statement that this connection has not prepared is parsed first."""
        name = f"s{abs(hash(statement))}".encode()
        parts = b""
        if statement not in self._known:
            self._known.add(statement)
            parts = _message(b"P", name + b"\0" + statement.encode() + b"\0\0\0")
        listed = b"".join([struct.pack(">i", len(value)) + value for value in values])
        bound = b"\0" + name + b"\0\0\0" + struct.pack(">h", len(values)) + listed + b"\0\0"
        executed = _message(b"E", b"\0\0\0\0\0") + _message(b"S", b"")
        return Asked(parts + _message(b"B", bound) + executed)


class Postgres(Peer):
    """Debian's `postgresql`, with a cluster of its own in the scratch directory."""

    name = "postgresql"
    dialect = PostgresDialect

    def missing(self) -> str | None:
        return None if _programs() else "Debian's package postgresql"

    def sync_settings(self, *, synced: bool) -> str:
        return f"synchronous_commit {'on' if synced else 'off'}"

    @contextmanager
    def serving(self, directory: Path, *, synced: bool) -> Iterator[ServingChild]:
        programs, port, data = _programs(), free_port(), directory / "data"
        assert programs is not None
        user = _user()
        if not data.exists():
            if user is not None:
                shutil.chown(directory, user)
            made = f"{programs / 'initdb'} -D {data} -U postgres -A trust -N".split()
            done = subprocess.run(made, capture_output=True, text=True, user=user, check=False)
            if done.returncode:
                hint = f"; --dir has to be open to the user {user}" if user else ""
                raise RuntimeError(f"initdb: {done.stderr.strip()}{hint}")
        else:
            (data / "postmaster.pid").unlink(missing_ok=True)  # left by a server that was killed
        settings: dict[str, object] = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "synchronous_commit": "on" if synced else "off",
            "shared_buffers": "256MB",
            "max_wal_size": "4GB",
            "max_connections": 200,
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        started: list[str | Path] = [programs / "postgres", "-D", data, *flags]
        with listening(started, port, directory, user=user) as server:
            yield server


def _programs() -> Path | None:
    """The directory of the newest installed version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


def _user() -> str | None:
    """Another user if we are root: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _simple(statement: str) -> Asked:
    return Asked(_message(b"Q", statement.encode() + b"\0"))


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def _int(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _messages(answer: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(answer):
        end = at + 1 + _int(answer, at + 1)
        yield answer[at : at + 1], answer[at + 5 : end]
        at = end
