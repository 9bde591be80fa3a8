"""What every operation uses: the state, the log, the clock, and the way facts get in.

`commit` is the one road from a decided fact to published state: encode, hand to the log as one
submission, and when the log says so apply in log order. `on_done` runs on the thread that owns the
state and in the order of the log, so the order of publishing needs no lock and no ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from topics.core.catalog import Catalog
from topics.core.facts import (
    CheckpointMarked,
    ClosedCleanly,
    ConfigUpdated,
    Evicted,
    Fact,
    LeaseChanged,
    RouterCreated,
    RouterDeleted,
    TierFlipped,
    TopicDeleted,
)
from topics.core.topic import Topic
from topics.engine.arenas import Arenas
from topics.engine.clock import Clock
from topics.engine.effects import Gate, Op
from topics.engine.indexes import Indexes
from topics.engine.settings import EngineSettings
from topics.engine.sync_marks import SyncMarks
from topics.engine.writes.gates import AppendGates, Publishing
from topics.errors import Internal, Throttled, TopicNotFound, TopicsError
from topics.storage.frames.buffer import encode, frame_count
from topics.storage.frames.leases import encode_leases
from topics.storage.segments.store import SegmentStore
from topics.storage.sources import Sources
from topics.storage.wal.committer import Committer
from topics.storage.wal.submission import Submission

P = ParamSpec("P")
T = TypeVar("T")

CONTROL_BYTES = 1024
"""About the size of frames that carry no records."""


RELIEF = (
    CheckpointMarked,
    ClosedCleanly,
    ConfigUpdated,
    Evicted,
    RouterDeleted,
    TierFlipped,
    TopicDeleted,
)
"""Beside deletes, what makes room on a full disk or is needed on the way there. A configuration
may be what tightens a cap, and without a mark no checkpoint gives log files back."""

BARRIER_ID = 0
"""A mark that belongs to no checkpoint."""


class FactSubmission(Submission):
    """Facts on their way through the log, to be applied in one step."""

    __slots__ = ("facts", "then")

    facts: Sequence[Fact]
    then: Callable[[FactSubmission], None]
    """Called once they are applied, or known not to be."""


class TopicChange(Submission):
    """A decided change of one topic on its way through the log; `Kernel.publish` shows it."""

    __slots__ = ("counted", "held", "topic")

    topic: Topic
    counted: int
    """Bytes that caps and quota count while the change is on its way."""
    held: object
    """Indexes that `apply` needs: a reference keeps them in memory."""
    gives_seqs = True
    """Whether it holds seqs above the head, to be given out again if the log refuses it."""
    wakes = True
    """Whether readers of the topic have something to read."""

    def apply(self) -> None:
        """Show the change in the topic. Does not fail and reads no file."""
        raise NotImplementedError


class Host:
    """The program that runs an engine: what the engine tells it, and asks it."""

    __slots__ = ("before_change", "changed", "pace_ms", "retry_after_ms")

    def __init__(
        self,
        *,
        changed: Callable[[Topic], None] = lambda topic: None,
        before_change: Callable[[], None] = lambda: None,
        retry_after_ms: Callable[[], int] = lambda: 1000,
    ) -> None:
        self.changed = changed
        """Readers of the topic have something to read, or the topic is gone."""
        self.before_change = before_change
        """An operation that reads has to change something first."""
        self.retry_after_ms = retry_after_ms
        """When a call that found the log full may try again."""
        self.pace_ms: Callable[[Topic], float] | None = None
        """How long a write to the topic waits at first; None while the program is not busy."""


class Kernel:
    # Every write reads many of these attributes, and Python 3.11 is quick with at most 29 of them.
    def __init__(
        self,
        *,
        clock: Clock,
        settings: EngineSettings,
        catalog: Catalog,
        committer: Committer,
        sources: Sources,
        segments: SegmentStore | None,
        arenas: Arenas,
        generation: int,
    ) -> None:
        self.clock = clock
        self.settings = settings
        self.catalog = catalog
        self.committer = committer
        self.sources = sources
        self.segments = segments  # None: everything lives in memory
        self.generation = generation
        self.host = Host()  # until the program that runs the engine brings its own
        self.refused_for_room = 0
        self.must_checkpoint = False
        self.log_is_too_long = False  # writes wait until a checkpoint lets old log files go
        self.applied: dict[int, int] = {}  # per shard: the last frame that was applied
        self.sync_marks = SyncMarks(committer, self.applied, in_memory=segments is None)
        self.indexes = Indexes(segments, self.require)
        self.gates = AppendGates()
        self.publishing: list[Publishing] = []  # commits that are being published in steps
        self.arenas = arenas
        self.standstill: Gate | None = None  # a checkpoint is capturing: no pass may begin
        self.passes: dict[Submission, int] = {}  # router passes on their way, and to which topic
        # Copies made by routers that no checkpoint has put into segments yet.
        self.derived_bytes = 0 if segments is None else arenas.total
        # What no checkpoint holds: topics by id, routers and apps by name. A mark that is missing
        # is a change that a restart does not find again, once its log file has been let go.
        self.dirty: set[int] = set()
        self.dirty_routers: set[str] = set()
        self.dirty_apps: set[str] = set()
        # Topics with ages, which only grow: a snapshot that is written tells all of them anew.
        self.ahead = {topic.id for topic in catalog if len(topic.ages)}
        # Topics whose expired records could not be told, by id, and when to try again (ms).
        self.unreadable: dict[int, int] = {}
        self._started = clock.monotonic()

    @property
    def in_memory(self) -> bool:
        return self.segments is None

    def topic(self, name: str) -> Topic:
        found = self.catalog.by_name.get(name)
        if found is None:
            raise TopicNotFound(name)
        return found

    def running_ms(self) -> int:
        """How long this run has lasted, however the wall clock was set meanwhile."""
        return int((self.clock.monotonic() - self._started) * 1000)

    def is_there(self, topic: Topic) -> bool:
        """Whether a topic that was there before a wait was not dropped meanwhile."""
        return self.catalog.by_id.get(topic.id) is topic

    def require(self, topic: Topic) -> None:
        """Refuse to go on with a topic that was dropped during a wait."""
        if not self.is_there(topic):
            raise TopicNotFound(topic.name)

    def backlog(self) -> Throttled:
        """The refusal of a call that must log while the log cannot keep up."""
        self.refused_for_room += 1
        return Throttled.backlog(pressure=1.0, retry_after_ms=self.host.retry_after_ms())

    def full_disk(self, topic: Topic) -> Internal | None:
        """Why the log would refuse a write to a logged topic; None while there is space."""
        if not self.is_logged(topic):
            return None
        return self.committer.refusal(self.committer.shard_of(topic.id))

    def no_room(self, topic: Topic) -> TopicsError:
        """The refusal of a write for which the log has no room."""
        return self.full_disk(topic) or self.backlog()

    def require_room(self, topic_id: int, size: int, *, is_relief: bool = False) -> None:
        """Refuse a call that must log when the queue of its shard is full; nothing is done yet.

        A full disk refuses too, unless the call makes room.
        """
        if not is_relief:
            self.require_disk(topic_id)
        if not self.has_room(topic_id, size):
            raise self.backlog()

    def require_disk(self, topic_id: int) -> None:
        """Refuse a call that must log and makes no room while the disk is full."""
        refusal = self.committer.refusal(self.committer.shard_of(topic_id))
        if refusal is not None:
            raise refusal

    def has_room(self, topic_id: int, size: int) -> bool:
        """Whether the log takes that much of a topic, there already or about to be made."""
        committer = self.committer
        return not committer.is_queued or committer.room(committer.shard_of(topic_id), size)

    def is_logged(self, topic: Topic) -> bool:
        """Whether the topic's records, deletes and cursors pass through the log."""
        return self.segments is not None and topic.durability.is_logged

    def give_memory_back(self, topic: Topic) -> None:
        """Free the memory of records that are gone.

        Router copies in a logged topic stay until the next checkpoint: one may be reading them.
        """
        if not self.is_logged(topic) or topic.volatile_from or len(topic.volatile):
            self.arenas.release(topic.id, topic.earliest)

    def awaits_copies(self, topic: Topic) -> bool:
        """Whether router passes come through the log to a topic whose own writes do not.

        A write would be published before them, though they have the lower seqs.
        """
        is_possible = topic.pending > 0 and not self.is_logged(topic)
        return is_possible and topic.id in self.passes.values()

    def copies_landed(self, topic: Topic) -> Op[None]:
        """Wait for the passes that are on their way to a topic now."""
        for submission, dest_id in tuple(self.passes.items()):
            if dest_id == topic.id and not submission.done:
                yield submission

    def forget(self, topic: Topic) -> None:
        """A topic is gone, and with it what is kept beside its state."""
        self.arenas.forget(topic.id)
        if self.in_memory:
            self.dirty.discard(topic.id)  # else a checkpoint takes it out of the snapshot
        self.ahead.discard(topic.id)
        self.sync_marks.forget(topic)
        self.unreadable.pop(topic.id, None)

    def all_applied(self, topic: Topic) -> Op[None]:
        """Wait for all that is on its way to a topic whose gate is closed.

        The log answers in order, so a frame that changes nothing is answered behind all of it.
        """
        if not self.committer.in_flight(self.committer.shard_of(topic.id)):
            return
        mark = CheckpointMarked(self.clock.now_ms(), BARRIER_ID, ())
        yield from self.commit([mark], topic_id=topic.id, durable=False)

    def commit(self, facts: Sequence[Fact], *, topic_id: int, durable: bool) -> Op[Submission]:
        """Log facts as one submission, wait for it, and apply them; raises when the log refused."""
        self.require_room(topic_id, CONTROL_BYTES, is_relief=is_relief(facts))
        submission = self.submit(facts, topic_id=topic_id, durable=durable)
        if not submission.done:
            yield submission
        if submission.error is not None:
            raise submission.error
        return submission

    def submit(
        self,
        facts: Sequence[Fact],
        *,
        topic_id: int,
        durable: bool,
        then: Callable[[FactSubmission], None] | None = None,
    ) -> FactSubmission:
        """Hand facts to the log without waiting."""
        return self.submit_to(self.committer.shard_of(topic_id), facts, durable=durable, then=then)

    def submit_to(
        self,
        shard: int,
        facts: Sequence[Fact],
        *,
        durable: bool,
        then: Callable[[FactSubmission], None] | None = None,
    ) -> FactSubmission:
        last = len(facts) - 1
        frames = b"".join(
            [encode(fact, durable=durable, cont=i < last) for i, fact in enumerate(facts)]
        )
        submission = FactSubmission(
            shard=shard,
            frames=frames,
            count=sum(map(frame_count, facts)),
            durable=durable,
            on_done=self._apply,
        )
        submission.facts = facts
        submission.then = then or _note_nothing
        submission.is_relief = is_relief(facts)
        self.committer.submit(submission)
        return submission

    def submit_unapplied(self, facts: Sequence[Fact], *, topic_id: int) -> FactSubmission:
        """Log facts whose effect is already in the state: what recovery found out.

        Their frames say that they are durable, although only the caller syncs, once for all of
        them: a later recovery then does not overwrite them in place.
        """
        frames = b"".join([encode(fact, durable=True) for fact in facts])
        submission = FactSubmission(
            shard=self.committer.shard_of(topic_id),
            frames=frames,
            count=sum(map(frame_count, facts)),
            durable=False,
            on_done=_note_nothing,
        )
        submission.facts = facts
        self.committer.submit(submission)
        return submission

    def leave_trace(self, facts: Sequence[LeaseChanged], *, topic_id: int) -> None:
        """Log events that are already in the state and whose loss does no harm."""
        submission = FactSubmission(
            shard=self.committer.shard_of(topic_id),
            frames=encode_leases(facts),
            count=len(facts),
            durable=False,
            on_done=_note_nothing,
        )
        submission.facts = facts
        submission.is_relief = True  # short, and behind a failure others would fail
        self.committer.submit(submission)

    def finish_unlogged(self, submission: Submission) -> None:
        """Publish a submission of a topic that lives in memory: there is nothing to wait for."""
        submission.done = True
        submission.on_done(submission)

    # Publication

    def publish(self, change: Submission) -> None:
        """The log has answered a change of one topic: show it, or take its seqs back."""
        assert isinstance(change, TopicChange)
        topic = change.topic
        if change.gives_seqs:
            topic.pending -= 1
            if change.counted:
                self.catalog.expect(topic, -change.counted)
            if change.error is not None and not topic.pending:
                # Nothing of it is visible, and nothing else is on its way: its seqs are free again.
                topic.handed_out = topic.head
        if change.error is None:
            self.applied[change.shard] = change.last_lfn
            self.show(topic, change.apply, wakes=change.wakes)

    def show(self, topic: Topic, apply: Callable[[], object], *, wakes: bool) -> None:
        """Everything that follows a commit to one topic: apply, counts, marks, memory, readers."""
        nbytes, earliest = topic.bytes, topic.earliest
        apply()
        self.catalog.bytes += topic.bytes - nbytes
        self.dirty.add(topic.id)
        if topic.earliest != earliest:
            self.give_memory_back(topic)
        if wakes:
            self.host.changed(topic)

    def apply(self, facts: Sequence[Fact]) -> None:
        """Publish facts that need no log: the topic lives in memory only."""
        for fact in facts:
            self._publish_fact(fact)

    def _publish_fact(self, fact: Fact) -> None:
        match fact:
            case RouterCreated() | RouterDeleted():
                self.dirty_routers.add(fact.name)
            case TopicDeleted():
                self.dirty_routers.update(self.catalog.routers.touching(fact.topic_id))
            case _:
                pass
        self.catalog.apply(fact, generation=self.generation)
        topic_id = getattr(fact, "topic_id", 0)
        if topic_id:
            self.dirty.add(topic_id)

    def _apply(self, submission: Submission) -> None:
        assert isinstance(submission, FactSubmission)
        try:
            if submission.error is None:
                self._publish(submission)
        finally:
            submission.then(submission)

    def _publish(self, submission: FactSubmission) -> None:
        self.applied[submission.shard] = submission.last_lfn
        for fact in submission.facts:
            self._publish_fact(fact)


def is_relief(facts: Sequence[Fact]) -> bool:
    """Whether a full disk should take these facts."""
    return all(isinstance(fact, RELIEF) for fact in facts)


def _note_nothing(submission: Submission) -> None:
    """For a submission that no operation waits for."""
