"""A server without a network, whose clients hand over their requests turn by turn of the loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from tests.unit.http.transports import HandFed
from tests.unit.queue.builders import QUEUE, Shop

from topics.engine.effects import Op
from topics.errors import TopicsError
from topics.http.api.auth import Keyring
from topics.http.api.service import HttpLimits, Service
from topics.http.h1.connection import H1Connection
from topics.http.h1.exchange import H1Exchange
from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.server.wiring import build_app

T = TypeVar("T")
Answer = tuple[int, dict[str, Any]]


class Worker(HandFed):
    """A client of its own connection."""

    def __init__(self, hub: Hub, name: str) -> None:
        super().__init__()
        self.name = name
        self._out = b""
        self.connection = H1Connection(hub, self, name)

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        self._out += bytes(data)

    def claim(self, most: int, **more: object) -> None:
        self.ask("claim", node=self.name, max=most, **more)

    def ack(self, *seqs: int) -> None:
        self.ask("ack", node=self.name, seqs=seqs)

    def append(self, *values: object, topic: str = QUEUE, **more: object) -> None:
        records = [{"data": value} for value in values]
        self.connection.data_received(post(f"/v0/topics/{topic}", records=records, **more))

    def ask(self, what: str, **body: object) -> None:
        self.connection.data_received(request(what, **body))

    def leave(self) -> None:
        if not self.closing:
            self.closing = True
            self.connection.connection_lost(None)

    @property
    def has_answer(self) -> bool:
        return bool(self._out)

    @property
    def answers(self) -> list[Answer]:
        """What has come, taken."""
        found: list[Answer] = []
        rest, self._out = self._out, b""
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            found.append((int(head.split()[1]), json.loads(rest[:size])))
            rest = rest[size:]
        return found

    @property
    def answer(self) -> Answer:
        (only,) = self.answers
        return only

    @property
    def seqs(self) -> list[int]:
        """The jobs of the claim that was answered."""
        status, body = self.answer
        assert status == 200, body
        return [job["$seq"] for job in body["claimed"]]


def request(what: str, **body: object) -> bytes:
    return post(f"/v0/topics/{QUEUE}/{what}", **body)


def post(path: str, **body: object) -> bytes:
    text = json.dumps(body).encode()
    fields = (
        f"host: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
    )
    return f"POST {path} HTTP/1.1\r\n{fields}".encode() + text


class World:
    """A queue behind HTTP without a network."""

    def __init__(self, **config: object) -> None:
        self.shop = Shop(config, on_disk=True)
        self.service = Service(
            version="0",
            clock=self.shop.clock,
            keyring=Keyring(""),
            limits=HttpLimits(),
            runner=self,
        )
        self.service.attach(self.shop.engine)
        self.hub = Hub(build_app(self.service), Limits(), asyncio.get_running_loop())
        self.workers: list[Worker] = []
        self.is_busy = False  # whatever has to wait does so until this ends
        self._begun: list[Callable[[], None]] = []

    def start(self, op: Op[T], done: Callable[[T | None, TopicsError | None], None]) -> None:
        """Run an operation as a server does, now or later."""
        self._begun.append(lambda: self.shop.loop.start(op, done))
        if not self.is_busy:
            self.go_on()

    def go_on(self) -> None:
        begun, self._begun, self.is_busy = self._begun, [], False
        for begin in begun:
            begin()

    def hire(self, names: str) -> list[Worker]:
        self.workers += (hired := [Worker(self.hub, name) for name in names])
        return hired


async def crowd(world: World) -> None:
    """A turn in which several came, so that more are expected in the next."""
    for _ in range(2):
        world.hub.tick.is_crowded()
    await turn()


async def turn() -> None:
    """Let the turn of the loop end, in which requests came."""
    await asyncio.sleep(0)


def play(scene: Callable[[World], Awaitable[None]], **config: object) -> None:
    async def whole() -> None:
        world = World(**config)
        try:
            await scene(world)
        finally:
            for worker in world.workers:
                worker.leave()
            world.hub.stop()

    asyncio.run(whole())


def cut_off(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the connection of a worker fail when it is given an answer."""
    send_last = H1Connection.send_last

    def send(self: H1Connection, exchange: H1Exchange, *pieces: bytes) -> None:
        if self is worker.connection:
            raise ZeroDivisionError
        send_last(self, exchange, *pieces)

    monkeypatch.setattr(H1Connection, "send_last", send)
