"""Jobs pushed to a worker over an event stream, each with a lease.

A stream keeps at most `most` leases that are neither over nor acked, and claims the difference
whenever it may have grown: a job arrived, a lease changed hands, a deadline passed, or a quarter of
a second went by. It claims like any worker, windows included. A peer that does not take what it
was sent gets no more jobs until it has.

The leases belong to the connection. When it ends, for whatever reason, they are given back at once,
also those of jobs that were not sent yet. A claim under way then gives back what it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from topics.core.topic import Topic
from topics.delivery.event_stream import ByteStream
from topics.delivery.live import LiveDelivery
from topics.delivery.loop_budget import TimerHandle
from topics.engine.effects import Op
from topics.engine.upkeep.lease_log import Presence, queue_counts
from topics.errors import TopicsError
from topics.values import Job
from topics.wire import sse

REFILL_MS = 250
HEARTBEAT_MS = 15_000
CLAIM_AT_ONCE = 64
"""Jobs per claim of a stream. With the bound on the bytes of a claim, this bounds what waits for a
slow peer."""


class Handed(Protocol):
    """What a claim brought."""

    @property
    def jobs(self) -> Sequence[Job]: ...


class Desk(Protocol):
    """Where jobs are claimed: the queues of the engine."""

    changed: Callable[[Topic], None]

    def claim(
        self,
        name: str,
        *,
        node: str,
        most: int = ...,
        lease_ms: int | None = ...,
        presence: Presence | None = ...,
    ) -> Op[Handed]: ...

    def still_held(self, topic: Topic, held: Mapping[int, int]) -> dict[int, int]:
        """Those of these leases, by seq and lease id, that are neither over nor ending."""
        ...

    def release(self, topic: Topic, held: Mapping[int, int]) -> None:
        """Give leases back."""
        ...


class Wants(NamedTuple):
    """What a worker asked for."""

    node: str
    most: int
    lease_ms: int | None


class Floor:
    """What the streams at work share; it hears of every change of a queue's leases."""

    def __init__(self, live: LiveDelivery, desk: Desk) -> None:
        self.live = live
        self.desk = desk
        self.clock = live.engine.kernel.clock
        self._topics = live.engine.kernel.catalog.by_id
        self._streams: dict[int, dict[WorkStream, None]] = {}
        desk.changed = self._leases_changed

    def enter(self, topic: Topic, stream: WorkStream) -> None:
        self._streams.setdefault(topic.id, {})[stream] = None
        self.live.changes.listen(topic.name, stream)

    def leave(self, topic: Topic, stream: WorkStream) -> None:
        self.live.changes.unlisten(topic.name, stream)
        streams = self._streams.get(topic.id)
        if streams is not None:
            streams.pop(stream, None)
            if not streams:
                del self._streams[topic.id]

    def is_there(self, topic: Topic) -> bool:
        """Whether this very queue still exists."""
        return self._topics.get(topic.id) is topic

    def _leases_changed(self, topic: Topic) -> None:
        """A worker acked, gave back or extended jobs: streams may have room, or jobs, again."""
        for stream in tuple(self._streams.get(topic.id, ())):
            stream.wake(topic.name)


class WorkStream:
    """One worker's connection. `on_end` is called exactly once."""

    def __init__(
        self,
        floor: Floor,
        topic: Topic,
        wants: Wants,
        stream: ByteStream,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self._floor = floor
        self._live = floor.live
        self._desk = floor.desk
        self._topic = topic
        self._wants = wants
        self._stream = stream
        self._on_end = on_end
        self._presence = Presence()
        self._held: dict[int, int] = {}  # seq -> lease id
        self._claiming = False
        self._is_queued = False
        self._behind = False
        self._over = False
        self._refill: TimerHandle | None = None
        self._heartbeat: TimerHandle | None = None
        self._last_output = 0.0
        stream.on_drain = self._drained
        stream.on_close = self._end

    def start(self) -> None:
        """Begin to push jobs."""
        self._floor.enter(self._topic, self)
        self._write(sse.RETRY)
        self._arm_heartbeat(HEARTBEAT_MS)
        self._advance()

    def wake(self, name: str) -> None:
        """Look, soon, whether there is something to claim, or no queue any more."""
        if not self._is_queued and not self._over:
            self._is_queued = True
            self._live.changes.budget.add(self._work)

    def passed(self) -> int:
        return 0  # jobs are counted where they are claimed

    def shut_down(self) -> None:
        """The server stops."""
        self._finish(sse.work_shutting_down(self._topic.name))

    # Jobs

    def _work(self) -> None:
        self._is_queued = False
        if not self._over:
            self._advance()

    def _advance(self) -> None:
        if self._claiming or self._is_gone():
            return
        self._held = self._desk.still_held(self._topic, self._held)
        wanted = min(self._wants.most - len(self._held), CLAIM_AT_ONCE)
        if wanted <= 0 or self._behind or not queue_counts(self._topic)[0]:
            self._arm_refill()
            return
        self._claiming = True
        op = self._desk.claim(
            self._topic.name,
            node=self._wants.node,
            most=wanted,
            lease_ms=self._wants.lease_ms,
            presence=self._presence,
        )
        self._live.runner.start(op, self._claimed)

    def _is_gone(self) -> bool:
        """Whether the queue was dropped; then this is the end."""
        if self._floor.is_there(self._topic):
            return False
        self._finish(sse.work_topic_gone(self._topic.name))
        return True

    def _claimed(self, claimed: Handed | None, error: TopicsError | None) -> None:
        self._claiming = False
        if self._over or self._is_gone():
            return  # what was claimed went back already, or went with its queue
        jobs = claimed.jobs if claimed is not None else ()
        for job in jobs:
            self._held[job.seq] = job.lease_id
            self._write(sse.job(self._topic.name, job))
        if jobs:
            self.wake(self._topic.name)  # more may be there; other streams claim first
        else:
            self._arm_refill()

    def _drained(self) -> None:
        self._behind = False
        self.wake(self._topic.name)

    # The end

    def _finish(self, last: bytes) -> None:
        if not self._over:
            self._stream.write(last)
            self._stream.close()
            self._end()

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._presence.leave()
        self._floor.leave(self._topic, self)
        for timer in (self._refill, self._heartbeat):
            if timer is not None:
                timer.cancel()
        if self._floor.is_there(self._topic):
            self._desk.release(self._topic, self._held)
        self._on_end()

    # Time

    def _arm_refill(self) -> None:
        """Look again when a lease or a delay ends, and every now and then: jobs may expire.

        A queue without jobs needs no look: an arrival tells.
        """
        if self._refill is not None:
            self._refill.cancel()
            self._refill = None
        leases = self._topic.leases
        if self._topic.count and leases is not None:
            due_ms = leases.next_event_ms()
            soon_ms = REFILL_MS if due_ms is None else due_ms - self._floor.clock.now_ms()
            self._refill = self._live.timers.call_later(
                min(max(soon_ms, 1), REFILL_MS), lambda: self.wake(self._topic.name)
            )

    def _write(self, data: bytes) -> None:
        self._last_output = self._live.monotonic()
        if not self._stream.write(data):
            self._behind = True

    def _arm_heartbeat(self, delay_ms: int) -> None:
        self._heartbeat = self._live.timers.call_later(delay_ms, self._beat)

    def _beat(self) -> None:
        silent_ms = round((self._live.monotonic() - self._last_output) * 1000)
        if silent_ms < HEARTBEAT_MS:
            self._arm_heartbeat(HEARTBEAT_MS - silent_ms)
            return
        if not self._behind:
            self._write(sse.heartbeat(self._floor.clock.now_ms()))
        self._arm_heartbeat(HEARTBEAT_MS)
