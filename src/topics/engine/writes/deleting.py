"""Removal that was asked for: silent, at once, for good. And named cursors, which are as small."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from topics.core.config import check_topic_name
from topics.core.deleting import STEP_TAGS, TagSelection, apply_deleted, limit_of, selects_any
from topics.core.facts import CursorMoved, Deleted, Match
from topics.core.loading import NotLoaded
from topics.core.runs import runs_of
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Op
from topics.engine.indexes import sizes_at_hand
from topics.engine.kernel import CONTROL_BYTES, Kernel, TopicChange
from topics.engine.reads.history import indexes_of
from topics.engine.reads.tagging import TagLoader
from topics.engine.retention import retain
from topics.errors import BatchTooLarge, Internal, InvalidRequest, NotFound, Throttled
from topics.storage.crashpoints import crashpoint
from topics.storage.frames.buffer import encode
from topics.topic_settings import U64_MAX
from topics.values import CursorState, DeleteResult
from topics.wire import predicates

MAX_CURSORS = 1000
MAX_SEQS = 1000
"""Records that one call may name."""


def parse_match(selector: str | list[str] | tuple[str, ...] | None) -> Match | None:
    """`"tag"`, `"prefix*"`, `["tag","Eq","x"]` or `["tag","Glob","x*"]`."""
    if selector is None:
        return None
    predicate = predicates.parse_match(selector)
    return Match(predicate.literal, is_prefix=predicate.is_prefix)


class DeleteSubmission(TopicChange):
    __slots__ = ("chosen", "fact", "generation", "gone", "is_late", "removed")

    gives_seqs = False
    wakes = False
    fact: Deleted
    generation: int
    chosen: TagSelection | None
    """What a delete by tag removes, found and weighed before it was logged."""
    removed: int
    gone: Collection[int]
    """Of explicit seqs those that were not there any more when it was applied."""
    is_late: bool
    """Whether other changes could come in between."""

    def apply(self) -> None:
        crashpoint("del.commit")
        topic, fact = self.topic, self.fact
        if self.is_late:
            self.gone = {seq for seq in fact.seqs if not topic.is_live(seq)}
        self.removed = apply_deleted(topic, fact, generation=self.generation, chosen=self.chosen)


class Deleter:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._tags = TagLoader(kernel.catalog, kernel.sources)

    def delete(
        self,
        name: str,
        *,
        before: int | None,
        match: Match | None,
        seqs: Sequence[int] | None = None,
    ) -> Op[DeleteResult]:
        """Remove every live record the selector reaches now; later records are safe."""
        if before is None and match is None and seqs is None:
            raise InvalidRequest("say what to delete: before_seq, match, seqs, or several of them")
        check_before(before)
        if seqs is not None:
            return (yield from self._delete_named(name, before, match, check_seqs(seqs)))
        result = None
        while result is None:
            result = yield from self.delete_from(self._kernel.topic(name), before, match)
        return result

    def delete_from(
        self, topic: Topic, before: int | None, match: Match | None
    ) -> Op[DeleteResult | None]:
        """Remove what the selector reaches in a topic; None when the topic was dropped by then."""
        if match is None:
            return (yield from self._delete(topic, before))
        with topic.tags.held():
            return (yield from self._delete_tagged(topic, before, match))

    def _delete_tagged(
        self, topic: Topic, before: int | None, match: Match
    ) -> Op[DeleteResult | None]:
        """Find and weigh the records, remove them, forget their tags. Only removing them is one
        step: a tag may be on a million records, and a prefix may cover a million tags.

        None when the topic was dropped meanwhile.
        """
        with self._reading_tags(topic):
            yield from self._tags.load(topic)
        chosen = TagSelection(topic, match)
        with topic.tags.telling(chosen):
            with self._reading_tags(topic):
                yield from self._in_steps(topic, chosen.find(topic.head + 1))
            yield from self._weigh(topic, chosen)
            return (yield from self._delete(topic, before, match, chosen))

    def _delete_named(
        self, name: str, before: int | None, match: Match | None, seqs: Sequence[int]
    ) -> Op[DeleteResult]:
        """Remove those of some records that the rest of the selector reaches, too."""
        topic = self._kernel.topic(name)
        yield from retain(self._kernel, topic)
        if before is not None:
            seqs = [seq for seq in seqs if seq < before]
        if match is not None and seqs:
            seqs = yield from self._tagged(topic, match, seqs)
        removed = yield from self.delete_seqs(topic, seqs)
        return DeleteResult(name, removed, topic.earliest, topic.head, topic.count, topic.bytes)

    def _tagged(self, topic: Topic, match: Match, seqs: Sequence[int]) -> Op[Sequence[int]]:
        """Those of some records that have a tag. The tag index tells: no record is read."""
        chosen = TagSelection(topic, match)
        with topic.tags.held(), self._reading_tags(topic):
            yield from self._tags.load(topic)
            yield from self._in_steps(topic, chosen.find(topic.head + 1))
        return [seq for seq in seqs if chosen.has(seq)]

    @contextmanager
    def _reading_tags(self, topic: Topic) -> Iterator[None]:
        """Before the commit: applying must not fail."""
        try:
            yield
        except (OSError, KeyError) as error:
            message = f"tags of topic {topic.name!r} could not be read: {error}"
            raise Internal(message) from error

    def _weigh(self, topic: Topic, chosen: TagSelection) -> Op[None]:
        """Weigh what was chosen and is not weighed yet, in steps."""
        kernel = self._kernel
        held: list[object] = []
        steps = chosen.weigh(topic.head + 1)
        while kernel.is_there(topic):
            try:
                if kernel.indexes.ask_memory(next, steps, steps) is not None:
                    return
            except NotLoaded as missing:
                load = missing.load
            else:
                held.clear()
                yield PAUSE
                continue
            held.append((yield from kernel.indexes.load(topic, load)))
            steps = chosen.weigh(topic.head + 1)

    def _in_steps(self, topic: Topic, steps: Iterator[None]) -> Op[None]:
        """Work with a pause behind each step; a topic that is dropped meanwhile has no files."""
        while self._kernel.is_there(topic) and next(steps, steps) is None:
            yield PAUSE

    def _delete(
        self,
        topic: Topic,
        before: int | None,
        match: Match | None = None,
        chosen: TagSelection | None = None,
    ) -> Op[DeleteResult | None]:
        """Remove what is live once the topic takes writes; None when it was dropped by then."""
        held = yield from self._begin(topic, before, chosen)
        if not self._kernel.is_there(topic):
            return None
        ts = max(self._kernel.clock.now_ms(), topic.last_ts)
        fact = Deleted(topic.id, ts, before, match, bound=topic.head + 1)
        removed = 0
        if selects_any(topic, fact, chosen):
            submission = self._submit(topic, fact, chosen, held=held)
            if not submission.done:
                yield submission
            removed = removed_by(submission)
        result = DeleteResult(
            topic.name, removed, topic.earliest, topic.head, topic.count, topic.bytes
        )
        if removed and match is not None and before is None:
            below = limit_of(topic, fact)
            steps = topic.tags.forget_matching(match, below=below, step=STEP_TAGS)
            yield from self._in_steps(topic, steps)
        return result

    def _begin(self, topic: Topic, before: int | None, chosen: TagSelection | None) -> Op[object]:
        """Wait until the topic takes writes and memory has what it takes to apply a delete, which
        is to be held until then."""
        kernel = self._kernel
        held: object = ()
        if kernel.is_there(topic):
            yield from retain(kernel, topic)
        if kernel.is_there(topic):
            held = yield from self._prepare(topic, before, chosen)
            yield from kernel.gates.enter(topic.id)
        while kernel.is_there(topic):
            try:
                return kernel.indexes.ask_memory(_at_hand, topic, before, chosen)
            except NotLoaded:  # something changed meanwhile: now no write may come
                preparing = self._prepare(topic, before, chosen)
            held = yield from kernel.gates.closed_during(topic.id, preparing)
        return held

    def _prepare(self, topic: Topic, before: int | None, chosen: TagSelection | None) -> Op[object]:
        """Have in memory what it takes to apply a delete, in steps; see `_at_hand`."""
        if chosen is not None:
            yield from self._weigh(topic, chosen)
            return ()
        assert before is not None
        return (yield from self._kernel.indexes.prepare_loss(topic, before - 1))

    def delete_seqs(self, topic: Topic, seqs: Sequence[int]) -> Op[int]:
        """Remove exactly these records, as far as they live; returns how many did."""
        submission = yield from self.begin_seqs(topic, tuple(seqs))
        if submission is None:
            return 0
        if not submission.done:
            yield submission
        return removed_by(submission)

    def begin_seqs(self, topic: Topic, seqs: tuple[int, ...]) -> Op[DeleteSubmission | None]:
        """Begin to remove them once the topic takes writes; None when none of them lives.

        Raises `TopicNotFound` when the topic was dropped by then.
        """
        kernel, admitted = self._kernel, False
        held: list[object] = []
        while True:
            if topic.id in kernel.gates.closed and not admitted:
                yield from kernel.gates.enter(topic.id)
            kernel.require(topic)  # after either wait: it may have brought a drop, or other deletes
            if not any(map(topic.is_live, seqs)):
                return None
            try:
                return self.submit_seqs(topic, seqs)
            except NotLoaded as missing:
                loading = kernel.indexes.load(topic, missing.load)
            held.append((yield from kernel.gates.closed_during(topic.id, loading)))
            admitted = True  # `closed_during` counts as admission

    def submit_seqs(self, topic: Topic, seqs: tuple[int, ...]) -> DeleteSubmission:
        """The same at once: the caller knows that the gate is open and that some records live.

        Raises `NotLoaded`, with nothing done, when their index has to be loaded first.
        """
        held: object = ()
        if min(seqs) <= topic.history.last:
            held = self._kernel.indexes.ask_memory(_indexes_of, topic, seqs)
        ts = max(self._kernel.clock.now_ms(), topic.last_ts)
        return self._submit(topic, Deleted(topic.id, ts, seqs=seqs), held=held)

    def _submit(
        self, topic: Topic, fact: Deleted, chosen: TagSelection | None = None, *, held: object = ()
    ) -> DeleteSubmission:
        kernel = self._kernel
        durable = topic.durability.needs_sync
        submission = DeleteSubmission(
            kernel.committer.shard_of(topic.id),
            encode(fact, durable=durable),
            1,
            durable=durable,
            on_done=kernel.publish,
        )
        submission.topic, submission.fact, submission.chosen = topic, fact, chosen
        submission.removed, submission.held = 0, held
        submission.generation = kernel.generation
        submission.gone, submission.is_late = (), False
        # An ephemeral topic logs deletes too if it has older records that a restart brings back.
        if kernel.is_logged(topic) or (not kernel.in_memory and topic.volatile_from > 1):
            submission.is_relief = True
            kernel.require_room(topic.id, len(submission.frames), is_relief=True)
            kernel.committer.submit(submission)
            submission.is_late = not submission.done
        else:
            kernel.finish_unlogged(submission)
        return submission


def _at_hand(topic: Topic, before: int | None, chosen: TagSelection | None) -> object:
    """What it takes to apply a delete by tag or position, to be held until then; or `NotLoaded`."""
    if chosen is not None:
        for _ in chosen.weigh(topic.head + 1):
            pass
        return ()
    assert before is not None
    for _ in topic.weigh_front(before - 1):
        pass
    return sizes_at_hand(topic, before - 1)


def _indexes_of(topic: Topic, seqs: tuple[int, ...]) -> object:
    """What tells the sizes of some records."""
    runs = runs_of(sorted(seq for seq in set(seqs) if seq <= topic.history.last))
    return [indexes_of(topic, lo, hi) for lo, hi in runs]


def check_before(before: int | None) -> None:
    """Refuse a bound that is no seq."""
    if before is not None and not 0 <= before <= U64_MAX:
        raise InvalidRequest(f"before_seq must be from 0 to {U64_MAX}")


def check_seqs(seqs: Sequence[int]) -> Sequence[int]:
    """Records that a call names, each once and in order; not too many of them."""
    if len(seqs) > MAX_SEQS:
        raise BatchTooLarge(seqs=len(seqs), maximum=MAX_SEQS)
    if any(not 0 <= seq <= U64_MAX for seq in seqs):
        raise InvalidRequest(f"seqs must be from 0 to {U64_MAX}")
    return sorted(set(seqs))


def removed_by(submission: DeleteSubmission) -> int:
    """How many records a delete removed that is done; raises what became of it instead."""
    if submission.error is not None:
        raise submission.error
    return submission.removed


class Cursors:
    """Positions that consumers leave with the log; reading never looks at them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._under_way: dict[tuple[int, str], tuple[int, bool]] = {}
        """By topic id and cursor: moves on their way, and whether the cursor exists after them."""

    def put(self, name: str, cursor: str, seq: int) -> Op[tuple[bool, CursorState]]:
        kernel = self._kernel
        topic = kernel.topic(name)
        check_topic_name(cursor, what="cursor")
        if not 0 <= seq <= topic.head:
            raise InvalidRequest(
                f"cursor {cursor!r} cannot stand at {seq}: the topic's head is {topic.head}"
            )
        created = not self._will_be_there(topic, cursor)
        if created and len(topic.cursors) + self._coming(topic) >= MAX_CURSORS:
            raise Throttled("max_cursors", maximum=MAX_CURSORS)
        moved = yield from self._move(topic, cursor, seq, present=True)
        kernel.require(topic)
        yield from retain(kernel, topic)
        return created, (yield from self._state(topic, cursor, (moved.seq, moved.ts)))

    def drop(self, name: str, cursor: str) -> Op[bool]:
        topic = self._kernel.topic(name)
        if not self._will_be_there(topic, cursor):
            return False
        yield from self._move(topic, cursor, 0, present=False)
        self._kernel.require(topic)
        return True

    def _will_be_there(self, topic: Topic, cursor: str) -> bool:
        """Whether the next move of this cursor finds it: all before it are done by then."""
        found = self._under_way.get((topic.id, cursor))
        return cursor in topic.cursors if found is None else found[1]

    def _coming(self, topic: Topic) -> int:
        """How many new cursors are on their way through the log."""
        return sum(
            topic_id == topic.id and present and cursor not in topic.cursors
            for (topic_id, cursor), (_, present) in self._under_way.items()
        )

    def _move(self, topic: Topic, cursor: str, seq: int, *, present: bool) -> Op[CursorMoved]:
        kernel = self._kernel
        fact = CursorMoved(topic.id, kernel.clock.now_ms(), cursor, seq, present)
        if not kernel.is_logged(topic):
            kernel.apply([fact])
            return fact
        kernel.require_room(topic.id, CONTROL_BYTES)  # a move refused here was never under way
        durable = topic.durability.needs_sync
        key = topic.id, cursor
        self._under_way[key] = (self._under_way.get(key, (0, present))[0] + 1, present)
        try:
            yield from kernel.commit([fact], topic_id=topic.id, durable=durable)
        finally:
            moves, last = self._under_way.pop(key)
            if moves > 1:
                self._under_way[key] = (moves - 1, last)
        return fact

    def get(self, name: str, cursor: str) -> Op[CursorState]:
        topic = self._kernel.topic(name)
        yield from retain(self._kernel, topic)
        if cursor not in topic.cursors:
            raise NotFound(f'cursor "{cursor}" of topic "{name}"')
        return (yield from self._state(topic, cursor, topic.cursors[cursor]))

    def list(self, name: str) -> Op[list[CursorState]]:
        topic = self._kernel.topic(name)
        yield from retain(self._kernel, topic)
        states = []
        for cursor, position in sorted(topic.cursors.items()):
            states.append((yield from self._state(topic, cursor, position)))
        return states

    def _state(self, topic: Topic, cursor: str, position: tuple[int, int]) -> Op[CursorState]:
        seq, updated_ts = position
        waiting = yield from self._kernel.indexes.ask(topic, partial(topic.first_after, seq))
        now_ms = self._kernel.clock.now_ms()
        age_ms = max(0, now_ms - waiting[1]) if waiting else 0
        first_live = waiting[0] if waiting else topic.head + 1
        return CursorState(
            topic=topic.name,
            cursor=cursor,
            seq=seq,
            updated_ts=updated_ts,
            head_seq=topic.head,
            lag_records=topic.live_after(seq),
            lag_seqs=max(0, topic.head - seq),
            lag_seconds=age_ms / 1000,
            gap_pending=_begins_with_loss(topic, seq, first_live),
        )


def _begins_with_loss(topic: Topic, cursor: int, first_live: int) -> bool:
    """Whether a read from a cursor, behind which `first_live` comes first, opens with a tombstone.

    What was deleted between the cursor and a loss is passed over in silence.
    """
    if cursor > topic.head:
        return True
    return topic.gap_below(cursor) is not None or topic.next_announced(cursor + 1) < first_live
