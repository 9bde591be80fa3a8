"""Long bodies over HTTP: others are served meanwhile, and what is written is the same."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

import pytest
from tests.unit.http.turn_world import Worker, World, play, post, turn
from tests.unit.queue.builders import QUEUE

from topics.delivery import loop_budget
from topics.engine.effects import Op, run
from topics.engine.reads.reading import Query
from topics.errors import TopicsError
from topics.http.limits import Limits
from topics.http.messages import Request
from topics.server.driver import Driver
from topics.wire import requests

T = TypeVar("T")
ROW = "x" * 4000
LONG = [f"{n}{ROW}" for n in range(60)]
"""Several pieces."""
MANY_TURNS = 400


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of the loop after every step, and nothing has to be large for that."""
    monkeypatch.setattr(requests, "LONG_BODY_BYTES", 4000)
    monkeypatch.setattr(loop_budget, "BUDGET_NS", 0)


class OnTheSpot(Executor):
    """A pool whose work is done when it has been given."""

    is_at_work = False

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        done: Future[T] = Future()
        self.is_at_work = True
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        finally:
            self.is_at_work = False
        return done


class Driven:
    """Runs operations as a server does, turn by turn."""

    def __init__(self, world: World) -> None:
        self.pool = OnTheSpot()
        self.driver = Driver(asyncio.get_running_loop(), self.pool)
        world.service.runner = self

    def start(self, op: Op[T], done: Callable[[T | None, TopicsError | None], None]) -> None:
        self.driver.start(op, done)


async def until(worker: Worker, count: int = 1) -> list[tuple[int, dict[str, Any]]]:
    """Its next answers, however many turns they take."""
    found: list[tuple[int, dict[str, Any]]] = []
    for _ in range(MANY_TURNS):
        found += worker.answers
        if len(found) == count:
            return found
        await turn()
    raise AssertionError(f"{found} is all that came")


async def settled(driven: Driven) -> None:
    for _ in range(MANY_TURNS):
        if not driven.driver.in_flight:
            return
        await turn()
    raise AssertionError("something never ends")


def requests_there() -> list[Request]:
    return [found for found in gc.get_objects() if isinstance(found, Request)]


def stored(world: World, topic: str = QUEUE) -> list[object]:
    page = run(world.shop.engine.read(topic, Query(limit=1000, budget=1 << 30)))
    return [record.data for record in page.records]


def test_others_are_answered_while_a_long_body_is_read() -> None:
    async def scene(world: World) -> None:
        driven = Driven(world)
        slow, quick = world.hire("sq")
        slow.append(*LONG)
        served = 0
        while not (answers := slow.answers):
            quick.append(served)
            ((status, _),) = await until(quick)
            assert status == 200
            served += 1
            await turn()
        ((status, body),) = answers
        assert (status, body["count"]) == (200, len(LONG))
        assert served >= 5
        assert [data for data in stored(world) if isinstance(data, str)] == LONG
        assert driven.driver.in_flight == 0

    play(scene)


def test_long_bodies_are_done_one_by_one_in_their_order() -> None:
    async def scene(world: World) -> None:
        Driven(world)
        workers = world.hire("abc")
        for worker in workers:
            worker.append(*[f"{worker.name}{ROW}"] * 40)
        firsts = [(await until(worker))[0][1]["first_seq"] for worker in workers]
        assert firsts == [1, 41, 81]

    play(scene)


def test_requests_in_line_on_a_connection_keep_their_order() -> None:
    async def scene(world: World) -> None:
        Driven(world)
        (worker,) = world.hire("a")
        worker.append("before")
        worker.append(*LONG)
        worker.append("between")
        worker.append(*LONG)
        worker.append("after")
        answers = await until(worker, 5)
        assert [body["first_seq"] for _, body in answers] == [1, 2, 62, 63, 123]
        assert stored(world) == ["before", *LONG, "between", *LONG, "after"]

    play(scene)


def test_keys_heads_and_configs_hold_for_long_writes() -> None:
    async def scene(world: World) -> None:
        Driven(world)
        (worker,) = world.hire("a")

        async def answer(topic: str = "new", **more: object) -> tuple[int, dict[str, Any]]:
            worker.append(*LONG, topic=topic, **more)
            return (await until(worker))[0]

        config = {"cap_records": 70}
        status, body = await answer(idempotency_key="k", config=config, expect_head=0)
        assert (status, body["created"], body["count"]) == (201, True, 60)
        status, body = await answer(idempotency_key="k")
        assert (status, body["deduped"], body["first_seq"]) == (200, True, 1)
        status, body = await answer(expect_head=5)
        assert (status, body["error"]["code"]) == (409, "head_mismatch")
        assert body["error"]["detail"]["head_seq"] == 60
        status, body = await answer(expect_head=60, node="n")
        assert (status, body["first_seq"]) == (200, 61)
        assert len(stored(world, "new")) == 70, "the cap of the first write holds"
        status, body = await answer("absent", create=False)
        assert (status, body["error"]["code"]) == (404, "topic_not_found")
        sizes = world.shop.engine.kernel.settings
        worker.append(*LONG, "y" * sizes.max_record_bytes, topic="new")
        ((status, body),) = await until(worker)
        assert (status, body["error"]["code"]) == (400, "record_too_large")

    play(scene)


def test_two_long_writes_with_one_key_are_one() -> None:
    async def scene(world: World) -> None:
        Driven(world)
        a, b = world.hire("ab")
        for worker in (a, b):
            worker.append(*LONG, idempotency_key="k")
        answers = [(await until(worker))[0][1] for worker in (a, b)]
        assert [answer["deduped"] for answer in answers] == [False, True]
        assert stored(world) == LONG

    play(scene)


def test_a_key_in_a_header_counts_too() -> None:
    async def scene(world: World) -> None:
        Driven(world)
        (worker,) = world.hire("a")
        text = post(f"/v0/topics/{QUEUE}", records=[{"data": row} for row in LONG])
        keyed = text.replace(b"host: localhost", b"host: localhost\r\nidempotency-key: k", 1)
        for _ in range(2):
            worker.connection.data_received(keyed)
        answers = await until(worker, 2)
        assert [body["deduped"] for _, body in answers] == [False, True]

    play(scene)


def test_a_mistake_is_told_and_the_next_goes_on() -> None:
    async def scene(world: World) -> None:
        Driven(world)
        a, b = world.hire("ab")
        text = post(f"/v0/topics/{QUEUE}", records=[{"data": row} for row in LONG])
        a.connection.data_received(text[:-2] + b"}]")
        b.append(*LONG)
        ((status, body),) = await until(a)
        assert (status, body["error"]["code"]) == (400, "invalid_request")
        assert "malformed" in body["error"]["message"]
        ((status, _),) = await until(b)
        assert status == 200
        assert stored(world) == LONG

    play(scene)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize("leaves", [0, 1])
def test_a_client_that_leaves_at_any_time_leaves_nothing_behind(turns: int, leaves: int) -> None:
    async def scene(world: World) -> None:
        driven = Driven(world)
        before = set(map(id, requests_there()))
        workers = world.hire("ab")
        for worker in workers:
            worker.append(*[f"{worker.name}{ROW}"] * 40)
        sent = [weakref.ref(x) for x in requests_there() if id(x) not in before]
        assert len(sent) >= 2
        for _ in range(turns):
            await turn()
        workers[leaves].leave()
        await settled(driven)
        rows = stored(world)
        assert len(rows) in (40, 80), "its write is whole or not there"
        stays = workers[1 - leaves]
        assert sum(row == f"{stays.name}{ROW}" for row in rows) == 40
        ((status, _),) = await until(stays)
        assert status == 200
        late = world.hire("c")[0]
        late.append(*LONG)
        assert (await until(late))[0][0] == 200
        for worker in world.workers:
            worker.leave()
        world.hub.heads.clear()  # it keeps copies, without bodies
        gc.collect()
        assert not [request for request in sent if request() is not None]

    play(scene)


def test_one_who_left_while_in_line_writes_nothing() -> None:
    async def scene(world: World) -> None:
        driven = Driven(world)
        a, b = world.hire("ab")
        a.append(*LONG)
        b.append(*LONG)
        b.leave()
        await settled(driven)
        assert stored(world) == LONG

    play(scene)


def test_a_long_stage_is_kept_like_a_short_one() -> None:
    async def scene(world: World) -> None:
        Driven(world)
        slow, quick = world.hire("sq")
        records = [{"topic": QUEUE, "data": row, "tag": "t"} for row in LONG]
        slow.connection.data_received(post("/v0/stages/app/1/0/0", records=records))
        for _ in range(5):
            assert not slow.answers
            quick.append(1)
            assert (await until(quick))[0][0] == 200
        ((status, body),) = await until(slow)
        assert (status, body["records"]) == (200, len(LONG))
        slow.connection.data_received(post("/v0/stages/app/1/commit", parts=[[0, 0]]))
        assert (await until(slow))[0][0] == 200
        assert [data for data in stored(world) if isinstance(data, str)] == LONG

    play(scene)


def stage(*more: dict[str, object]) -> bytes:
    records = [*more, *({"topic": QUEUE, "data": row} for row in LONG)]
    return post("/v0/stages/app/1/0/0", records=records)


def write(first: dict[str, object]) -> bytes:
    return post(f"/v0/topics/{QUEUE}", records=[first, *({"data": row} for row in LONG)])


@pytest.mark.parametrize(
    ("decoder", "asked", "expected"),
    [
        ("decode_stage", stage({"data": 1, "topic": QUEUE}), 200),
        ("decode_stage", stage({"data": 1}), 400),
        ("decode_write", write({"tag": "t", "data": 1}), 200),
        ("decode_write", write({}), 400),
    ],
    ids=["stage", "wrong stage", "write", "wrong write"],
)
def test_a_long_body_that_cannot_be_cut_is_decoded_aside(
    decoder: str, asked: bytes, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: World) -> None:
        driven = Driven(world)
        (worker,) = world.hire("a")
        aside, decode = list[bool](), getattr(requests, decoder)

        def noted(body: bytes) -> object:
            aside.append(driven.pool.is_at_work)
            return decode(body)

        monkeypatch.setattr(requests, decoder, noted)
        worker.connection.data_received(asked)
        ((status, _),) = await until(worker)
        assert (status, aside) == (expected, [True])

    play(scene)


def test_a_stage_whose_client_left_while_in_line_takes_no_memory() -> None:
    async def scene(world: World) -> None:
        driven = Driven(world)
        first, second = world.hire("ab")
        before = set(map(id, requests_there()))
        first.append(*LONG)
        second.connection.data_received(stage())
        (waiting,) = [
            x for x in requests_there() if id(x) not in before and b"/stages/" in x.path and x.body
        ]
        second.leave()
        assert not waiting.body
        await settled(driven)
        third = world.hire("c")[0]
        third.connection.data_received(post("/v0/stages/app/1/commit", parts=[[0, 0]]))
        ((status, _),) = await until(third)
        assert status == 404, "nothing was kept"

    play(scene)


def test_a_connection_with_a_long_stage_in_line_is_not_read_far_ahead() -> None:
    async def scene(world: World) -> None:
        world.hub.limits = Limits(max_pipelined_bytes=100_000)
        Driven(world)
        first, second = world.hire("ab")
        first.append(*LONG)
        for _ in range(2):
            second.connection.data_received(stage())
        assert not second.is_reading()
        assert [status for status, _ in await until(second, 2)] == [200, 200]
        assert second.is_reading()

    play(scene)
