"""Servers that do nothing, to see what the load generator and the transport cost alone.

python -m topics.bench.server_empty bare PORT_FILE        a fixed answer to whatever comes
python -m topics.bench.server_empty durable PORT_FILE     the same, once what came is on disk
python -m topics.bench.server_empty transport PORT_FILE   our HTTP front, an empty handler
python -m topics.bench.server_empty jobs PORT_FILE JOBS   a queue that hands out the same jobs
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import uvloop

from topics.bench.appending import FRAME_BYTES
from topics.bench.bench import payload, stored
from topics.bench.queues_workers import CLAIM
from topics.bench.raw import RawFile
from topics.http.listener import Listener
from topics.http.messages import Reply, Request, Response
from topics.wire import responses

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"

SPENT = responses.performance(0.1)


def answer(body: bytes) -> bytes:
    """A body with the head a server puts before it."""
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"x-request-id: 4ba767c9-75\r\ndate: Mon, 16 Nov 2026 04:43:54 GMT\r\n\r\n%b"
    ) % (len(body), body)


JOBS = [
    responses.job_members((1 + at, at, 1 << 40, 1 << 40, 1, stored(payload()), None, None))
    for at in range(CLAIM)
]
CLAIMED = answer(responses.claimed("jobs", JOBS, SPENT, ready=0))
NOTHING = answer(responses.claimed("jobs", [], SPENT, ready=0))
ACKED = answer(b'{"topic":"jobs","acked":8,"skipped":[],"ready":0,"in_flight":0}')


class Fixed(asyncio.Protocol):
    """Takes every piece of input for a request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.answer()

    def answer(self) -> None:
        self._transport.write(ANSWER)  # type: ignore[attr-defined]  # uvloop's own transport


class FixedJobs(Fixed):
    """Takes every piece of input for a claim or an ack, until so many jobs were handed out."""

    left = 0

    def data_received(self, data: bytes) -> None:
        said = ACKED
        if b"/claim " in data:
            said = CLAIMED if FixedJobs.left > 0 else NOTHING
            FixedJobs.left -= CLAIM
        self._transport.write(said)  # type: ignore[attr-defined]  # uvloop's own transport


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


async def _serve(kind: str, port_file: Path, jobs: str = "0") -> None:
    loop = asyncio.get_running_loop()
    if kind == "transport":
        host, port = await Listener(Empty()).open("127.0.0.1", 0)
    else:
        FixedJobs.left = int(jobs)
        protocol: Callable[[], Fixed] = FixedJobs if kind == "jobs" else Fixed
        if kind == "durable":
            protocol = partial(Durable, Syncer(port_file.parent))
        server = await loop.create_server(protocol, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
    waiting = port_file.with_suffix(".tmp")
    waiting.write_text(f"{host}:{port}")
    waiting.rename(port_file)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
