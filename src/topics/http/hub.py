"""What all connections of a listener share: the application, the limits, one sweep.

Ten thousand idle connections must cost nothing but memory, so no connection has a timer or a
task. Each has a `tick` that looks at how long it has been waiting, and one timer visits them
all; it runs only while there are connections. Waits are therefore exact to one sweep.
"""

import asyncio
import logging
import struct
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol

from topics.http.budget import Budget
from topics.http.h1.head_cache import HeadCache
from topics.http.h1.wire import chunk
from topics.http.limits import Limits
from topics.http.messages import Application
from topics.http.tick import Tick

log = logging.getLogger("topics.http")

_TELL_EVERY_S = 60.0

_FINAL_TEXT = 0x81
_LENGTH_16 = struct.Struct("!BBH")
_LENGTH_64 = struct.Struct("!BBQ")


class Connection(Protocol):
    """What the hub knows of a connection, whatever it speaks."""

    def tick(self, now: float) -> None:
        """Give up on a wait that has lasted too long."""

    def drain(self) -> None:
        """Close once nothing is running; at once when idle."""

    def abort(self) -> None:
        """Close now, unsent bytes included."""


class LastWrapped:
    """Wraps payloads for the wire; watchers given the same bytes object share one result.

    A fan-out hands one payload to hundreds of connections in a row. Remembering just the last
    one saves them a copy each, and cannot grow.
    """

    __slots__ = ("_wrap", "payload", "wrapped")

    def __init__(self, wrap: Callable[[bytes], bytes]) -> None:
        self._wrap = wrap
        self.payload = b""
        self.wrapped = wrap(b"")

    def __call__(self, payload: bytes) -> bytes:
        """The payload as it goes over the wire."""
        if payload is not self.payload:
            self.wrapped = self._wrap(payload)
            self.payload = payload
        return self.wrapped


def text_frame(payload: bytes) -> bytes:
    """`payload` (UTF-8) as one unmasked final text frame of a WebSocket.

    The library takes `str` and would encode it again for every receiver; our payload is bytes
    already, and shared by many.
    """
    size = len(payload)
    if size < 126:
        return b"%c%c%b" % (_FINAL_TEXT, size, payload)
    if size < 65536:
        return _LENGTH_16.pack(_FINAL_TEXT, 126, size) + payload
    return _LENGTH_64.pack(_FINAL_TEXT, 127, size) + payload


class Hub:
    """Shared by every connection of one listener; owned by the loop thread."""

    __slots__ = (
        "_date",
        "_date_field",
        "_date_s",
        "_sweep",
        "_told_full_s",
        "all_gone",
        "app",
        "budget",
        "chunked",
        "connections",
        "draining",
        "heads",
        "limits",
        "loop",
        "text_framed",
        "tick",
    )

    def __init__(self, app: Application, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.app = app
        self.limits = limits
        self.budget = Budget(limits.max_request_bytes, max_body_bytes=limits.max_body_bytes)
        self.loop = loop
        self.connections: set[Connection] = set()
        self.all_gone = asyncio.Event()
        self.all_gone.set()
        self.draining = False
        self.heads = HeadCache()
        self.chunked = LastWrapped(chunk)
        self.text_framed = LastWrapped(text_frame)
        self.tick = Tick(loop.call_soon)
        self._sweep: asyncio.TimerHandle | None = None
        self._told_full_s: float | None = None
        self._date_s = 0
        self._date = b""
        self._date_field = b""

    def add(self, connection: Connection) -> None:
        """Count a connection and make sure it is swept."""
        self.connections.add(connection)
        self.all_gone.clear()
        if self._sweep is None:
            self._sweep = self.loop.call_later(self.limits.sweep_s(), self._sweep_all)

    def has_room(self) -> bool:
        """Whether another connection may stay; if not, the log tells now and then."""
        most = self.limits.max_connections
        if len(self.connections) < most:
            return True
        now = self.loop.time()
        if self._told_full_s is None or now - self._told_full_s > _TELL_EVERY_S:
            self._told_full_s = now
            log.warning("%d connections are open, no more fit: new ones are closed", most)
        return False

    def drop(self, connection: Connection) -> None:
        """Forget a connection that has closed; dropping twice is harmless."""
        self.connections.discard(connection)
        self.tick.forget(connection)
        if not self.connections:
            self.all_gone.set()

    def _sweep_all(self) -> None:
        self._sweep = None
        self.heads.clear()
        now = self.loop.time()
        for connection in tuple(self.connections):
            try:
                connection.tick(now)
            except Exception:  # one connection's bug must not end the sweep of the others
                log.exception("sweeping a connection failed")
                connection.abort()
        if self.connections:
            self._sweep = self.loop.call_later(self.limits.sweep_s(), self._sweep_all)

    def stop(self) -> None:
        """End the sweep; for a hub without connections."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def date_field(self) -> bytes:
        """The Date header as a line of HTTP/1, rendered once a second."""
        now_s = int(time.time())
        if now_s != self._date_s:
            self._date_s = now_s
            self._date = formatdate(now_s, usegmt=True).encode()
            self._date_field = b"date: %b\r\n" % self._date
        return self._date_field

    def date(self) -> bytes:
        """The value of that header."""
        self.date_field()
        return self._date
