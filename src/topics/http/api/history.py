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

import msgspec

from topics.engine.clock import Clock
from topics.engine.effects import PAUSE, Op
from topics.engine.engine import Engine
from topics.http.api.auth import Principal
from topics.wire.shapes import HistoryBody, ServerHistory

STEP_MS = 10_000
STEPS = 1080
MAX_LINES = 1000
"""Topics, and besides them cursors, whose numbers are kept: 4 kB each."""
SHOWN_STEPS = 60
SHOWN_TOPICS = 500
"""What an answer about all topics holds."""
TOPICS_BETWEEN_PAUSES = 1000


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
    """Lines by name, at most `MAX_LINES`."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, ...], _Series] = {}

    def put(self, step: int, name: tuple[str, ...], value: float) -> None:
        line = self.by_name.get(name)
        if line is None:
            if not value:
                return  # nothing to see yet
            if len(self.by_name) >= MAX_LINES:
                stillest = min(self.by_name, key=lambda known: self.by_name[known].moved)
                del self.by_name[stillest]
            line = self.by_name[name] = _Series()
        line.put(step, value)

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

    def sample(self, engine: Engine, *, shards: int, pressure: float, streams: int) -> Op[None]:
        """Take a sample. The numbers are rates over the time since the sample before."""
        now_ms = self._clock.now_ms()
        seconds = max(0.001, (now_ms - self._times[-1]) / 1000) if self._times else 0.0
        self._due_ms = now_ms + STEP_MS
        self._step += 1
        step = self._step
        self._topics.blank(step)
        self._cursors.blank(step)
        written = yield from self._walk(engine, step, seconds)
        lag, self._longest_lag_ms = self._longest_lag_ms, 0.0
        numbers = {
            "records_in": written / seconds if seconds else 0.0,
            "pressure": pressure,
            "loop_lag_ms": lag,
            "sync_ms": self._mean_sync_ms(engine, shards),
            "streams": float(streams),
        }
        for name, value in numbers.items():
            self._server[name].put(step, value)
        self._times.append(now_ms)
        self._answers.clear()

    def _walk(self, engine: Engine, step: int, seconds: float) -> Op[int]:
        """Note what was written to each topic; how much that is in all."""
        written, heads = 0, self._heads
        for count, topic in enumerate([*engine.kernel.catalog], 1):
            new = topic.head - heads.get(topic.id, topic.head if step == 0 else 0)
            heads[topic.id] = topic.head
            if new or (topic.name,) in self._topics.by_name:
                written += new
                self._topics.put(step, (topic.name,), new / seconds if seconds else 0.0)
            for cursor, (seq, _) in topic.cursors.items():
                self._cursors.put(step, (topic.name, cursor), topic.live_after(seq))
            if count % TOPICS_BETWEEN_PAUSES == 0:
                yield PAUSE  # other requests run; a topic dropped meanwhile is noted once more
        if len(heads) > 2 * len(engine.kernel.catalog.by_id) + TOPICS_BETWEEN_PAUSES:
            self._heads = {i: heads[i] for i in engine.kernel.catalog.by_id if i in heads}
        return written

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
            known = self._answers[principal.prefixes] = self._body(steps, topics)
        return known

    def of_topic(self, topic: str) -> bytes:
        """The server and one topic with its cursors, as far back as is known."""
        steps = self._steps(STEPS)
        line = self._topics.by_name.get((topic,))
        cursors = {
            name[1]: line.last(steps)
            for name, line in self._cursors.by_name.items()
            if name[0] == topic
        }
        topics = {} if line is None else {topic: line.last(steps)}
        return self._body(steps, topics, cursors)

    def _steps(self, most: int) -> range:
        return range(self._step + 1 - min(most, len(self._times)), self._step + 1)

    def _body(
        self,
        steps: range,
        topics: dict[str, list[float | None]],
        cursors: dict[str, list[float | None]] | None = None,
    ) -> bytes:
        times = [*self._times][len(self._times) - len(steps) :]
        server = ServerHistory(**{name: line.last(steps) for name, line in self._server.items()})
        return msgspec.json.encode(HistoryBody(STEP_MS, times, server, topics, cursors or {}))
