"""Servers that do nothing, to see what the load generator and the transport cost alone.

python -m topics.bench.server_empty bare PORT_FILE        a fixed answer to whatever comes
python -m topics.bench.server_empty transport PORT_FILE   our HTTP front, an empty handler
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from topics.http.listener import Listener
from topics.http.messages import Reply, Request, Response

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Fixed(asyncio.Protocol):
    """Takes every piece of input for a request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)  # type: ignore[attr-defined]  # uvloop's own transport


class Empty:
    """An application that agrees with everything."""

    def begin(self, request: Request) -> Response | None:
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        reply(Response(200, b"{}"))

    def end(self, request: Request, status: int | None) -> None:
        """Nothing was begun."""


async def _serve(kind: str, port_file: Path) -> None:
    if kind == "bare":
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Fixed, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
    else:
        host, port = await Listener(Empty()).open("127.0.0.1", 0)
    waiting = port_file.with_suffix(".tmp")
    waiting.write_text(f"{host}:{port}")
    waiting.rename(port_file)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], Path(sys.argv[2])))
