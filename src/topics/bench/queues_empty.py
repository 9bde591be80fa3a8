"""A queue that does nothing, to see what the workers of the benchmark can do by themselves.

    python -m topics.bench.queues_empty PORT_FILE JOBS

Claims are answered with the same eight jobs until so many were handed out, acks with one answer.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from topics.bench.bench import payload, stored
from topics.bench.queues_workers import CLAIM
from topics.wire import responses

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
    """Takes every piece of input for a claim or an ack."""

    left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        said = ACKED
        if b"/claim " in data:
            said = CLAIMED if Fixed.left > 0 else NOTHING
            Fixed.left -= CLAIM
        self._transport.write(said)  # type: ignore[attr-defined]  # uvloop's own transport


async def _serve(port_file: Path, jobs: int) -> None:
    Fixed.left = jobs
    server = await asyncio.get_running_loop().create_server(Fixed, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    waiting = port_file.with_suffix(".tmp")
    waiting.write_text(f"{host}:{port}")
    waiting.rename(port_file)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
