"""Workers of a queue in a process of their own: each claims 8 jobs, acks them, and asks again.

    python -m topics.bench.queues_workers ADDRESS WORKERS

Ends when a claim finds nothing. Prints JSON: jobs acked, seconds, the microseconds of claims (p50
and p99) and the CPU time this process took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import msgspec
import uvloop

from topics.bench.server_load import percentile
from topics.bench.server_process import HEADERS

TOPIC = "jobs"
CLAIM = 8


class _Job(msgspec.Struct, rename={"seq": "$seq"}):
    seq: int


class _Claimed(msgspec.Struct):
    claimed: list[_Job] = []


_decode = msgspec.json.Decoder(_Claimed).decode


class Fleet:
    """What all workers share."""

    def __init__(self, workers: int) -> None:
        self.left = workers
        self.jobs = 0
        self.claims_us: list[float] = []
        self.over = asyncio.Event()

    def leave(self) -> None:
        self.left -= 1
        if not self.left:
            self.over.set()


class Worker(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet = fleet
        self._claim = _post("claim", {"node": f"worker-{number}", "max": CLAIM})
        self._node = f"worker-{number}"
        self._asked = 0.0
        self._acking = 0
        self._text = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self) -> None:
        self._asked = time.perf_counter()
        self._send(self._claim)

    def _send(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]  # uvloop's own transport

    def data_received(self, data: bytes) -> None:
        text = self._text + data
        head, gap, body = text.partition(b"\r\n\r\n")
        if not gap or len(body) < int(head.partition(b"content-length: ")[2].partition(b"\r")[0]):
            self._text = text
            return
        self._text = b""
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(body.decode())
        if self._acking:
            self._fleet.jobs += self._acking
            self._acking = 0
            self.ask()
        else:
            self._work(_decode(body).claimed)

    def _work(self, jobs: list[_Job]) -> None:
        self._fleet.claims_us.append((time.perf_counter() - self._asked) * 1e6)
        if not jobs:
            self._fleet.leave()
            return
        self._acking = len(jobs)
        self._send(_post("ack", {"node": self._node, "seqs": [job.seq for job in jobs]}))


def _post(what: str, body: object) -> bytes:
    text = msgspec.json.encode(body)
    fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    head = f"POST /v0/topics/{TOPIC}/{what} HTTP/1.1\r\nhost: bench\r\n{fields}"
    return f"{head}content-length: {len(text)}\r\n\r\n".encode() + text


async def work(address: tuple[str, int], workers: int) -> None:
    loop, fleet = asyncio.get_running_loop(), Fleet(workers)
    staff = []
    for number in range(workers):
        made = Worker(fleet, number)
        await loop.create_connection(lambda made=made: made, *address)  # type: ignore[misc]
        staff.append(made)
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.perf_counter(), time.process_time()
    for worker in staff:
        worker.ask()
    await fleet.over.wait()
    times = sorted(fleet.claims_us)
    found = {
        "jobs": fleet.jobs,
        "seconds": time.perf_counter() - began,
        "p50_us": percentile(times, 0.5),
        "p99_us": percentile(times, 0.99),
        "generator_cpu_s": time.process_time() - cpu,
    }
    print(json.dumps(found), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    where, _, port = sys.argv[1].rpartition(":")
    uvloop.run(work((where, int(port)), int(sys.argv[2])))
