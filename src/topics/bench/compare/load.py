"""The load: many connections of one process, each doing one exchange after the other.

    python -m topics.bench.compare.load PEER ADDRESS PLAN

The plan is JSON (`Plan`). The program connects, says `ready`, begins when it gets a line and prints
what it found as JSON. It is the same loop for every peer, so what it costs is in every number.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count

import uvloop

from topics.bench.compare.dialect import HISTORY, JOBS, LIVE, LOG, PAGE, Asked, Dialect, Script
from topics.bench.compare.peers import PEERS
from topics.bench.measure import percentile

FILL = 500
SETTLED_S = 0.3
WARM_SHARE = 0.5
"""Each row of writes begins with so much of its time that does not count: a JVM starts slowly."""


@dataclass(frozen=True)
class Plan:
    """What to do: `kind` is a function of `KINDS`."""

    kind: str
    seconds: float = 1.0
    connections: int = 1
    records: int = 1
    synced: bool = False

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class ScriptRunner(asyncio.Protocol):
    """Runs scripts over one socket and writes down how long each exchange took."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.times_ns: list[int] = []
        self.on_answer: Callable[[bytes], None] | None = None
        self._script: Script | None = None
        self._ended: asyncio.Future[None] | None = None
        self._data = b""
        self._answers: list[bytes] = []
        self._exchange = Asked(b"", 0)
        self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = transport.write  # type: ignore[attr-defined]  # uvloop's own transport

    def run(self, script: Script) -> asyncio.Future[None]:
        """Done when the script ends; an error answer ends the program."""
        self._script = script
        self._ended = asyncio.get_running_loop().create_future()
        self._go_on(next, script)
        return self._ended

    def data_received(self, data: bytes) -> None:
        try:
            self._take(data)
        except Exception as error:
            if self._ended is None or self._ended.done():
                raise
            self._ended.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(exc or RuntimeError("the server closed a connection"))

    def _take(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        size = self._exchange.size
        if size:
            if len(self._data) >= size:
                self._answers.append(self._data[:size])
                self._data = self._data[size:]
                self._finish()
            return
        at = 0
        while at < len(self._data):
            end = self.dialect.end_of_answer(self._data, at)
            if not end:
                break
            answer, at = self._data[at:end], end
            reply = self.dialect.aside(answer)
            if reply is None:
                self._receive(answer)
            elif reply:
                self._write(reply)
        self._data = self._data[at:]

    def _receive(self, answer: bytes) -> None:
        self.dialect.check(answer)
        if self.on_answer is not None:
            self.on_answer(answer)
        self._answers.append(answer)
        if len(self._answers) >= self._exchange.answers or self.dialect.is_last(answer):
            self._finish()

    def _finish(self) -> None:
        self.times_ns.append(time.perf_counter_ns() - self._asked)
        answers, self._answers = self._answers, []
        if self._script is not None:
            self._go_on(self._script.send, answers)

    def _go_on(self, resume: Callable[..., Asked], given: object) -> None:
        try:
            exchange = resume(given)
            while not exchange.answers:
                self._write(exchange.sent)
                exchange = self._script.send([])  # type: ignore[union-attr]  # it yielded just now
        except StopIteration:
            self._script = None
            assert self._ended is not None
            self._ended.set_result(None)
            return
        self._exchange = exchange
        self._asked = time.perf_counter_ns()
        if exchange.sent:
            self._write(exchange.sent)


# Scripts


def saying(exchanges: Sequence[Asked]) -> Script:
    for exchange in exchanges:  # noqa: UP028  `yield from` a list cannot take the answers
        yield exchange


def filling(dialect: Dialect, topic: str, records: int) -> Script:
    for first in range(0, records, FILL):
        some = min(FILL, records - first)
        yield dialect.fill(first, some) if topic == HISTORY else dialect.write(topic, some)


def writing(dialect: Dialect, records: int, until: Callable[[], bool]) -> Script:
    yield dialect.write(LOG, records)  # the first one may prepare a statement
    repeated = dialect.write(LOG, records)
    while not until():
        yield repeated


def reading(dialect: Dialect, pages: Iterator[int]) -> Script:
    for page in pages:
        yield dialect.read(page)


def working(dialect: Dialect, worker: int, done: list[int]) -> Script:
    while True:
        jobs = dialect.jobs((yield dialect.claim(worker)))
        if not jobs:
            return
        yield dialect.ack(worker, jobs)
        done[0] += len(jobs)


# Kinds of load


class Load:
    """One run of a plan."""

    def __init__(self, peer: str, address: str, plan: Plan) -> None:
        self._peer = PEERS[peer]
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self.plan = plan

    async def connect(self) -> ScriptRunner:
        connection = ScriptRunner(self._peer.dialect())
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: connection, *self._address)
        await connection.run(saying(connection.dialect.greeting()))
        connection.times_ns.clear()
        return connection

    async def run(self) -> None:
        await KINDS[self.plan.kind](self)


async def prepare(load: Load) -> None:
    """Create the topics."""
    connection = await load.connect()
    exchanges = connection.dialect.preparation(synced=load.plan.synced)
    go()
    await connection.run(saying(exchanges))
    await asyncio.sleep(SETTLED_S)
    tell({})


async def write(load: Load) -> None:
    """Every connection writes, one request after the other, until the time is over."""
    plan = load.plan
    connections = [await load.connect() for _ in range(plan.connections)]
    go()
    await write_for(plan.seconds * WARM_SHARE, connections, plan.records)
    for connection in connections:
        connection.times_ns.clear()
    began = time.perf_counter()
    await write_for(plan.seconds, connections, plan.records)
    times = sorted(took for connection in connections for took in connection.times_ns)
    seconds = time.perf_counter() - began
    tell({"rate": plan.records * len(times) / seconds, "p50_us": percentile(times, 0.5) / 1e3})


async def write_for(seconds: float, connections: Sequence[ScriptRunner], records: int) -> None:
    until = time.perf_counter() + seconds

    def is_over() -> bool:
        return time.perf_counter() > until

    scripts = [c.run(writing(c.dialect, records, is_over)) for c in connections]
    await asyncio.gather(*scripts)


async def fill(load: Load) -> None:
    """Records to read, in `HISTORY`."""
    connection = await load.connect()
    go()
    await connection.run(filling(connection.dialect, HISTORY, load.plan.records))
    tell({})


async def read(load: Load) -> None:
    """One connection reads all of `HISTORY`, page by page, once."""
    connection = await load.connect()
    pages = load.plan.records // PAGE
    go()
    began = time.perf_counter()
    await connection.run(reading(connection.dialect, iter(range(pages))))
    tell({"rate": pages * PAGE / (time.perf_counter() - began)})


async def queue(load: Load) -> None:
    """Workers empty a queue: claim eight, ack eight."""
    filler = await load.connect()
    await filler.run(filling(filler.dialect, JOBS, load.plan.records))
    workers = [await load.connect() for _ in range(load.plan.connections)]
    done = [0]
    go()
    began = time.perf_counter()
    numbered = zip(count(), workers, strict=False)
    await asyncio.gather(*[w.run(working(w.dialect, number, done)) for number, w in numbered])
    seconds = time.perf_counter() - began
    if done[0] < load.plan.records:
        raise RuntimeError(f"{done[0]} of {load.plan.records} jobs were handed out")
    tell({"rate": done[0] / seconds})


async def watch(load: Load) -> None:
    """One writer, many watchers: from the start of each write to each delivery."""
    writer = await load.connect()
    watchers = [await load.connect() for _ in range(load.plan.connections)]
    times_ns: list[int] = []
    arrived = asyncio.Event()
    began_ns, missing = 0, 0

    def deliver(answer: bytes, dialect: Dialect) -> None:
        nonlocal missing
        if dialect.is_delivery(answer):
            times_ns.append(time.perf_counter_ns() - began_ns)
            missing -= 1
            if not missing:
                arrived.set()

    for watcher in watchers:
        watcher.on_answer = lambda answer, dialect=watcher.dialect: deliver(answer, dialect)
        watcher.run(watcher.dialect.watching())
    await asyncio.sleep(SETTLED_S)
    times_ns.clear()
    go()
    until = time.perf_counter() + load.plan.seconds
    while time.perf_counter() < until:
        missing = len(watchers)
        arrived.clear()
        began_ns = time.perf_counter_ns()
        await writer.run(saying([writer.dialect.write(LIVE, 1)]))
        await arrived.wait()
    tell({"p50_us": percentile(sorted(times_ns), 0.5) / 1e3})


KINDS = {f.__name__: f for f in (prepare, write, fill, read, queue, watch)}


def go() -> None:
    """Say that everything is connected, and wait for the word to begin."""
    print("ready", flush=True)
    sys.stdin.readline()


def tell(found: dict[str, float]) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    uvloop.run(Load(sys.argv[1], sys.argv[2], Plan(**json.loads(sys.argv[3]))).run())
