"""Workers of a queue in a process of their own: each claims 8 jobs, acks them, and asks again.

    python -m topics.bench.queues_workers ADDRESS WORKERS

Ends when a claim finds nothing. Prints JSON: jobs acked, seconds, the microseconds of claims (p50
and p99) and the CPU time this process took. It shares the cores with the server it measures, so it
does as little as it can: requests are put together from prepared bytes, and of an answer it looks
at the status, the length and the seqs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from topics.bench.measure import percentile
from topics.bench.server_process import HEADERS

TOPIC = "jobs"
CLAIM = 8

_OK = b"HTTP/1.1 200"
_LENGTH = b"content-length: "
_JOB = b'{"$seq":'


class Fleet:
    """What all workers share."""

    def __init__(self, workers: int) -> None:
        self.left = workers
        self.jobs = 0
        self.claims_ns: list[int] = []
        self.over = asyncio.Event()

    def leave(self) -> None:
        self.left -= 1
        if not self.left:
            self.over.set()


class LoadWorker(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        node = b"worker-%d" % number
        body = b'{"node":"%b","max":%d}' % (node, CLAIM)
        self._fleet = fleet
        self._claim = b"%bcontent-length: %d\r\n\r\n%b" % (_head("claim"), len(body), body)
        self._ack_head = _head("ack") + b"content-length: %d\r\n\r\n%b"
        self._ack_body = b'{"node":"%b","seqs":[%%b]}' % node
        self._asked = 0
        self._acking = 0
        self._text = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = transport.write  # type: ignore[attr-defined]  # uvloop's own transport

    def ask(self) -> None:
        self._asked = time.perf_counter_ns()
        self._write(self._claim)

    def data_received(self, data: bytes) -> None:
        text = self._text + data if self._text else data
        body_at = text.find(b"\r\n\r\n") + 4
        if body_at < 4 or len(text) < body_at + _length(text):
            self._text = text
            return
        self._text = b""
        if not text.startswith(_OK):
            raise RuntimeError(text.decode())
        if self._acking:
            self._fleet.jobs += self._acking
            self._acking = 0
            self.ask()
        else:
            self._work(text)

    def _work(self, text: bytes) -> None:
        """Ack what a claim gave."""
        fleet = self._fleet
        fleet.claims_ns.append(time.perf_counter_ns() - self._asked)
        jobs = text.split(_JOB)
        self._acking = len(jobs) - 1
        if not self._acking:
            fleet.leave()
            return
        body = self._ack_body % b",".join([job[: job.index(b",")] for job in jobs[1:]])
        self._write(self._ack_head % (len(body), body))


def _head(what: str) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    return f"POST /v0/topics/{TOPIC}/{what} HTTP/1.1\r\nhost: bench\r\n{fields}".encode()


def _length(text: bytes) -> int:
    """How long the body of an answer is whose head is in."""
    start = text.index(_LENGTH) + len(_LENGTH)
    return int(text[start : text.index(b"\r", start)])


async def work(address: tuple[str, int], workers: int) -> None:
    loop, fleet = asyncio.get_running_loop(), Fleet(workers)
    staff = []
    for number in range(workers):
        made = LoadWorker(fleet, number)
        await loop.create_connection(lambda made=made: made, *address)  # type: ignore[misc]
        staff.append(made)
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.perf_counter(), time.process_time()
    for worker in staff:
        worker.ask()
    await fleet.over.wait()
    times = [took / 1e3 for took in sorted(fleet.claims_ns)]
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
