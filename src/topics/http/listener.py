"""Listening sockets: bind, serve, stop accepting, drain, close."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Application
from topics.http.protocol_detection import ProtocolDetector
from topics.http.tick import Tick

_BACKLOG = 4096
CLOSE_SECONDS = 2.0
"""How long `close` waits for aborted connections to report their end."""

Address = tuple[str, int]


class Listener:
    """One address to listen on and the connections it has accepted.

    Everything runs on the loop that `open` was awaited on.
    """

    def __init__(self, app: Application, limits: Limits | None = None) -> None:
        self._app = app
        self._limits = limits or Limits()
        self._servers: list[asyncio.AbstractServer] = []
        self._hub: Hub | None = None
        self.addresses: list[Address] = []

    async def open(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> Address:
        """Bind every address `host` stands for and serve; the first one, with its real port.

        Port 0 takes any free port, the same for all of them. Raises OSError when an address
        is taken.
        """
        loop = asyncio.get_running_loop()
        hub = self._hub = Hub(self._app, self._limits, loop)
        for sock in await _bind_all(host, port):
            server = await loop.create_server(
                lambda: ProtocolDetector(hub), sock=sock, ssl=tls, backlog=_BACKLOG
            )
            self._servers.append(server)
            self.addresses.append(sock.getsockname()[:2])
        return self.addresses[0]

    @property
    def connections(self) -> int:
        """How many are open now."""
        return 0 if self._hub is None else len(self._hub.connections)

    @property
    def tick(self) -> Tick:
        """The tick of all connections; there is one from `open` on."""
        assert self._hub is not None
        return self._hub.tick

    def stop_accepting(self) -> None:
        """Close the listening sockets; what is connected stays."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def drain(self, timeout_s: float) -> bool:
        """Close idle connections now and busy ones after their answer; whether all are gone.

        Streams and WebSockets are the application's to end, with their own last words.
        """
        hub = self._hub
        if hub is None:
            return True
        hub.draining = True
        for connection in tuple(hub.connections):
            connection.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(hub.all_gone.wait(), timeout_s)
        return not hub.connections

    async def wait_for_none(self) -> None:
        """Return when no connection is open."""
        if self._hub is not None:
            await self._hub.all_gone.wait()

    async def close(self) -> None:
        """End whatever is left, now."""
        self.stop_accepting()
        if self._hub is not None:
            for connection in tuple(self._hub.connections):
                connection.abort()
            self._hub.stop()
            with suppress(TimeoutError):  # under TLS it takes some ticks until the end is reported
                await asyncio.wait_for(self._hub.all_gone.wait(), CLOSE_SECONDS)


async def _bind_all(host: str, port: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, *_, address in infos:
            # The later addresses of a name follow the port the first one got.
            actual = bound[0].getsockname()[1] if bound else port
            bound.append(_bind(family, (address[0], actual, *address[2:])))
    except OSError:
        for sock in bound:
            sock.close()
        raise
    return bound


def _bind(family: int, address: Sequence[str | int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(tuple(address))
    except OSError:
        sock.close()
        raise
    return sock


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A server context that offers HTTP/2 and HTTP/1.1.

    Loading a new chain into it later serves new connections with the new certificate.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"])
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Serve new connections with this pair; raises OSError when it cannot be used."""
    # Without this OpenSSL would ask for a password on the terminal and block the server.
    context.load_cert_chain(certificate, key, password=_refuse_pass_phrase)


def _refuse_pass_phrase() -> str:
    raise OSError("the key is encrypted, and nobody is there to type its pass phrase; decrypt it")
