"""A hundred thousand records through producers while the server is killed: each exactly once.

The cruel moment is the one between an append and its answer. So before each kill a proxy swallows
what the server answers, until it holds records that their producer knows nothing of.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.blackbox.client_world import KEY, PATIENCE_S, Proxy, live_server

import topics
from topics.client.producer import Delivery
from topics.client.sync import RemoteLog
from topics.testing import LiveServer

RECORDS_EACH = 50_000
KILLS = 3
STAGE = RECORDS_EACH // (KILLS + 1)
AHEAD = STAGE // 2
"""How far behind the place of a kill producers go before it has happened: both must meet it."""


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("producer"), {}) as running:
        yield running


class Course:
    """Where producers are, and which kills are behind them."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.heard: dict[str, list[int]] = {"sync": [], "async": []}
        self.is_over = [threading.Event() for _ in range(KILLS)]
        self.is_due = [threading.Event() for _ in range(KILLS)]

    def delivered(self, topic: str, delivery: Delivery) -> None:
        assert delivery.seq is not None, delivery.error
        self.heard[topic].append(delivery.seq)
        kill, rest = divmod(len(self.heard[topic]), STAGE)
        if rest == 0 and 1 <= kill <= KILLS and not self.is_due[kill - 1].is_set():
            self.proxy.swallows_replies.set()
            self.is_due[kill - 1].set()

    def gate(self, sent: int) -> threading.Event | None:
        """What a producer has to wait for before it sends on."""
        kill, rest = divmod(sent - AHEAD, STAGE)
        return self.is_over[kill - 1] if rest == 0 and 1 <= kill <= KILLS else None


def produce(url: str, course: Course) -> None:
    with (
        topics.open(url, token=KEY, retries=0, timeout=10.0) as log,
        log.producer(
            "sync", max_records=200, on_delivery=lambda d: course.delivered("sync", d)
        ) as producer,
    ):
        for n in range(RECORDS_EACH):
            if (gate := course.gate(n)) is not None:
                assert gate.wait(PATIENCE_S)
            producer.send(n)


async def produce_async(url: str, course: Course) -> None:
    async with (
        topics.aio.open(url, token=KEY, retries=0, timeout=10.0) as log,
        log.producer(
            "async", max_records=200, on_delivery=lambda d: course.delivered("async", d)
        ) as producer,
    ):
        for n in range(RECORDS_EACH):
            if (gate := course.gate(n)) is not None:
                assert await asyncio.to_thread(gate.wait, PATIENCE_S)
            await producer.send(n)


def test_a_hundred_thousand_records_arrive_exactly_once_and_in_order_through_kills(
    server: LiveServer,
) -> None:
    proxy = Proxy(server.url)
    course = Course(proxy)
    with ThreadPoolExecutor(2) as pool:
        producing = [
            pool.submit(produce, proxy.url, course),
            pool.submit(asyncio.run, produce_async(proxy.url, course)),
        ]
        for is_due, is_over in zip(course.is_due, course.is_over, strict=True):
            assert is_due.wait(PATIENCE_S)
            await_unheard(server, course)
            server.kill()
            proxy.swallows_replies.clear()
            server.start()
            is_over.set()
        for done in producing:
            done.result(PATIENCE_S)
    proxy.close()
    with topics.open(server.url, token=KEY) as log:
        for topic, heard in course.heard.items():
            seqs, values = everything(log, topic)
            assert values == list(range(RECORDS_EACH))
            assert heard == seqs


def await_unheard(server: LiveServer, course: Course) -> None:
    """Until each topic holds records whose producer has not been told of them."""
    deadline = time.monotonic() + PATIENCE_S
    with topics.open(server.url, token=KEY) as log:
        while any(
            log.state(topic).head_seq <= heard[-1] for topic, heard in course.heard.items() if heard
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def everything(log: RemoteLog, topic: str) -> tuple[list[int], list[int]]:
    seqs: list[int] = []
    values: list[int] = []
    cursor = 0
    while True:
        page = log.read(topic, after=cursor, limit=1000)
        assert page.tombstone is None
        seqs += [record.seq for record in page.records]
        values += [record.data for record in page.records]
        cursor = page.next_from_seq
        if page.caught_up:
            return seqs, values
