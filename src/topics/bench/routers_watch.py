"""One watcher at a source and one at a destination, in a process of their own.

    python -m topics.bench.routers_watch ADDRESS WRITES

Prints JSON: how much later than at the source each record arrived at the destination, and how long
it took from the start of its write, in microseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from topics.bench.bench import payload
from topics.bench.measure import percentile
from topics.bench.server_watch import RECORD, exchange, hello_h1, request

SOURCE, DEST = "source", "dest"


class Arrivals(asyncio.Protocol):
    """When records come to one watcher."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.times: list[float] = []
        self.arrived = asyncio.Event()
        self.ready = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(hello_h1(self._path))  # type: ignore[attr-defined]  # uvloop's own

    def data_received(self, data: bytes) -> None:
        if RECORD in data:
            self.times.append(time.perf_counter())
            self.arrived.set()
        elif b"caught-up" in data:
            self.ready.set()


async def watch(address: tuple[str, int], writes: int) -> None:
    loop = asyncio.get_running_loop()
    watchers = []
    for topic in (SOURCE, DEST):
        body = json.dumps({"topics": {topic: {"tail": True}}}).encode()
        (opened,) = await request(address, "/v0/watch", [body])
        watcher = Arrivals(json.loads(opened)["stream_url"])
        await loop.create_connection(lambda watcher=watcher: watcher, *address)  # type: ignore[misc]
        await watcher.ready.wait()
        watchers.append(watcher)
    reader, writer = await asyncio.open_connection(*address)
    body = json.dumps({"records": [{"data": payload()}]}).encode()
    print("ready", flush=True)
    sys.stdin.readline()
    began: list[float] = []
    for _ in range(writes):
        for watcher in watchers:
            watcher.arrived.clear()
        began.append(time.perf_counter())
        await exchange(reader, writer, f"/v0/topics/{SOURCE}", body)
        for watcher in watchers:
            await watcher.arrived.wait()
    at_source, at_dest = (watcher.times for watcher in watchers)
    added = sorted((b - a) * 1e6 for a, b in zip(at_source, at_dest, strict=True))
    whole = sorted((b - a) * 1e6 for a, b in zip(began, at_dest, strict=True))
    found = {
        "added_p50_us": percentile(added, 0.5),
        "added_p99_us": percentile(added, 0.99),
        "whole_p50_us": percentile(whole, 0.5),
    }
    print(json.dumps(found), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    where, _, port = sys.argv[1].rpartition(":")
    uvloop.run(watch((where, int(port)), int(sys.argv[2])))
