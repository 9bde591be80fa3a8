"""A flood of low priority does not move what is urgent: measured on a real server.

Watchers stand at an urgent topic and at many topics of low priority. Urgent records are written one
at a time, first alone, then while others write to all the low ones as fast as they are answered.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from tests.blackbox.event_client import EventStream, put, watch

LOW_TOPICS = 20
FLOODERS = 3
URGENT_WRITES = 60
GENEROUS_MS = 5000.0
"""The windows of a busy server add up to 30 ms; the machine may be busy with other things too, and
stop everybody for seconds: so half of the deliveries are held to it, not the slowest."""


class Client:
    """One connection that writes."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)

    def write(self, topic: str, count: int = 1) -> int:
        body = json.dumps({"records": [{"data": "x" * 200}] * count})
        headers = {"content-type": "application/json"}
        self._connection.request("POST", f"/v0/topics/{topic}", body, headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def close(self) -> None:
        self._connection.close()


class Drain(threading.Thread):
    """Reads a stream of all the low topics and throws it away."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        path = watch(server, *[f"low{n}" for n in range(LOW_TOPICS)], heartbeat_ms=1000)
        self._stream = EventStream(server, path["stream_url"])
        self.frames = 0

    def run(self) -> None:
        # A machine too busy to beat in time ends the reading, not the test.
        with suppress(TimeoutError):
            while not self._over.is_set():
                self._stream.next_or_beat()
                self.frames += 1
        self._stream.close()

    def stop(self) -> None:
        self._over.set()
        self.join(PATIENCE_S)


@contextmanager
def flood(server: ServerProcess) -> Iterator[list[int]]:
    """Writers that write to the low topics all the time; the statuses they got."""
    over = threading.Event()
    statuses: list[int] = []

    def run() -> None:
        client = Client(server)
        while not over.is_set():
            number = len(statuses) % LOW_TOPICS
            statuses.append(client.write(f"low{number}", 20))
        client.close()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(FLOODERS)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)


def urgent_times_ms(client: Client, stream: EventStream) -> list[float]:
    """From the start of each urgent write to its arrival."""
    times = []
    for _ in range(URGENT_WRITES):
        began = time.perf_counter()
        assert client.write("urgent") in (200, 201)
        stream.until("record")
        times.append((time.perf_counter() - began) * 1e3)
        stream.until("caught-up")
    return sorted(times)


def p50(times: list[float]) -> float:
    return times[len(times) // 2]


def p99(times: list[float]) -> float:
    return times[len(times) * 99 // 100]


def wait_for_flood(statuses: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(statuses) <= LOW_TOPICS:
        assert time.monotonic() < deadline, "there is no flood"
        time.sleep(0.01)


def test_a_flood_of_low_priority_leaves_urgent_deliveries_in_time(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "urgent", priority=900)
    for number in range(LOW_TOPICS):
        put(server, f"low{number}", priority=-500)
    drains = [Drain(server) for _ in range(2)]
    for drain in drains:
        drain.start()
    client = Client(server)
    with EventStream(server, watch(server, "urgent")["stream_url"]) as stream:
        stream.until("caught-up")
        alone = urgent_times_ms(client, stream)
        with flood(server) as statuses:
            wait_for_flood(statuses)
            flooded = urgent_times_ms(client, stream)
    client.close()
    for drain in drains:
        drain.stop()
    with capsys.disabled():
        print(
            f"\nurgent, write to delivery: p50 {p50(alone):.1f} ms, "
            f"p99 {p99(alone):.1f} ms alone; p50 {p50(flooded):.1f} ms, "
            f"p99 {p99(flooded):.1f} ms beside {len(statuses)} low writes of 20"
        )
    assert set(statuses) <= {200, 201, 429}
    assert p50(flooded) - p50(alone) < GENEROUS_MS
