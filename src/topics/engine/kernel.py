"""What every operation stands on: the state, the log, the clock, and the way facts get in.

`commit` is the one road from a decided fact to published state: encode, hand to the log as one
submission, and when the log says so apply in log order. `on_done` runs on the thread that owns the
state and in the order of the log, so the order of publishing needs no lock and no ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import ParamSpec, TypeVar

from topics.core.ages import Ages
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
from topics.core.loading import NotLoaded
from topics.core.topic import Topic
from topics.engine.arenas import Arenas
from topics.engine.clock import Clock
from topics.engine.effects import PAUSE, Gate, Io, Op
from topics.engine.reads.history import indexes_of
from topics.engine.settings import EngineSettings
from topics.engine.writes.gates import AppendGates, Publishing
from topics.errors import Internal, Throttled, TopicNotFound, TopicsError
from topics.storage.crashpoints import crashpoint
from topics.storage.frames.buffer import encode, frame_count
from topics.storage.frames.leases import encode_leases
from topics.storage.segments.codec import Idx
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

CHUNKS_AT_ONCE = 16
"""So many chunks of records are weighed at a time."""

RETRY_UNREADABLE_MS = 1000

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
    """Indexes that `apply` needs: they stay in memory as long as somebody has them."""
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
        self.gates = AppendGates()
        self.publishing: list[Publishing] = []  # commits that are being published in steps
        self.arenas = arenas
        self.standstill: Gate | None = None  # a checkpoint is capturing: no pass may begin
        self.passes: dict[Submission, int] = {}  # router passes on their way, and to which topic
        # By topic the frames of other shards on which its copies may rest, as long as they are not
        # synced: whether a copy survives a power cut is up to its original.
        self._rests: dict[int, dict[int, int]] = {}
        # Copies made by routers that no checkpoint has put into segments yet.
        self.derived_bytes = 0 if segments is None else arenas.total
        # What no checkpoint holds: topics by id, routers and apps by name. A mark that is missing
        # is a change that a restart does not find again, once its log file has been let go.
        self.dirty: set[int] = set()
        self.dirty_routers: set[str] = set()
        self.dirty_apps: set[str] = set()
        # Topics with ages, which only grow: a snapshot that is written tells all of them anew.
        self.ahead = {topic.id for topic in catalog if len(topic.ages)}
        self._started = clock.monotonic()
        self._unreadable: dict[int, int] = {}  # topic id -> when to try again to tell what expired

    @property
    def in_memory(self) -> bool:
        return self.segments is None

    def topic(self, name: str) -> Topic:
        found = self.catalog.by_name.get(name)
        if found is None:
            raise TopicNotFound(name)
        return found

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
        """Why a write to a topic that is logged makes no sense now; None while there is space."""
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
        """Let go of what memory holds of records that are gone.

        Copies at a logged topic stay until a checkpoint has seen to them: it may be reading them.
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

    def marks_of(self, topic: Topic) -> dict[int, int]:
        """Per shard the last frame on which the records of a topic may rest."""
        if self.in_memory:
            return {}
        shard, synced = self.committer.shard_of(topic.id), self.committer.synced
        rests = self._rests.get(topic.id, {}).items()
        marks = {other: lfn for other, lfn in rests if synced(other).lfn < lfn}
        return marks | {shard: self.applied.get(shard, 0)}

    def note_copies(self, dest: Topic, marks: Mapping[int, int]) -> None:
        """Copies that rest on these frames are about to come to a topic.

        That is noted with the copies, because routers may be gone before anybody asks.
        """
        rests = self._rests.setdefault(dest.id, {})
        for shard, lfn in marks.items():
            rests[shard] = max(lfn, rests.get(shard, 0))

    def is_synced(self, marks: Mapping[int, int]) -> bool:
        """Whether these frames, one of each shard, are durable."""
        return all(self.committer.synced(shard).lfn >= lfn for shard, lfn in marks.items())

    def sync_marks(self, marks: Mapping[int, int]) -> Op[None]:
        """Make frames durable that may not be yet."""
        for shard, lfn in marks.items():
            if self.committer.synced(shard).lfn < lfn:
                yield Io(partial(self.committer.sync, shard))

    def forget(self, topic: Topic) -> None:
        """A topic is gone, and with it what is kept beside its state."""
        self.arenas.forget(topic.id)
        if self.in_memory:
            self.dirty.discard(topic.id)  # else a checkpoint takes it out of the snapshot
        self.ahead.discard(topic.id)
        self._rests.pop(topic.id, None)
        self._unreadable.pop(topic.id, None)

    def all_applied(self, topic: Topic) -> Op[None]:
        """Wait for all that is on its way to a topic whose gate is closed.

        The log answers in order, so a frame that changes nothing is answered behind all of it.
        """
        if not self.committer.in_flight(self.committer.shard_of(topic.id)):
            return
        mark = CheckpointMarked(self.clock.now_ms(), BARRIER_ID, ())
        yield from self.commit([mark], topic_id=topic.id, durable=False)

    def ask(self, topic: Topic, question: Callable[[], T]) -> Op[T]:
        """What memory answers, once the indexes that it takes are loaded.

        Raises `Internal` when one of them cannot be read, `TopicNotFound` when the topic was
        dropped meanwhile.
        """
        held: list[object] = []  # indexes stay in memory while somebody has them
        while True:
            try:
                return self.ask_memory(question)
            except NotLoaded as missing:
                load = missing.load
            held.append((yield from self.load(topic, load)))

    def ask_memory(self, question: Callable[P, T], *about: P.args, **more: P.kwargs) -> T:
        """What memory answers; raises `NotLoaded` when a file has to be read first."""
        store = self.segments
        if store is None:
            return question(*about, **more)
        was, store.refuses_to_wait = store.refuses_to_wait, True
        try:
            return question(*about, **more)
        finally:
            store.refuses_to_wait = was

    def load(self, topic: Topic, load: Callable[[], object]) -> Op[object]:
        """Load what `NotLoaded` told of; raises as `ask` does. It is for the caller to hold."""
        try:
            return (yield Io(load))
        except OSError as error:
            self.require(topic)
            message = f"an index of topic {topic.name!r} could not be read: {error}"
            raise Internal(message) from error

    def load_for_write(self, topic: Topic, load: Callable[[], object]) -> Op[object]:
        """The same, though a write need not wait for what TTL takes: if an index cannot be read,
        nothing expires for a while. Whether the write needs it all the same shows when it asks."""
        try:
            return (yield from self.load(topic, load))
        except Internal:
            if not topic.config.ttl_ms or self._is_unreadable(topic):
                raise
            self._note_unreadable(topic)
            return ()

    def _is_unreadable(self, topic: Topic) -> bool:
        """Whether an index could not be read a moment ago: what expired goes later."""
        return self._unreadable.get(topic.id, 0) > self.clock.now_ms()

    def _note_unreadable(self, topic: Topic) -> None:
        self._unreadable[topic.id] = self.clock.now_ms() + RETRY_UNREADABLE_MS

    def prepare_loss(self, topic: Topic, through: int) -> Op[object]:
        """Have in memory what it takes to let everything go up to a seq, in small steps.

        What is returned has to be held until that is applied.
        """
        held: list[object] = []
        while True:
            try:
                while self._weigh_some(topic, through):
                    held.clear()
                    yield PAUSE
                return self.ask_memory(sizes_at_hand, topic, through)
            except NotLoaded as missing:
                load = missing.load
            held.append((yield from self.load(topic, load)))

    def _weigh_some(self, topic: Topic, through: int) -> bool:
        """Weigh a few chunks; False when all that can be weighed beforehand is."""
        some = islice(topic.weigh_front(through), CHUNKS_AT_ONCE)
        return len(self.ask_memory(list, some)) == CHUNKS_AT_ONCE

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

        Their frames say that they are durable, though it is the caller who syncs, once for all:
        no later recovery may then overwrite them in place.
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
        """Log events that are already in the state and that nobody would miss."""
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

    # Retention

    def retain(self, topic: Topic) -> Op[None]:
        """Let expired records go. The loss is in the log before it is shown, unless the log
        cannot take it: then it is shown all the same, and nothing is reclaimed on disk."""
        if not self.may_have_expired(topic):
            return
        try:
            fact = yield from self.ask(topic, partial(self.due_eviction, topic))
            if fact is None:
                return
            held = yield from self.prepare_loss(topic, fact.ttl_hi)
        except Internal:
            # Expired records of a segment whose index cannot be read cannot be shown either.
            self._note_unreadable(topic)
            return
        self.host.before_change()
        if self.is_logged(topic):
            submission = self.submit([fact], topic_id=topic.id, durable=False)
            if not submission.done:
                yield submission
            crashpoint("evict.commit")
            if submission.error is None:
                return
        self.lose_expired(topic, fact)
        del held

    def may_have_expired(self, topic: Topic) -> bool:
        """Whether records are past their time to live, as far as memory can tell."""
        if not topic.config.ttl_ms:
            return False
        try:
            return self.ask_memory(self.due_eviction, topic) is not None
        except NotLoaded:
            return True

    def due_eviction(self, topic: Topic) -> Evicted | None:
        if self._unreadable and self._is_unreadable(topic):
            return None
        now_ms = self.clock.now_ms()
        ttl_ms, aged = topic.config.ttl_ms, 0
        if ttl_ms and topic.last_ts > now_ms:
            aged = self.aged_through(topic, ttl_ms, now_ms=now_ms)
        ttl_hi = topic.expired_through(now_ms, aged=aged)
        if ttl_hi <= topic.ttl_hi:
            return None
        return Evicted(topic.id, max(now_ms, topic.last_ts), topic.cap_hi, topic.earliest, ttl_hi)

    def aged_through(self, topic: Topic, age_ms: int, *, now_ms: int) -> int:
        """The last seq known to be older than that though the times of the topic do not say so."""
        if not topic.is_ahead_of(now_ms):
            return 0
        running_ms = self.running_ms()
        if topic.ages.note(topic.head, running_ms):
            self.dirty.add(topic.id)
            self.ahead.add(topic.id)
        return topic.ages.through(running_ms - age_ms)

    def forget_ages(self, topic: Topic) -> None:
        """Once the clock has come to the times of a topic, they tell how old its records are."""
        if len(topic.ages) and not topic.is_ahead_of(self.clock.now_ms()):
            topic.ages = Ages()
            self.ahead.discard(topic.id)

    def running_ms(self) -> int:
        """How long this run has lasted, however the wall clock was set meanwhile."""
        return int((self.clock.monotonic() - self._started) * 1000)

    def lose_expired(self, topic: Topic, fact: Evicted) -> None:
        """Show a loss that the log does not know of yet; the clock would derive it again."""
        if not self.is_there(topic):
            return  # its bytes were taken off the total when it was dropped
        self.show(topic, partial(topic.lose, ttl_hi=fact.ttl_hi, cap_hi=0), wakes=False)


def is_relief(facts: Sequence[Fact]) -> bool:
    """Whether a full disk should take these facts."""
    return all(isinstance(fact, RELIEF) for fact in facts)


def sizes_at_hand(topic: Topic, through: int) -> list[Idx]:
    """What `Topic.lose` and deletes by position need beside the weights they know."""
    return indexes_of(topic, topic.rest_of(through), through)


def _note_nothing(submission: Submission) -> None:
    """Nobody waits for this submission."""
