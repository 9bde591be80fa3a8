"""The moment of a checkpoint: what it captures of topics, routers and staging apps, and when.

Only what changed since the snapshot it builds on; everything, when there is none.
"""

from __future__ import annotations

import msgspec

from topics.engine.effects import PAUSE, Gate, Op
from topics.engine.kernel import Kernel
from topics.engine.retention import forget_ages
from topics.engine.upkeep.delete_bytes import DeleteBytes
from topics.engine.upkeep.growing_segments import GrowingSegments
from topics.engine.upkeep.snapshots import Snapshots, Track
from topics.engine.upkeep.topic_lines import TopicCapture, app_line, capture, give_back, router_line
from topics.storage.snapshots.chain import Changed
from topics.storage.snapshots.lines import AppLine, GoneLine, RouterLine

TOPICS_BETWEEN_PAUSES = 128


class CheckpointCapture(msgspec.Struct):
    """What a checkpoint captured: of everything, or of what changed since `source`."""

    source: Track | None = None
    dirty: set[int] = msgspec.field(default_factory=set)  # topics, as marked since the last one
    captures: list[TopicCapture] = msgspec.field(default_factory=list)
    routers: list[RouterLine] = msgspec.field(default_factory=list)
    apps: list[AppLine] = msgspec.field(default_factory=list)
    gone: GoneLine = msgspec.field(default_factory=lambda: GoneLine(topics=[], routers=[], apps=[]))
    agnostic_lfn: int = 0


class Capturer:
    def __init__(
        self,
        kernel: Kernel,
        snapshots: Snapshots,
        growing: GrowingSegments,
        delete_bytes: DeleteBytes,
    ) -> None:
        self._kernel = kernel
        self._snapshots = snapshots
        self._growing = growing
        self._delete_bytes = delete_bytes

    def capture(self) -> Op[CheckpointCapture]:
        """Topics and routers that changed. No router pass runs meanwhile: a pass could copy a
        record that was written after its source was captured and that the segments lack.

        Which topics changed is settled once no pass is under way: one that came in between would
        be in its topic's capture, but not in the position of its router.
        """
        kernel = self._kernel
        gate = kernel.standstill = Gate()
        state = CheckpointCapture()
        try:
            for submission in tuple(kernel.passes):
                if not submission.done:
                    yield submission
            yield from kernel.gates.landed()
            kernel.arenas.hold()
            state.dirty, kernel.dirty = kernel.dirty | kernel.ahead | self._aged(), set()
            self._snapshots.note(Changed(topics=state.dirty))
            state.source = self._snapshots.source()
            for count, topic_id in enumerate(self._wanted(state.source), 1):
                self._capture_topic(state, topic_id)
                if count % TOPICS_BETWEEN_PAUSES == 0:
                    yield PAUSE
                    yield from kernel.gates.landed()
            self._capture_others(state)
        except BaseException:
            self.give_back(state)
            raise
        finally:
            kernel.standstill = None
            gate.open()
        return state

    def _aged(self) -> set[int]:
        """Topics without news whose growing segment is to be sealed for its age."""
        limit = self._kernel.settings.segment_max_age_ms
        return self._growing.due(self._kernel.clock.now_ms() - limit) if limit else set()

    def _wanted(self, source: Track | None) -> list[int]:
        return list(self._kernel.catalog.by_id) if source is None else sorted(source.lacks.topics)

    def _capture_topic(self, state: CheckpointCapture, topic_id: int) -> None:
        kernel = self._kernel
        topic = kernel.catalog.by_id.get(topic_id)
        if topic is None:  # dropped, perhaps during a pause
            state.gone.topics.append(topic_id)
            self._delete_bytes.forget(topic_id)
            return
        shard = kernel.committer.shard_of(topic_id)
        forget_ages(kernel, topic)
        lfn = kernel.applied.get(shard, 0)
        now_ms, running_ms = kernel.clock.now_ms(), kernel.running_ms()
        flips = self._delete_bytes.take(topic)
        state.captures.append(capture(topic, flips, lfn=lfn, running_ms=running_ms, now_ms=now_ms))

    def _capture_others(self, state: CheckpointCapture) -> None:
        """Routers and apps, and the last frame about them, in one step."""
        kernel, source = self._kernel, state.source
        routers, apps = kernel.catalog.routers.by_name, kernel.catalog.apps
        changed = Changed(routers=kernel.dirty_routers, apps=kernel.dirty_apps)
        kernel.dirty_routers, kernel.dirty_apps = set(), set()
        self._snapshots.note(changed)
        for name in routers if source is None else sorted(source.lacks.routers):
            if name in routers:
                state.routers.append(router_line(routers[name]))
            else:
                state.gone.routers.append(name)
        for name in apps if source is None else sorted(source.lacks.apps):
            if name in apps:
                state.apps.append(app_line(name, apps[name]))
            else:
                state.gone.apps.append(name)
        state.agnostic_lfn = kernel.applied.get(0, 0)

    def give_back(self, state: CheckpointCapture) -> None:
        """The checkpoint failed: what it was to write is due again."""
        self._kernel.dirty |= state.dirty
        for captured in state.captures:
            give_back(captured)
