"""A real server that gets more than its disk can take: it refuses, recovers and loses nothing.

Dozens of writers send two megabytes at a time to a disk that takes seconds for a sync. The queue
of the log takes 64 MiB and is soon full, and from then on writes are refused. Later the disk is
well again. In the end the server is killed, and whatever it acknowledged has to be there.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerFactory, ServerProcess
from tests.blackbox.event_client import Event, EventStream, gauge, put, watch

SLOW_DISK = Path(__file__).parent / "slow_disk"
WRITERS = 64
OVERLOAD_S = 3.0
PADDING = "x" * 1_000_000

Answer = tuple[int, dict[str, Any], str]


class Client:
    """One connection."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)

    def post(self, path: str, body: object) -> Answer:
        headers = {"content-type": "application/json"}
        self._connection.request("POST", path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers.get("retry-after", "")

    def close(self) -> None:
        self._connection.close()


class Writer(threading.Thread):
    """Writes as fast as it is answered, and keeps what it was told."""

    def __init__(self, server: ServerProcess, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.acked: dict[str, int] = {}  # marker -> seq
        self.refused: dict[str, dict[str, Any]] = {}  # marker -> detail
        self.waited_ms = 0.0
        self.is_patient = number % 4 == 0
        self._client = Client(server)
        self._number = number
        self._over = over

    def run(self) -> None:
        try:
            for attempt in itertools.count():
                if self._over.is_set():
                    break
                self._write(f"{self._number}-{attempt}")
        finally:
            self._client.close()

    def _write(self, marker: str) -> None:
        records = [{"data": marker, "tag": "marker"}, {"data": PADDING}, {"data": PADDING}]
        body = {"records": records, "disable_backpressure": self.is_patient}
        status, answer, retry_after = self._client.post("/v0/topics/flood", body)
        if status == 200:
            self.acked[marker] = answer["first_seq"]
            self.waited_ms += answer["performance"].get("throttle_wait_ms", 0)
            return
        assert (status, answer["error"]["code"]) == (429, "throttled"), answer
        detail = answer["error"]["detail"]
        assert retry_after == str(-(-detail["retry_after_ms"] // 1000))
        self.refused[marker] = detail
        self._over.wait(min(detail["retry_after_ms"], 300) / 1000)


class Overload:
    """The server while it is overloaded, and how to end that."""

    def __init__(self, server: ServerProcess, slow: Path) -> None:
        self.server = server
        self.over = threading.Event()
        self.writers = [Writer(server, number, self.over) for number in range(WRITERS)]
        self._slow = slow

    def begin(self) -> None:
        self._slow.touch()
        for writer in self.writers:
            writer.start()

    @property
    def refusals(self) -> list[dict[str, Any]]:
        return [detail for writer in self.writers for detail in list(writer.refused.values())]

    def end(self) -> None:
        """The disk is well again and the writers go home, with every answer they waited for."""
        self._slow.unlink(missing_ok=True)
        self.over.set()
        for writer in self.writers:
            writer.join(PATIENCE_S)
            assert not writer.is_alive(), "a write was never answered"


@pytest.fixture
def overload(server_factory: ServerFactory, tmp_path: Path) -> Iterator[Overload]:
    slow = tmp_path / "slow"
    server = server_factory(
        env={"PYTHONPATH": str(SLOW_DISK), "SLOW_DISK": str(slow), "TOPICS_WAL_SHARDS": "1"}
    )
    put(server, "flood", durability="fsync")
    put(server, "background", durability="ephemeral", priority=-1)
    made = Overload(server, slow)
    yield made
    made.end()


def wait_for(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.02)


def test_an_overloaded_server_refuses_recovers_and_loses_no_ack(overload: Overload) -> None:
    server, client = overload.server, Client(overload.server)
    session = watch(server, "background")
    with EventStream(server, session["stream_url"]) as stream:
        stream.until("caught-up")
        overload.begin()
        wait_for(lambda: bool(overload.refusals), "a refusal")
        _check_low_priorities_step_back(client, stream)
        _check_reads_go_on(client)
        time.sleep(OVERLOAD_S)
        overload.end()
        _check_recovery(server, client)
        _check_everything_was_pushed(client, stream)
    client.close()
    _check_refusals(overload)
    server.restart()
    _check_nothing_is_lost(overload)


def _check_low_priorities_step_back(client: Client, stream: EventStream) -> None:
    """Once it lasts, writes to a topic of low priority are paced and its pushes withheld."""
    body = {"records": [{"data": 1}]}
    path = "/v0/topics/background"
    spent: dict[str, float] = {}

    def is_paced() -> bool:
        spent.update(_performance(client.post(path, body)))
        return "throttle_wait_ms" in spent

    wait_for(is_paced, "pacing")
    assert 12 <= spent["throttle_wait_ms"] <= 20
    hurried = client.post(path, {**body, "disable_backpressure": True})
    assert "throttle_wait_ms" not in _performance(hurried)
    notice = _next_of(stream, "error", "caught-up")
    while notice.event != "error":
        # There was a moment of calm; what comes next will be withheld.
        client.post(path, body)
        notice = _next_of(stream, "error", "caught-up")
    assert (notice.data["code"], notice.data["reason"]) == (429, "pressure")
    assert notice.data["topic"] == "background"


def _next_of(stream: EventStream, *names: str) -> Event:
    while (event := stream.next()).event not in names:
        pass
    return event


def _performance(answer: Answer) -> dict[str, float]:
    status, body, _ = answer
    assert status == 200, body
    found: dict[str, float] = body["performance"]
    return found


def _check_everything_was_pushed(client: Client, stream: EventStream) -> None:
    head = client.post("/v0/topics/background/diff", {"limit": 1})[1]["head_seq"]
    while stream.until("caught-up")[-1].positions["background"] < head:
        pass


def _check_reads_go_on(client: Client) -> None:
    status, page, _ = client.post("/v0/topics/background/diff", {})
    assert status == 200
    assert page["caught_up"]


def _check_recovery(server: ServerProcess, client: Client) -> None:
    wait_for(lambda: gauge(server, "pressure") < 0.2, "calm")
    for number in range(20):
        status, answer, _ = client.post("/v0/topics/after", {"records": [{"data": number}]})
        assert status in (200, 201), answer


def _check_refusals(overload: Overload) -> None:
    for detail in overload.refusals:
        assert detail["reason"] == "backlog"
        assert detail["pressure"] == 1.0
        assert 50 <= detail["retry_after_ms"] <= 5000
    advice = {detail["retry_after_ms"] for detail in overload.refusals}
    assert advice != {1000}, "nobody measured how fast it drains"
    for writer in overload.writers:
        assert writer.is_patient or not writer.waited_ms
    assert any(writer.waited_ms for writer in overload.writers), "nobody waited for room"


def _check_nothing_is_lost(overload: Overload) -> None:
    found = _markers(overload.server)
    for writer in overload.writers:
        for marker, seq in writer.acked.items():
            assert found.get(marker) == seq
        assert not set(writer.refused) & set(found)
    acked = sum(len(writer.acked) for writer in overload.writers)
    assert acked == len(found)
    print(f"{acked} writes acknowledged, {len(overload.refusals)} refused, none lost")


def _markers(server: ServerProcess) -> dict[str, int]:
    """Where each marker is; every one is there once."""
    client = Client(server)
    found: dict[str, int] = {}
    page: dict[str, Any] = {"next_from_seq": 0, "caught_up": False}
    while not page["caught_up"]:
        wanted = {"from_seq": page["next_from_seq"], "match": "marker"}
        status, page, _ = client.post("/v0/topics/flood/diff", wanted)
        assert status == 200, page
        for record in page["records"]:
            assert record["data"] not in found
            found[record["data"]] = record["$seq"]
    client.close()
    return found
