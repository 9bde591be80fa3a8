"""Telling HTTP/2 from HTTP/1 by the first bytes of a connection.

An HTTP/2 client that knows what we speak opens with a fixed preface, whose start is a request
line no HTTP/1 client would send. It may come in pieces of any size. Under TLS the same bytes
open the connection, so the negotiated protocol needs no look.
"""

import asyncio
import socket
from typing import cast

from topics.http.h1.connection import H1Connection
from topics.http.h2.connection import H2Connection
from topics.http.hub import Hub

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class ProtocolDetector(asyncio.Protocol):
    """Every connection until it is known what it speaks."""

    __slots__ = ("_hub", "_peer", "_seen", "_since", "_transport")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._seen = b""
        self._since: float | None = None
        self._peer = ""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        # A cast and not a check: uvloop's transports are of their own kind.
        self._transport = cast(asyncio.Transport, transport)
        if not self._hub.has_room():
            self._transport.abort()
            return
        self._peer = _peer_name(transport)
        _tune(transport)
        self._hub.add(self)

    def data_received(self, data: bytes) -> None:
        """Decide as soon as the bytes allow it."""
        seen = self._seen + data if self._seen else data
        if seen.startswith(PREFACE):
            self._become(H2Connection(self._hub, self._transport, self._peer), seen)
        elif PREFACE.startswith(seen):
            self._seen = seen
        else:
            self._become(H1Connection(self._hub, self._transport, self._peer), seen)

    def _become(self, protocol: asyncio.Protocol, seen: bytes) -> None:
        self._hub.drop(self)
        self._transport.set_protocol(protocol)
        protocol.data_received(seen)

    def eof_received(self) -> None:
        """Nothing was asked: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left before it said anything."""
        self._hub.drop(self)

    def tick(self, now: float) -> None:
        """A silent connection has as long as slow headers have."""
        if self._since is None:
            self._since = now
        elif now - self._since > self._hub.limits.head_timeout_s:
            self._transport.close()

    def drain(self) -> None:
        """Nothing is running: close."""
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()


def _peer_name(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""


def _tune(transport: asyncio.BaseTransport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer that lost its power never closes the connection; the kernel finds that out.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
