"""What the server measured over the last three hours, in steps of ten seconds.

Kept in memory and bounded: one row of numbers for the server, one line each for the topics and
named cursors that moved. A sample walks over all topics, in slices. Lines of topics and cursors
that stood still for longest make room for new ones.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from topics.core.catalog import Catalog
from topics.core.topic import Topic
from topics.engine.clock import Clock
from topics.engine.effects import PAUSE, Op
from topics.engine.engine import Engine
from topics.engine.stages.apps import decode_result
from topics.errors import Internal, TopicNotFound
from topics.http.api import troubles
from topics.http.api.auth import Principal
from topics.wire.shapes import (
    AppOutput,
    ConsumerLag,
    HistoryBody,
    Metrics,
    ServerHistory,
    Trouble,
)

STEP_MS = 10_000
STEPS = 1080
MAX_LINES = 1000
"""Topics, and besides them cursors, whose numbers are kept: 4 kB each."""
SHOWN_STEPS = 60
SHOWN_TOPICS = 500
"""What an answer about all topics holds."""
TOPICS_BETWEEN_PAUSES = 1000
BYTES_BETWEEN_PAUSES = 64 << 10
"""Answers to commits that are decoded at once: about a millisecond."""
MAX_TIMED = 200
"""Cursors of which a sample finds out for how long their next record waits."""
SHOWN_CONSUMERS = 500
SHOWN_APPS = 200
SHOWN_OUTPUTS = 20


class Disk(NamedTuple):
    """Bytes, as they were at the last sample."""

    free: int
    total: int
    log: int


class _Seen(NamedTuple):
    """What one sample saw besides numbers over time."""

    numbers: Metrics | None
    wrong: list[Trouble]
    consumers: list[ConsumerLag]
    apps: list[AppOutput]


class _Series:
    """One number per step; not a number where nothing was measured."""

    __slots__ = ("moved", "points")

    def __init__(self) -> None:
        self.points = array("f", [math.nan]) * STEPS
        self.moved = 0
        """The step in which the number last was not 0."""

    def put(self, step: int, value: float) -> None:
        self.points[step % STEPS] = value
        if value:
            self.moved = step

    def last(self, steps: Iterable[int]) -> list[float | None]:
        found = (self.points[step % STEPS] for step in steps)
        return [None if math.isnan(value) else round(value, 3) for value in found]


class _Lines:
    """Lines by name, at most `MAX_LINES`; the one that stood still for longest comes first."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, ...], _Series] = {}

    def put(self, step: int, name: tuple[str, ...], value: float) -> None:
        line = self.by_name.get(name)
        if line is None:
            if not value:
                return  # nothing to see yet
            if len(self.by_name) >= MAX_LINES:
                del self.by_name[next(iter(self.by_name))]
            line = self.by_name[name] = _Series()
        elif value:
            self.by_name[name] = self.by_name.pop(name)
        line.put(step, value)

    def of_topic(self, topic: str, steps: range) -> dict[str, list[float | None]]:
        """The lines of the cursors of a topic."""
        found = sorted(name for name in self.by_name if name[0] == topic)
        return {name[1]: self.by_name[name].last(steps) for name in found}

    def blank(self, step: int) -> None:
        """Begin a step: a line that gets no number in it stays blank."""
        for line in self.by_name.values():
            line.points[step % STEPS] = math.nan


class Measurements:
    """The numbers of one server. `tick` comes about every second and says when to `sample`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: deque[int] = deque(maxlen=STEPS)
        self._server = {name: _Series() for name in ServerHistory.__struct_fields__}
        self._topics = _Lines()
        self._cursors = _Lines()
        self._seconds = _Lines()
        self._seen = _Seen(None, [], [], [])
        self.disk: Disk | None = None
        self._step = -1
        self._heads: dict[int, int] = {}
        self._syncs = (0, 0)
        self._longest_lag_ms = 0.0
        self._due_ms = 0
        self._answers: dict[tuple[str, ...], bytes] = {}  # of the current step, by prefixes

    def tick(self, *, late_s: float) -> bool:
        """Note how late the loop called; whether a sample is due."""
        self._longest_lag_ms = max(self._longest_lag_ms, late_s * 1000)
        return self._clock.now_ms() >= self._due_ms

    def sample(
        self,
        engine: Engine,
        *,
        shards: int,
        pressure: float,
        streams: int,
        delivered: int = 0,
        numbers: Metrics | None = None,
    ) -> Op[None]:
        """Take a sample. The numbers are rates over the time since the sample before."""
        now_ms = self._clock.now_ms()
        seconds = max(0.001, (now_ms - self._times[-1]) / 1000) if self._times else 0.0
        self._due_ms = now_ms + STEP_MS
        self._step += 1
        step = self._step
        self._topics.blank(step)
        self._cursors.blank(step)
        self._seconds.blank(step)
        apps = yield from _apps(engine.kernel.catalog)
        seen = _Seen(numbers, [], [], apps)
        written = yield from self._walk(engine, step, seconds, seen)
        lag, self._longest_lag_ms = self._longest_lag_ms, 0.0
        measured = {
            "records_in": written / seconds if seconds else 0.0,
            "records_out": delivered / seconds if seconds else 0.0,
            "pressure": pressure,
            "loop_lag_ms": lag,
            "sync_ms": self._mean_sync_ms(engine, shards),
            "streams": float(streams),
        }
        for name, value in measured.items():
            self._server[name].put(step, value)
        for count, router in enumerate([*engine.kernel.catalog.routers.by_name.values()], 1):
            found = troubles.of_router(engine.routing.state(router))
            seen.wrong.extend(() if found is None else (found,))
            if count % TOPICS_BETWEEN_PAUSES == 0:
                yield PAUSE
        self._seen = seen._replace(
            wrong=troubles.heaviest(seen.wrong),
            consumers=sorted(seen.consumers, key=lambda found: -found.lag_records),
        )
        self._times.append(now_ms)
        self._answers.clear()

    def _walk(self, engine: Engine, step: int, seconds: float, seen: _Seen) -> Op[int]:
        """Note what was written to each topic; how much that is in all."""
        written, heads, now_ms = 0, self._heads, self._clock.now_ms()
        letters = yield from _letters(engine.kernel.catalog)
        for count, topic in enumerate([*engine.kernel.catalog], 1):
            new = topic.head - heads.get(topic.id, topic.head if step == 0 else 0)
            heads[topic.id] = topic.head
            if new or (topic.name,) in self._topics.by_name:
                written += new
                self._topics.put(step, (topic.name,), new / seconds if seconds else 0.0)
            seen.wrong.extend(troubles.of_topic(topic, letters, now_ms))
            if topic.cursors:
                yield from self._look_at_cursors(engine, topic, step, seen)
            if count % TOPICS_BETWEEN_PAUSES == 0:
                yield PAUSE  # other requests run; a topic dropped meanwhile is noted once more
        if len(heads) > 2 * len(engine.kernel.catalog.by_id) + TOPICS_BETWEEN_PAUSES:
            self._heads = {i: heads[i] for i in engine.kernel.catalog.by_id if i in heads}
        return written

    def _look_at_cursors(self, engine: Engine, topic: Topic, step: int, seen: _Seen) -> Op[None]:
        for cursor, (seq, _) in [*topic.cursors.items()]:
            behind, waited_s = topic.live_after(seq), 0.0
            if behind:
                waited_s = math.nan
                if len(seen.consumers) < MAX_TIMED:
                    waited_s = yield from self._waited_s(engine, topic, seq)
            self._cursors.put(step, (topic.name, cursor), behind)
            self._seconds.put(step, (topic.name, cursor), waited_s)
            known = None if math.isnan(waited_s) else round(waited_s, 3)
            seen.consumers.append(ConsumerLag(topic.name, cursor, behind, known))

    def _waited_s(self, engine: Engine, topic: Topic, seq: int) -> Op[float]:
        """How long the first record behind a cursor has been there."""
        try:
            waiting = yield from engine.kernel.indexes.ask(topic, partial(topic.first_after, seq))
        except (Internal, TopicNotFound):
            return math.nan
        return max(0, self._clock.now_ms() - waiting[1]) / 1000 if waiting else 0.0

    def _mean_sync_ms(self, engine: Engine, shards: int) -> float:
        stats = [engine.kernel.committer.stats(shard) for shard in range(shards)]
        syncs = (sum(s.syncs for s in stats), sum(s.sync_ns for s in stats))
        count, ns = syncs[0] - self._syncs[0], syncs[1] - self._syncs[1]
        self._syncs = syncs
        return ns / count / 1e6 if count else math.nan

    def everything(self, principal: Principal) -> bytes:
        """The server, and the topics that a key may see and that moved last."""
        known = self._answers.get(principal.prefixes)
        if known is None:
            steps = self._steps(SHOWN_STEPS)
            seen = [item for item in self._topics.by_name.items() if principal.allows(item[0][0])]
            seen.sort(key=lambda item: item[1].moved, reverse=True)
            topics = {name: line.last(steps) for (name,), line in seen[:SHOWN_TOPICS]}
            body = self._body(steps, topics)
            self._add_seen(body, principal)
            known = self._answers[principal.prefixes] = msgspec.json.encode(body)
        return known

    def _add_seen(self, body: HistoryBody, principal: Principal) -> None:
        seen, allows = self._seen, principal.allows
        body.now = UNSET if seen.numbers is None else seen.numbers
        # A sentence may name a second topic, so a key with prefixes gets only sentences about jobs,
        # consumers and losses of its own topics.
        is_limited = bool(principal.prefixes)
        body.wrong = [
            found
            for found in seen.wrong
            if allows(found.topic) and not (is_limited and found.part in ("dead", "routers"))
        ]
        shown = [found for found in seen.consumers if allows(found.topic)]
        body.consumers = shown[:SHOWN_CONSUMERS]
        body.apps = [
            AppOutput(found.app, found.epoch, found.topics[:SHOWN_OUTPUTS], found.topic_count)
            for found in seen.apps
            if all(map(allows, found.topics))
        ]

    def etag(self, principal: Principal) -> bytes:
        """Changes with the answer about everything: with each step, and from key to key."""
        seen_by = hash(principal.prefixes) & 0xFFFFFFFF
        return b'W/"%d-%x"' % (self._times[-1] if self._times else 0, seen_by)

    def of_topic(self, topic: str) -> bytes:
        """The server and one topic with its cursors, as far back as is known."""
        steps = self._steps(STEPS)
        line = self._topics.by_name.get((topic,))
        topics = {} if line is None else {topic: line.last(steps)}
        body = self._body(steps, topics)
        body.cursors = self._cursors.of_topic(topic, steps)
        body.cursor_seconds = self._seconds.of_topic(topic, steps)
        return msgspec.json.encode(body)

    def _steps(self, most: int) -> range:
        return range(self._step + 1 - min(most, len(self._times)), self._step + 1)

    def _body(self, steps: range, topics: dict[str, list[float | None]]) -> HistoryBody:
        times = [*self._times][len(self._times) - len(steps) :]
        server = ServerHistory(**{name: line.last(steps) for name, line in self._server.items()})
        return HistoryBody(STEP_MS, times, server, topics, {}, {})


def _letters(catalog: Catalog) -> Op[dict[str, Topic]]:
    """Topics that take the dead letters of a queue, by name."""
    found: dict[str, Topic] = {}
    for count, topic in enumerate([*catalog], 1):
        name = topic.config.dead_letter
        if name is not None and name in catalog.by_name:
            found[name] = catalog.by_name[name]
        if count % TOPICS_BETWEEN_PAUSES == 0:
            yield PAUSE
    return found


def _apps(catalog: Catalog) -> Op[list[AppOutput]]:
    """Staging apps, those used last first."""
    latest = sorted(catalog.apps.items(), key=lambda item: -item[1].last_use_ms)[:SHOWN_APPS]
    made, decoded = [], 0
    for name, app in latest:
        topics = sorted(decode_result(app.result))
        made.append(AppOutput(name, app.epoch, topics, len(topics)))
        decoded += len(app.result)
        if decoded >= BYTES_BETWEEN_PAUSES:
            decoded = 0
            yield PAUSE
    return made
