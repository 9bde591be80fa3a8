"""Watchers and one writer in a process of their own: how long a record takes to reach them all.

    python -m topics.bench.server_watch ADDRESS WATCHERS WRITES VERSION

Each watcher has a connection of its own. The writer sends a record, waits until every watcher has
it and sends the next. Prints JSON: the microseconds from the start of each write to each delivery,
the CPU time this process took, and the time it all took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence

import h2.config
import h2.connection
import h2.settings
import uvloop

from topics.bench.bench import payload
from topics.bench.measure import percentile
from topics.bench.server_process import HEADERS, KEY

TOPIC = "watched"
RECORD = b"event: record"
WIDE_OPEN = (1 << 31) - 1


class Round:
    """One write on its way to all watchers."""

    def __init__(self) -> None:
        self.began = 0.0
        self.missing = 0
        self.times_us: list[float] = []
        self.over = asyncio.Event()

    def begin(self, watchers: int) -> None:
        self.missing = watchers
        self.over.clear()
        self.began = time.perf_counter()

    def arrived(self) -> None:
        self.times_us.append((time.perf_counter() - self.began) * 1e6)
        self.missing -= 1
        if not self.missing:
            self.over.set()


class Watcher(asyncio.Protocol):
    """Asks for a stream and counts the records on it."""

    def __init__(self, current: Round, hello: bytes, ready: asyncio.Semaphore) -> None:
        self._round = current
        self._hello = hello
        self._ready: asyncio.Semaphore | None = ready

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._hello)  # type: ignore[attr-defined]  # uvloop's own transport

    def data_received(self, data: bytes) -> None:
        if RECORD in data:
            self._round.arrived()
        elif self._ready is not None and b"caught-up" in data:
            self._ready.release()
            self._ready = None


def hello_h1(path: str) -> bytes:
    """The request for a stream."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    return f"GET {path} HTTP/1.1\r\nhost: bench\r\n{fields}\r\n".encode()


def hello_h2(path: str) -> bytes:
    """The same in HTTP/2, with windows so wide that no window update has to be sent."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    window = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
    connection.local_settings = h2.settings.Settings(initial_values={window: WIDE_OPEN})
    connection.initiate_connection()
    connection.increment_flow_control_window(WIDE_OPEN - 65_535)
    head = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "localhost")]
    connection.send_headers(1, [*head, ("authorization", f"Bearer {KEY}")], end_stream=True)
    return connection.data_to_send()


HELLOS = {"HTTP/1.1": hello_h1, "h2c": hello_h2}


async def request(address: tuple[str, int], path: str, bodies: Sequence[bytes]) -> list[bytes]:
    """Send POSTs one after the other on one connection; returns the bodies of the answers."""
    reader, writer = await asyncio.open_connection(*address)
    answers = [await exchange(reader, writer, path, body) for body in bodies]
    writer.close()
    return answers


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\n{fields}content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    found = await reader.readuntil(b"\r\n\r\n")
    size = int(found.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    answer = await reader.readexactly(size)
    if not found.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
        raise RuntimeError(answer.decode())
    return answer


async def watch(address: tuple[str, int], watchers: int, writes: int, version: str) -> None:
    loop = asyncio.get_running_loop()
    session = json.dumps({"topics": {TOPIC: {"tail": True}}}).encode()
    opened = await request(address, "/v0/watch", [session] * watchers)
    current, ready = Round(), asyncio.Semaphore(0)
    for text in opened:
        hello = HELLOS[version](json.loads(text)["stream_url"])
        await loop.create_connection(
            lambda hello=hello: Watcher(current, hello, ready),  # type: ignore[misc]
            *address,
        )
    for _ in opened:
        await ready.acquire()
    reader, writer = await asyncio.open_connection(*address)
    body = json.dumps({"records": [{"data": payload()}]}).encode()
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(writes):
        current.begin(watchers)
        await exchange(reader, writer, f"/v0/topics/{TOPIC}", body)
        await current.over.wait()
    times = sorted(current.times_us)
    found = {
        "p50_us": percentile(times, 0.5),
        "p99_us": percentile(times, 0.99),
        "deliveries": len(times),
        "seconds": time.perf_counter() - began,
        "generator_cpu_s": time.process_time() - cpu,
    }
    print(json.dumps(found), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    where, _, port = sys.argv[1].rpartition(":")
    uvloop.run(watch((where, int(port)), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
