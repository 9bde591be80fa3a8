"""A client of a server that is busy, slow, or lives in another time.

The server's clock is three days ahead of ours in every test here: whatever depends on comparing its
time with ours shows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import uvloop
from tests.blackbox.client_world import (
    BOTH,
    PATIENCE_S,
    SHELLS,
    Door,
    Shell,
    all_at_once,
    doors,
    live_server,
)
from tests.blackbox.conftest import child_environment

from topics import errors
from topics.client.worker import Reject
from topics.testing import LiveServer
from topics.values import Job, QueueCounts

DAYS_AHEAD_MS = 3 * 86_400_000
SKEW = f"""
import time
_real = time.time_ns
time.time_ns = lambda: _real() + {DAYS_AHEAD_MS} * 1_000_000
"""
Open = Callable[..., Door]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    early = tmp_path_factory.mktemp("skew")
    (early / "sitecustomize.py").write_text(SKEW)
    path = os.pathsep.join([str(early), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {
        "PYTHONPATH": path,
        "TOPICS_API_KEYS": "right,narrow,reader:read",
        "TOPICS_MAX_INFLIGHT_PER_KEY": "4",
    }
    with live_server(tmp_path_factory.mktemp("trouble"), settings) as running:
        yield running


@pytest.fixture
def opened() -> Iterator[Open]:
    with doors() as make:
        yield make


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_server_really_lives_in_another_time(server: LiveServer, opened: Open) -> None:
    log = opened("sync", server.url)
    log.append("time", {"data": 1})
    ahead_ms = log.read("time").records[0].ts - time.time() * 1000
    assert ahead_ms > DAYS_AHEAD_MS - 3_600_000


# Refusals


@BOTH
def test_a_call_is_repeated_when_the_server_says_that_it_is_busy(
    server: LiveServer, opened: Open, shell: Shell
) -> None:
    busy = opened("sync", server.url, token="narrow")
    log = opened(shell, server.url, token="narrow", retries=60)
    topic = f"busy-{shell}"
    busy.create(topic)
    # Four waiting reads are all that the key may have at once; the fifth call gets 429.
    waiting = [
        threading.Thread(target=lambda: busy.read(topic, wait=30.0), daemon=True) for _ in range(4)
    ]
    for thread in waiting:
        thread.start()
    impatient = opened(shell, server.url, token="narrow", retries=0)
    refused: list[errors.Throttled] = []

    def is_refused() -> bool:
        try:
            impatient.topics()
        except errors.Throttled as error:
            refused.append(error)
        return bool(refused)

    until(is_refused)
    assert refused[0].detail is not None
    assert refused[0].detail["limit"] == "max_inflight_per_key"
    freeing = threading.Timer(
        0.3, lambda: opened("sync", server.url).append(topic, {"data": "wake"})
    )
    freeing.start()
    log.append(topic, {"data": "mine"})
    for thread in (freeing, *waiting):
        thread.join(PATIENCE_S)
    assert [record.data for record in log.read(topic).records] == ["wake", "mine"]


@BOTH
def test_a_key_gets_what_it_may_do_and_no_more(
    server: LiveServer, opened: Open, shell: Shell
) -> None:
    opened("sync", server.url).append("keys", {"data": 1})
    with pytest.raises(errors.Unauthorized):
        opened(shell, server.url, token="wrong").read("keys")
    reader = opened(shell, server.url, token="reader")
    assert reader.read("keys").records[0].data == 1
    with pytest.raises(errors.Forbidden):
        reader.append("keys", {"data": 2})


@BOTH
def test_a_server_that_stands_still_is_waited_for_only_so_long(
    server: LiveServer, opened: Open, shell: Shell
) -> None:
    topic = f"still-{shell}"
    log = opened(shell, server.url, timeout=2.0, retries=0)
    patient = opened(shell, server.url)
    patient.append(topic, {"data": 1})
    assert log.state(topic).count == 1, "it has a connection now"
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(errors.Unreachable) as caught:
            log.append(topic, {"data": 2}, idempotency_key="again")
        assert caught.value.sent
    finally:
        os.kill(server.pid, signal.SIGCONT)
    # What was sent to it arrives when it moves again, and a repeat of ours adds nothing.
    assert patient.append(topic, {"data": 2}, idempotency_key="again").last_seq == 2
    assert [record.data for record in patient.read(topic).records] == [1, 2]


# Consumers and workers in another time


@BOTH
def test_lag_is_told_in_the_servers_own_time(
    server: LiveServer, opened: Open, shell: Shell
) -> None:
    log = opened(shell, server.url)
    topic = f"lag-{shell}"
    log.append(topic, {"data": 1})
    lag = log.consumer(topic, name="c").lag()
    assert lag.lag_records == 1
    assert 0 <= lag.lag_seconds < 3600


class Handled:
    """A handler that counts its calls, and a worker around it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, int]] = []
        self.errors: list[str] = []
        self._lock = threading.Lock()

    def note(self, job: Job) -> None:
        with self._lock:
            self.calls.append((job.data, job.deliveries))

    def on_error(self, job: Job, error: BaseException) -> None:
        self.errors.append(f"{job.data} {error}")


def test_a_lease_is_renewed_for_as_long_as_the_handler_works(
    server: LiveServer, opened: Open
) -> None:
    def work_long(shell: Shell) -> list[tuple[Any, int]]:
        log = opened(shell, server.url)
        queue = f"long-{shell}"
        log.create(queue, type="queue", lease_ms=10_000)
        log.append(queue, [{"data": n} for n in range(3)])
        handled = Handled()

        def handle(job: Job) -> None:
            handled.note(job)
            time.sleep(11.0)  # longer than a lease lasts, which is the point

        with log.worker(queue, handle, concurrency=3) as worker:
            until(lambda: worker.done == 3)
        assert log.queue(queue).stats() == QueueCounts(0, 0, 0)
        return sorted(handled.calls)

    for calls in all_at_once([partial(work_long, shell) for shell in SHELLS]):
        assert calls == [(0, 1), (1, 1), (2, 1)]


@BOTH
def test_a_failed_job_comes_again_and_a_hopeless_one_is_buried(
    server: LiveServer, opened: Open, shell: Shell
) -> None:
    log = opened(shell, server.url)
    queue = f"poison-{shell}"
    log.create(f"{queue}.dead")
    log.create(queue, type="queue", max_deliveries=3, dead_letter=f"{queue}.dead")
    log.append(queue, [{"data": word, "meta": {"k": 1}} for word in ("good", "bad", "reject")])
    handled = Handled()

    async def handle(job: Job) -> None:
        handled.note(job)
        if job.data == "reject":
            raise Reject("never")
        if job.data == "bad":
            raise ValueError("no good")

    worker = log.worker(queue, handle, retry_delay_ms=1, idle_s=0.1, on_error=handled.on_error)
    with worker:
        until(lambda: len(handled.errors) == 4 and log.state(f"{queue}.dead").head_seq == 2)
    assert (worker.done, worker.failed) == (1, 4)
    assert sorted(handled.calls) == [
        ("bad", 1),
        ("bad", 2),
        ("bad", 3),
        ("good", 1),
        ("reject", 1),
    ]
    dead = {record.data: record.meta for record in log.read(f"{queue}.dead").records}
    known = {"$dead_letter_from": queue, "$dead_letter_worker": worker.node}
    for meta in dead.values():
        assert int(meta.pop("$dead_letter_failed_at")) > 0
    assert dead["reject"] == known | {
        "k": 1,
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "3",
        "$dead_letter_error_type": "Reject",
        "$dead_letter_error": "never",
    }
    assert dead["bad"] == known | {
        "k": 1,
        "$dead_letter_deliveries": "3",
        "$dead_letter_src_seq": "2",
        "$dead_letter_error_type": "ValueError",
        "$dead_letter_error": "no good",
    }
    assert log.queue(queue).redrive().moved == 2


@BOTH
def test_a_worker_is_told_to_stop_finishes_and_leaves_the_rest(
    server: LiveServer, opened: Open, shell: Shell
) -> None:
    log = opened(shell, server.url)
    queue = f"stop-{shell}"
    log.create(queue, type="queue", lease_ms=60_000)
    log.append(queue, [{"data": n} for n in range(10)])
    begun, go_on = threading.Event(), threading.Event()

    def handle(job: Job) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    with log.worker(queue, handle, concurrency=2) as worker:
        assert begun.wait(PATIENCE_S)
        until(lambda: log.queue(queue).stats().in_flight == 2)
        worker.stop()
        go_on.set()
    assert worker.done == 2
    counts = log.queue(queue).stats()
    assert (counts.ready, counts.in_flight) == (8, 0)


SCRIPT = """
import asyncio, sys
import topics

kind, url, queue = sys.argv[1:]

def handle(job):
    print("begun", flush=True)
    sys.stdin.readline()
    print("done", flush=True)

if kind == "sync":
    with topics.open(url, token="right") as log:
        log.worker(queue, handle, concurrency=1).run()
else:
    async def main():
        async with topics.aio.open(url, token="right") as log:
            await log.worker(queue, handle, concurrency=1).run()
    asyncio.run(main())
print("stopped", flush=True)
"""


@BOTH
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_job_in_hand_finish_and_ends_the_process_well(
    server: LiveServer, opened: Open, shell: Shell, number: signal.Signals
) -> None:
    log = opened("sync", server.url)
    queue = f"signal-{shell}-{number.name}"
    log.create(queue, type="queue")
    log.append(queue, [{"data": n} for n in range(3)])
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, shell, server.url, queue],
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        said, _ = process.communicate("go on\n", timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert said == "done\nstopped\n"
    assert process.returncode == 0
    assert log.state(queue).count == 2


@BOTH
def test_a_worker_goes_on_after_its_server_was_away(
    server: LiveServer, opened: Open, shell: Shell
) -> None:
    log = opened(shell, server.url)
    queue = f"away-{shell}"
    log.create(queue, type="queue", lease_ms=20_000)
    log.append(queue, {"data": 0})
    handled = Handled()
    with log.worker(queue, handled.note, idle_s=0.2) as worker:
        until(lambda: worker.done == 1)
        server.restart()
        log.append(queue, {"data": 1})
        until(lambda: worker.done >= 2)
    assert {data for data, _ in handled.calls} == {0, 1}


def test_a_queue_that_is_none_ends_the_worker_with_the_reason(
    server: LiveServer, opened: Open
) -> None:
    log: Any = opened("sync", server.url)
    log.create("no-queue")
    with pytest.raises(errors.NotAQueue):
        log.worker("no-queue", print).run(handle_signals=False)


def test_the_async_client_runs_on_the_loop_that_web_servers_bring(server: LiveServer) -> None:
    async def main() -> list[object]:
        async with server.open_async(token="right") as log:
            await log.append("uvloop", [{"data": 1}, {"data": 2}])
            page = await log.read("uvloop")
            live = [item async for item in log.follow("uvloop", after=0, wait=0.1)]
            return [*page.records, *live]

    assert [getattr(item, "data", None) for item in uvloop.run(main())] == [1, 2, 1, 2]
