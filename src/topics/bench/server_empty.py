"""Servers that do nothing, to see what the load generator and the transport cost alone.

python -m topics.bench.server_empty bare PORT_FILE        a fixed answer to whatever comes
python -m topics.bench.server_empty durable PORT_FILE     the same, once what came is on disk
python -m topics.bench.server_empty transport PORT_FILE   our HTTP front, an empty handler
"""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import uvloop

from topics.bench.appending import FRAME_BYTES
from topics.bench.raw import RawFile
from topics.http.listener import Listener
from topics.http.messages import Reply, Request, Response

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Fixed(asyncio.Protocol):
    """Takes every piece of input for a request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.answer()

    def answer(self) -> None:
        self._transport.write(ANSWER)  # type: ignore[attr-defined]  # uvloop's own transport


class Syncer:
    """A file that is written on the loop and synced by a thread, as our log is.

    What that costs is paid by every server that lets a slow disk hold up its writers only, however
    little else it does.
    """

    def __init__(self, directory: Path) -> None:
        self.file = RawFile(directory, FRAME_BYTES)
        self.waiting: SimpleQueue[Fixed] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            connection = self.waiting.get()
            self.file.sync()
            self._loop.call_soon_threadsafe(connection.answer)


class Durable(Fixed):
    """Writes a frame for every piece of input, and answers once it is synced."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer

    def data_received(self, data: bytes) -> None:
        self._syncer.file.write()
        self._syncer.waiting.put(self)


class Empty:
    """An application that agrees with everything."""

    def begin(self, request: Request) -> Response | None:
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        reply(Response(200, b"{}"))

    def end(self, request: Request, status: int | None) -> None:
        """Nothing was begun."""


async def _serve(kind: str, port_file: Path) -> None:
    if kind != "transport":
        loop = asyncio.get_running_loop()
        protocol = partial(Durable, Syncer(port_file.parent)) if kind == "durable" else Fixed
        server = await loop.create_server(protocol, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
    else:
        host, port = await Listener(Empty()).open("127.0.0.1", 0)
    waiting = port_file.with_suffix(".tmp")
    waiting.write_text(f"{host}:{port}")
    waiting.rename(port_file)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], Path(sys.argv[2])))
