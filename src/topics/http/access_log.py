"""The access log: one JSON line per request, written on another thread.

A request only leaves a tuple in a queue. Once a second, and only if there is something to write,
the queue is turned into lines on another thread. It is bounded: a disk that does not keep up costs
lines, which are counted and reported in a line of their own, never a request its time.

The file is opened for each write, so that it can be moved away at any time. Queries are left out,
because they may hold keys, and so are the ids of watch sessions, which open streams.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from topics.http.api.auth import KeyId
from topics.http.messages import Headers, Request

FLUSH_SECONDS: Final = 1.0
MAX_QUEUED: Final = 100_000
MAX_ID_BYTES: Final = 128
ID_HEADER: Final = b"x-request-id"
STDOUT: Final = "-"
_SESSION_PATH: Final = b"/v0/watch/"

_now, _tick = time.time, time.perf_counter_ns
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("topics.http")


class RequestIds:
    """Gives every request a name: the client's own if it is fit to be printed."""

    def __init__(self) -> None:
        self._form = secrets.token_hex(4).encode() + b"-%x"
        self._next = itertools.count(1).__next__

    def id_of(self, request: Request) -> bytes:
        sent = request.headers.get(ID_HEADER)
        if sent is not None and is_sane(sent):
            return sent
        return self._form % self._next()


def is_sane(sent: bytes) -> bool:
    """Whether an id sent by a client may be repeated in headers and logs."""
    return 0 < len(sent) <= MAX_ID_BYTES and sent.isascii() and sent.decode().isprintable()


class _Entry(NamedTuple):
    """One request that is over. The queue holds bare tuples: they cost less to make."""

    at: float
    echo: Headers
    method: str
    path: bytes
    version: str
    status: int | None
    spent_ns: int
    bytes_in: int
    key_id: KeyId | None
    peer: str

    def line(self) -> bytes:
        path = self.path
        if unquote_to_bytes(path).startswith(_SESSION_PATH):
            path = _SESSION_PATH + b"*"
        shown = {
            "ts": int(self.at * 1000),
            "request_id": self.echo[0][1].decode("latin-1"),
            "method": self.method,
            "path": path.decode("latin-1"),
            "http": self.version,
            "status": self.status,
            "ms": round(self.spent_ns / 1e6, 3),
            "bytes_in": self.bytes_in,
            "key": self.key_id,
            "peer": self.peer,
        }
        return _encode(shown)


class AccessLog:
    """Collects requests on the loop's thread and writes them on the pool's."""

    def __init__(
        self,
        path: str,
        *,
        later: Callable[[float, Callable[[], None]], object],
        pool: Executor,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        """`later` calls back after some seconds; raises `OSError` if nothing can be written."""
        self._path = path
        self._later = later
        self._pool = pool
        self._queue: deque[tuple[Any, ...]] = deque()
        self._max_queued = max_queued
        self._is_armed = False
        self._is_closed = False
        self._unreported = 0
        self.dropped = 0
        self._write(b"")

    def add(
        self, request: Request, status: int | None, started_ns: int, key_id: KeyId | None
    ) -> None:
        """Note a request that is over; `status` None: the client left before its answer."""
        queue = self._queue
        if len(queue) >= self._max_queued:
            self.dropped += 1
            self._unreported += 1
            return
        queue.append(
            (
                _now(),
                request.echo,
                request.method,
                request.path,
                request.version,
                status,
                _tick() - started_ns,
                request.taken_bytes or len(request.body),
                key_id,
                request.peer,
            )
        )
        if not self._is_armed:
            self._is_armed = True
            self._later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        if not self._is_closed:
            self._pool.submit(self._write_all).add_done_callback(lambda done: done.exception())

    def close(self) -> None:
        """Write what is left, on the caller's thread; the pool is not used any more."""
        self._is_closed = True
        self._write_all()

    def _write_all(self) -> None:
        # From here on a new entry schedules another flush. At worst that flush finds nothing.
        self._is_armed = False
        queue, lines = self._queue, []
        for _ in range(len(queue)):
            try:
                lines.append(_Entry._make(queue.popleft()).line())
            except IndexError:  # another flush was faster
                break
        missing, self._unreported = self._unreported, 0
        if missing:
            lines.append(_encode({"ts": int(time.time() * 1000), "dropped": missing}))
        if not lines:
            return
        try:
            self._write(b"\n".join(lines) + b"\n")
        except OSError as error:
            self.dropped += len(lines)
            self._unreported += len(lines)
            _log.error("the access log could not be written: %s", error)

    def _write(self, text: bytes) -> None:
        if self._path == STDOUT:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            return
        with open(self._path, "ab", opener=_for_the_owner) as file:
            file.write(text)


def _for_the_owner(path: str, flags: int) -> int:
    """A file that is new can be read by its owner alone: addresses of clients are in it."""
    return os.open(path, flags, 0o600)
