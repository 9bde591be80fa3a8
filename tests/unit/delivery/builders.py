"""A whole delivery in memory: an engine, a clock and a loop that move only when told to."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from topics.batch import RecordBatch
from topics.core.topic import Topic
from topics.delivery.event_stream import BOUNDS, EventStream, QueueBounds
from topics.delivery.feed import Feed
from topics.delivery.live import LiveDelivery
from topics.delivery.loop_budget import BUDGET_NS
from topics.delivery.pages import Options
from topics.delivery.sessions import Session
from topics.delivery.socket import MAX_MESSAGES, SocketSink
from topics.delivery.starting import resolve
from topics.delivery.subscriptions import Subscription
from topics.engine.effects import Op, run
from topics.engine.engine import Engine, memory_engine
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.errors import TopicsError
from topics.storage.fs import RealFs
from topics.testing.clock import ManualClock
from topics.values import Ack
from topics.wire.requests import Start

T = TypeVar("T")


class InlineRunner:
    """Runs operations on the spot, or, while `held`, when let go.

    While it is, no record of its world is at hand: every read has to wait.
    """

    def __init__(self) -> None:
        self.held = False
        self._waiting: list[Callable[[], None]] = []

    def start(self, op: Op[T], done: Callable[[T | None, TopicsError | None], None]) -> None:
        if self.held:
            self._waiting.append(lambda: self._run(op, done))
        else:
            self._run(op, done)

    def release(self) -> None:
        self.held = False
        waiting, self._waiting = self._waiting, []
        for start in waiting:
            start()

    def _run(self, op: Op[T], done: Callable[[T | None, TopicsError | None], None]) -> None:
        try:
            answer = run(op)
        except TopicsError as error:
            done(None, error)
            return
        done(answer, None)


class Event(NamedTuple):
    """A frame of an event stream, taken apart."""

    id: str | None
    event: str | None
    data: Any
    comment: str | None = None

    @property
    def positions(self) -> dict[str, int]:
        assert self.id is not None
        found: dict[str, int] = json.loads(urlsafe_b64decode(self.id + "=" * (-len(self.id) % 4)))
        return found


def parse_events(raw: bytes) -> list[Event]:
    assert b"\r" not in raw
    assert raw.endswith(b"\n\n") or not raw
    return [_parse(frame) for frame in raw.decode().split("\n\n")[:-1]]


def _parse(frame: str) -> Event:
    if frame.startswith(":"):
        return Event(None, None, None, frame)
    fields = dict(line.split(": ", 1) for line in frame.split("\n"))
    if "retry" in fields:
        return Event(None, "retry", int(fields["retry"]))
    assert list(fields) == [name for name in ("id", "event", "data") if name in fields]
    return Event(fields.get("id"), fields["event"], json.loads(fields["data"]))


class Peer:
    """The other end of an event stream. While `stalled` it takes nothing more."""

    def __init__(self) -> None:
        self.on_drain: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.stalled = False
        self.closed = False
        self.chunks: list[bytes] = []
        self._read = 0
        self._buffered: list[bytes] = []

    def write(self, data: bytes) -> bool:
        assert not self.closed
        (self._buffered if self.stalled else self.chunks).append(data)
        return not self.stalled

    @property
    def queued_bytes(self) -> int:
        return sum(map(len, self._buffered))

    def close(self) -> None:
        self.closed = True

    def catch_up(self) -> None:
        """Take what the transport holds and go on reading."""
        self.stalled = False
        self.chunks += self._buffered
        self._buffered.clear()
        assert self.on_drain is not None
        self.on_drain()

    def leave(self) -> None:
        """The connection breaks; what the transport held is lost."""
        self.closed = True
        assert self.on_close is not None
        self.on_close()

    def events(self) -> list[Event]:
        """What arrived since the last look."""
        new, self._read = self.chunks[self._read :], len(self.chunks)
        return parse_events(b"".join(new))

    def names(self) -> list[str | None]:
        return [event.event for event in self.events()]


class World:
    """An engine with live delivery, and everything a test does to it."""

    def __init__(self, engine: Engine, clock: ManualClock, *, max_sessions: int = 3) -> None:
        self.engine = engine
        self.clock = clock
        self.runner = InlineRunner()
        self._soon: list[Callable[[], None]] = []
        self._now_ns = 0
        self.ended = 0
        newest = engine.newest
        engine.newest = lambda topic, query: None if self.runner.held else newest(topic, query)
        self.delivery = LiveDelivery(
            engine,
            self.runner,
            timers=clock,
            schedule=self._soon.append,
            max_sessions=max_sessions,
            now_ns=self._pass_half_a_budget,
        )

    def _pass_half_a_budget(self) -> int:
        """Each look at the clock finds that half a budget has passed."""
        self._now_ns += BUDGET_NS // 2
        return self._now_ns

    def settle(self) -> None:
        """Let the loop turn until nothing is left to do."""
        while self._soon:
            self.turn()

    def turn(self) -> None:
        """One turn of the loop."""
        soon, self._soon[:] = self._soon[:], []
        for callback in soon:
            callback()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.settle()

    # What clients do

    def put(self, name: str, **config: object) -> None:
        run(self.engine.put(name, config))

    def append(
        self, name: str, *datas: object, node: str | None = None, settle: bool = True
    ) -> Ack:
        raw = [json.dumps(data).encode() for data in datas]
        nodes: list[str | None] | None = None if node is None else [node] * len(raw)
        ack = run(self.engine.append(name, RecordBatch(raw, None, None, nodes)))
        if settle:
            self.settle()
        return ack

    def drop(self, name: str) -> None:
        run(self.engine.drop(name))
        self.settle()

    def recreate(self, name: str, records: int) -> None:
        """Drop, make and fill a topic before any stream gets a turn."""
        run(self.engine.drop(name))
        self.put(name)
        self.append(name, *range(records))

    def topic(self, name: str) -> Topic:
        return self.engine.kernel.topic(name)

    def session(
        self,
        starts: Mapping[str, Start],
        options: Options | None = None,
        heartbeat_ms: int = 15_000,
        *,
        lenient: bool = False,
    ) -> Session:
        started = run(resolve(self.engine, starts, lenient=lenient))
        return self.delivery.sessions.create(
            None,
            places={name: start.place for name, start in started.items()},
            options=options or Options(),
            heartbeat_ms=heartbeat_ms,
        )

    def open(self, session: Session, *, bounds: QueueBounds = BOUNDS) -> Peer:
        """Open a stream of the session and let it deliver."""
        peer = Peer()
        self.stream(session, peer, bounds=bounds)
        self.settle()
        return peer

    def stream(self, session: Session, peer: Peer, *, bounds: QueueBounds = BOUNDS) -> EventStream:
        stream = EventStream(
            self.delivery,
            session,
            peer,
            on_end=self._count_end,
            on_lagged=self.delivery.count_lag,
            bounds=bounds,
        )
        self.delivery.connections[stream] = None
        stream.start()
        return stream

    def watch(
        self,
        *names: str,
        after: int = 0,
        options: Options | None = None,
        heartbeat_ms: int = 15_000,
    ) -> Peer:
        """A stream of a session of its own."""
        starts = {name: Start(after) for name in names}
        return self.open(self.session(starts, options, heartbeat_ms))

    def _count_end(self) -> None:
        self.ended += 1


class Wire:
    """A WebSocket whose peer may stop reading."""

    def __init__(self) -> None:
        self.on_drain: Callable[[], None] | None = None
        self.stalled = False
        self.sent: list[bytes] = []
        self._buffered: list[bytes] = []

    def send_text(self, data: bytes) -> bool:
        (self._buffered if self.stalled else self.sent).append(data)
        assert self.queued_messages <= MAX_MESSAGES
        return not self.stalled

    @property
    def queued_messages(self) -> int:
        return len(self._buffered)

    def catch_up(self) -> None:
        self.stalled = False
        self.sent += self._buffered
        self._buffered.clear()
        assert self.on_drain is not None
        self.on_drain()

    def messages(self) -> list[dict[str, Any]]:
        new, self.sent = self.sent, []
        return [json.loads(message) for message in new]

    def ops(self) -> list[str]:
        return [message["op"] for message in self.messages()]


class Client:
    """A socket with its feed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wire = Wire()
        self.balanced = 0
        self.sink = SocketSink(self.wire, on_change=self._balance)
        self.feed = Feed(world.delivery, self.sink)

    def subscribe(self, name: str, start: Start = Start(), options: Options | None = None) -> None:  # noqa: B008
        started = run(resolve(self.world.engine, {name: start}, lenient=False))
        self.feed.follow(Subscription(name, started[name].place, options or Options()))
        self.world.settle()

    def _balance(self) -> None:
        self.balanced += 1


def memory_world(*, max_sessions: int = 3) -> World:
    clock = ManualClock()
    return World(memory_engine(EngineSettings(), clock), clock, max_sessions=max_sessions)


def disk_world(path: Path) -> World:
    clock = ManualClock()
    opening = Opening(EngineSettings(wal_shards=1), clock)
    return World(open_engine(RealFs(), str(path), opening), clock)
