"""Two thousand open streams, some of which nobody reads; ten thousand connections that say nothing.

What is judged: everybody who reads gets every record once and in order, those who do not read hold
nobody up, and memory stays within bounds. Times and memory are printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from tests.blackbox.event_client import put, wait_until_gauge, write

WATCHERS = 2000
SLOW = 200
WRITES = 6
RECORD = "x" * 20_000
"""Large, so that a reader who stops is behind its socket's buffers after a few records."""
MIB = 1 << 20


def resident_mib(server: ServerProcess) -> float:
    pages = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / MIB


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Room for so many descriptors in this process, if it may have them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= count, (
        f"this test opens {count} sockets; raise the hard limit of open files (ulimit -Hn: {hard})"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Crowd:
    """What all watchers share: who is ready, and when the present record reached everybody."""

    def __init__(self, readers: int) -> None:
        self.readers = readers
        self.ready = 0
        self.missing = 0
        self.began = 0.0
        self.times_ms: list[float] = []
        self.moved = asyncio.Event()

    def caught_up(self) -> None:
        self.ready += 1
        self.moved.set()

    def arrived(self) -> None:
        self.times_ms.append((time.perf_counter() - self.began) * 1e3)
        self.missing -= 1
        self.moved.set()

    async def wait_until(self, happened: str) -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            while not (self.ready >= self.readers if happened == "ready" else self.missing <= 0):
                self.moved.clear()
                await self.moved.wait()


class Watcher(asyncio.Protocol):
    """Opens a stream, and counts the records on it by their seqs; or stops reading it."""

    def __init__(self, crowd: Crowd, path: str, *, reads: bool) -> None:
        self._crowd = crowd
        self._path = path
        self._reads = reads
        self._text = b""
        self._is_ready = False
        self.seqs: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(f"GET {self._path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        # Only what lies around a frame's beginning is kept; the rest of it are x's.
        self._text = self._text[-40:] + data
        at = self._text.find(b'"$seq":')
        while at >= 0:
            end = self._text.find(b",", at)
            if end < 0:
                return
            seq = int(self._text[at + 7 : end])
            if not self.seqs or seq != self.seqs[-1]:
                self.seqs.append(seq)
                self._crowd.arrived()
            self._text = self._text[end:]
            at = self._text.find(b'"$seq":')
        if not self._is_ready and b"caught-up" in self._text:
            self._is_ready = True
            self._crowd.caught_up()
            if not self._reads:
                self.transport.pause_reading()


def make_sessions(server: ServerProcess, count: int) -> list[str]:
    """Addresses of so many streams on topic t, asked for in a row on one connection."""
    body = json.dumps({"topics": {"t": {"tail": True}}})
    head = "POST /v0/watch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()
    found: list[bytes] = []
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_S) as sock:
        for _ in range(count // 50):
            sock.sendall(request * 50)
            text = b""
            while len(paths := re.findall(rb'"stream_url":"([^"]+)"', text)) < 50:
                received = sock.recv(1 << 16)
                assert received, text
                text += received
            found += paths
    return [path.decode() for path in found]


async def run_crowd(server: ServerProcess) -> tuple[Crowd, list[Watcher], list[float]]:
    loop, crowd = asyncio.get_running_loop(), Crowd(WATCHERS)
    watchers: list[Watcher] = []
    memory = [resident_mib(server)]
    paths = await asyncio.to_thread(make_sessions, server, WATCHERS)
    async with httpx.AsyncClient(base_url=server.url, timeout=2 * PATIENCE_S) as client:
        for number, path in enumerate(paths):
            watcher = Watcher(crowd, path, reads=number % (WATCHERS // SLOW) != 0)
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await loop.sock_connect(sock, (server.host, server.port))
            await loop.create_connection(lambda w=watcher: w, sock=sock)  # type: ignore[misc]
            watchers.append(watcher)
        await crowd.wait_until("ready")
        memory.append(resident_mib(server))
        for _ in range(WRITES):
            crowd.missing += WATCHERS - SLOW
            crowd.began = time.perf_counter()
            sent = await client.post("/v0/topics/t", json={"records": [{"data": RECORD}]})
            sent.raise_for_status()
            await crowd.wait_until("delivered")
        memory.append(resident_mib(server))
    return crowd, watchers, memory


def test_slow_readers_among_two_thousand_hold_nobody_up_and_cost_little(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "t")

    async def scene() -> tuple[Crowd, list[Watcher], list[float]]:
        found = await run_crowd(server)
        for watcher in found[1]:
            watcher.transport.abort()
        return found

    with open_files(WATCHERS + 200):
        crowd, watchers, memory = asyncio.run(scene())
    fast = [w for number, w in enumerate(watchers) if number % (WATCHERS // SLOW)]
    assert all(watcher.seqs == list(range(1, WRITES + 1)) for watcher in fast)
    times = sorted(crowd.times_ms)
    with capsys.disabled():
        print(
            f"\n{WATCHERS} streams, {SLOW} of them not read, {WRITES} records of {len(RECORD)} B: "
            f"delivered after {times[len(times) // 2]:.0f} ms (p50), "
            f"{times[len(times) * 99 // 100]:.0f} ms (p99); resident {memory[0]:.0f} MiB at first, "
            f"{memory[1]:.0f} with all streams open, {memory[2]:.0f} after the records"
        )
    assert memory[1] - memory[0] < WATCHERS * 64 / 1024, "64 KiB a stream"
    assert memory[2] - memory[1] < SLOW * 1 + 64, "what waits for the slow ones is bounded"
    wait_until_gauge(server, "sse_connections", 0)


IDLE = 10_000


def test_ten_thousand_idle_connections_cost_little_and_hold_nobody_up(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "t")
    before = resident_mib(server)
    connections: list[socket.socket] = []
    with open_files(IDLE + 200):
        try:
            for number in range(IDLE):
                # More than a local address has ports to spare is asked for: spread the sources.
                sock = socket.socket()
                sock.bind((f"127.0.0.{2 + number % 4}", 0))
                sock.connect((server.host, server.port))
                connections.append(sock)
                if number % 2:
                    sock.sendall(b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            write(server, "t", 1)
            assert httpx.get(f"{server.url}/v0/ready", timeout=PATIENCE_S).status_code == 200
            for sock in connections[1::500]:
                sock.settimeout(PATIENCE_S)
                assert json.loads(sock.recv(4096).partition(b"\r\n\r\n")[2])["status"] == "ok"
            used = resident_mib(server) - before
        finally:
            for sock in connections:
                sock.close()
    with capsys.disabled():
        print(f"\n{IDLE} idle connections: {used:.0f} MiB, {used * 1024 / IDLE:.1f} KiB each")
    assert used < IDLE * 32 / 1024, "32 KiB a connection"
    assert httpx.get(f"{server.url}/v0/health", timeout=PATIENCE_S).status_code == 200
