"""What every request handler can reach: the engine, its driver, and the state of the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from topics.delivery.changes import Changes
from topics.delivery.live import LiveDelivery
from topics.delivery.pages import PageCache, Runner
from topics.delivery.work_stream import Floor
from topics.engine.clock import Clock
from topics.engine.effects import Op, resumed
from topics.engine.engine import Engine
from topics.errors import NotReady, ShuttingDown, Throttled, TopicsError
from topics.http.access_log import AccessLog
from topics.http.api.auth import KeyId, Keyring
from topics.http.api.errors import internal
from topics.http.api.history import Measurements
from topics.http.api.long_bodies import LongBodies
from topics.http.api.unknown_keys import UnknownKeys
from topics.http.budget import Budget
from topics.http.host_check import HostCheck
from topics.queue import Queues
from topics.storage.wal.shard import ShardState

T = TypeVar("T")


def _unheard(result: None, error: TopicsError | None) -> None:
    """The end of work without a caller. A failure shows when a later call needs the result."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Caps that belong to the network side."""

    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_watch_topics: int = 256
    min_heartbeat_ms: int = 1000
    max_body_bytes: int = 64 << 20
    max_request_bytes: int = 0


@dataclass
class Service:
    """One server. `engine` is None until recovery is complete."""

    version: str
    clock: Clock
    keyring: Keyring
    limits: HttpLimits
    runner: Runner
    host_check: HostCheck = field(default_factory=HostCheck)
    probe_auth: bool = False
    engine: Engine | None = None
    shards: int = 1
    started_ms: int = 0
    replay_progress: float = 0.0
    draining: bool = False
    throttled_total: int = 0
    inflight: dict[KeyId, int] = field(default_factory=dict)
    streams: int = 0
    streams_per_key: dict[KeyId, int] = field(default_factory=dict)
    delivery: LiveDelivery | None = None
    queues: Queues | None = None
    work: Floor | None = None
    max_claim: int = 1000
    access_log: AccessLog | None = None
    page_cache: PageCache | None = None
    has_arrow: bool = False
    """Whether everything that Arrow needs has been imported."""
    pressure: Callable[[], float] = lambda: 0.0
    description: bytes | None = None

    def __post_init__(self) -> None:
        self.long_bodies = LongBodies(self.clock)
        self.decoded = Budget(
            self.limits.max_request_bytes, max_body_bytes=self.limits.max_body_bytes
        )
        """Decoded long bodies that wait to be written; the bodies themselves count elsewhere."""
        self.unknown_keys = UnknownKeys()
        self.history = Measurements(self.clock)

    @property
    def ready_engine(self) -> Engine:
        """The engine; raises while it is not there yet or no longer takes requests."""
        if self.draining:
            raise ShuttingDown
        if self.engine is None:
            raise NotReady(replay_progress=self.replay_progress)
        return self.engine

    def begin(self, op: Op[T], done: Callable[[T | None, TopicsError | None], None]) -> bool:
        """Run an operation on the spot; False when it has to wait, and goes on with the runner."""
        try:
            wait = next(op)
        except StopIteration as finished:
            done(finished.value, None)
        except TopicsError as error:
            done(None, error)
        except Exception as error:
            done(None, internal(error))
        else:
            self.runner.start(resumed(op, wait), done)
            return False
        return True

    def check_log(self) -> None:
        """Raise when a shard of the log cannot write: reads go on, but we are not ready."""
        engine = self.ready_engine
        for shard in range(self.shards):
            state = engine.kernel.committer.state(shard)
            if state is ShardState.FAILED:
                raise NotReady.shard("wal_failed")
            if state is ShardState.FULL:
                raise NotReady.shard("disk_full")

    @property
    def live(self) -> LiveDelivery:
        """Live delivery; raises while there is no engine to deliver from."""
        if self.delivery is None:
            raise NotReady(replay_progress=self.replay_progress)
        return self.delivery

    @property
    def floor(self) -> Floor:
        """Where work streams stand; raises while there is no engine behind them."""
        if self.work is None:
            raise NotReady(replay_progress=self.replay_progress)
        return self.work

    @property
    def pages(self) -> PageCache:
        """Pages rendered before; raises while there is no engine to read from."""
        if self.page_cache is None:
            raise NotReady(replay_progress=self.replay_progress)
        return self.page_cache

    @property
    def changes(self) -> Changes:
        return self.live.changes

    @property
    def watch_sessions(self) -> int:
        return 0 if self.delivery is None else len(self.delivery.sessions)

    @property
    def streams_lagged_total(self) -> int:
        return 0 if self.delivery is None else self.delivery.lagged_total

    def attach(self, engine: Engine, delivery: LiveDelivery | None = None) -> None:
        """Recovery is complete: requests are served from now on."""
        self.delivery = delivery
        self.queues = Queues(
            engine,
            max_claim=self.max_claim,
            in_background=lambda op: self.runner.start(op, _unheard),
        )
        self.work = None if delivery is None else Floor(delivery, self.queues)
        if delivery is None:
            self.page_cache = PageCache(engine, self.runner)
        else:
            self.page_cache = delivery.pages
        self.engine = engine
        self.replay_progress = 1.0

    def shut_down(self) -> None:
        """Refuse new requests and end the streams with their shutdown frame."""
        self.draining = True
        if self.delivery is not None:
            self.delivery.shut_down()

    # Slots

    def enter(self, key_id: KeyId | None) -> None:
        """Count a request of a key, or refuse it."""
        if key_id is None:
            return
        limit, used = self.limits.max_inflight_per_key, self.inflight.get(key_id, 0)
        if limit and used >= limit:
            raise Throttled("max_inflight_per_key", maximum=limit)
        self.inflight[key_id] = used + 1

    def leave(self, key_id: KeyId | None) -> None:
        if key_id is not None:
            self.inflight[key_id] = self.inflight.get(key_id, 1) - 1

    def open_stream(self, key_id: KeyId | None) -> None:
        """Count a stream connection, or refuse it."""
        limit = self.limits.max_sse_connections
        if limit and self.streams >= limit:
            raise Throttled("max_sse_connections", maximum=limit)
        limit = self.limits.max_sse_connections_per_key
        used = self.streams_per_key.get(key_id, 0) if key_id is not None else 0
        if key_id is not None and limit and used >= limit:
            raise Throttled("max_sse_connections_per_key", maximum=limit)
        self.streams += 1
        if key_id is not None:
            self.streams_per_key[key_id] = used + 1

    def close_stream(self, key_id: KeyId | None) -> None:
        self.streams -= 1
        if key_id is not None:
            self.streams_per_key[key_id] -= 1
