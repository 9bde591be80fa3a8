"""Dead letters: jobs that were delivered too often move to another topic, and back on request.

Either way the copy is appended first and the original deleted then, so a crash in between may
leave both, never neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from topics.batch import RecordBatch
from topics.core.topic import Topic
from topics.engine.effects import Gate, Op
from topics.engine.engine import Engine
from topics.engine.retention import retain
from topics.errors import InvalidRequest, RecordTooLarge, TopicFull, TopicsError
from topics.values import Failure, Record, Redriven
from topics.wire import letters as wire_letters
from topics.wire.jsonbytes import drop_members, splice_members

LETTERS_AT_ONCE = 256
REDRIVE_PAGE = 256
RETRY_UNREADABLE_MS = 5000
"""When a job that cannot be read is tried again: its file may have been restored by then."""


class DeadLetters:
    """Moves letters of all queues of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kernel = engine.kernel
        self._at_once: dict[int, int] = {}  # queue id -> letters to try next, after a refusal
        self._redriving: dict[int, Gate] = {}
        engine.lifecycle.on_dropped.append(self._forget)

    def _forget(self, topic_id: int) -> None:
        """The topic was dropped."""
        self._at_once.pop(topic_id, None)

    def bury(self, topic: Topic) -> Op[None]:
        """Move spent jobs. What cannot be moved now stays, undelivered, until the next claim.

        A topic that refused several letters is asked with one; each it takes doubles the next try.
        """
        leases = topic.leases
        assert leases is not None
        while leases.spent and topic.config.dead_letter is not None:
            most = self._at_once.pop(topic.id, LETTERS_AT_ONCE)
            seqs = [leases.spent.popleft() for _ in range(min(most, len(leases.spent)))]
            records = yield from self._readable(topic, seqs)
            moved = yield from self._move(topic, records)
            self._kernel.require(topic)  # the queue may have been dropped meanwhile
            if moved:
                if most < LETTERS_AT_ONCE:
                    self._at_once[topic.id] = most * 2
                continue
            leases.spent.extendleft(record.seq for record in reversed(records))
            self._at_once[topic.id] = 1
            if most == 1:
                return

    def _readable(self, topic: Topic, seqs: list[int]) -> Op[list[Record]]:
        """The jobs of these that live and can be read; unreadable ones are put off."""
        leases = topic.leases
        assert leases is not None
        live = sorted(seq for seq in seqs if topic.is_live(seq))
        try:
            found = yield from self._engine.records(topic, live)
        except TopicsError:
            found = {}
        ready_at = self._kernel.clock.now_ms() + RETRY_UNREADABLE_MS
        for seq in live:
            if seq not in found and topic.is_live(seq):
                leases.put_off(seq, ready_at)
        return [found[seq] for seq in live if seq in found and topic.is_live(seq)]

    def _move(self, topic: Topic, records: list[Record]) -> Op[bool]:
        """Copy, then delete; False when it failed and the jobs have to stay."""
        leases, dead_letter = topic.leases, topic.config.dead_letter
        assert leases is not None
        if not records or dead_letter is None:
            return not records
        counts, failures = leases.deliveries, leases.failures
        letters = [
            _letter(topic.name, record, counts.get(record.seq, 0), failures.get(record.seq))
            for record in records
        ]
        try:
            yield from self._engine.append(dead_letter, _joined(letters))
            moved = yield from self._engine.delete_seqs(topic, [record.seq for record in records])
        except TopicsError:
            return False
        leases.dead_lettered += moved
        return True

    # Back into the queue

    def redrive(
        self, topic: Topic, letters: Topic, most: int, seqs: Sequence[int] | None = None
    ) -> Op[Redriven]:
        """Put up to `most` letters of a queue back into it, or those that `seqs` names; oldest
        first, one caller at a time."""
        while (busy := self._redriving.get(letters.id)) is not None:
            yield busy
        gate = self._redriving[letters.id] = Gate()
        try:
            return (yield from self._redrive(topic, letters, most, seqs))
        finally:
            del self._redriving[letters.id]
            gate.open()

    def _redrive(
        self, topic: Topic, letters: Topic, most: int, seqs: Sequence[int] | None
    ) -> Op[Redriven]:
        yield from self._engine.catch_up(letters)
        yield from retain(self._kernel, letters)
        moved = 0
        cursor, end = letters.earliest - 1, letters.head
        if seqs is not None:  # then the cursor is a place among them
            most, cursor, end = len(seqs), 0, len(seqs)
        while cursor < end:
            records: Sequence[Record]
            if seqs is None:
                page = yield from self._engine.page(letters, cursor, REDRIVE_PAGE)
                records, cursor = page.records, page.next_from_seq
            else:
                part, cursor = seqs[cursor : cursor + REDRIVE_PAGE], cursor + REDRIVE_PAGE
                live = [seq for seq in part if letters.is_live(seq)]
                found = yield from self._engine.records(letters, live)
                records = [found[seq] for seq in live if seq in found]
            for record in records:
                # Looked at again: during the move of the letter before, this one may have died.
                if not _is_letter_of(record, topic.name) or not letters.is_live(record.seq):
                    continue
                if moved == most:
                    return Redriven(topic.name, letters.name, moved, True)
                try:
                    yield from self._engine.append(topic.name, _redriven(record), create=False)
                except (TopicFull, RecordTooLarge):
                    if not moved:
                        raise
                    return Redriven(topic.name, letters.name, moved, True)
                yield from self._engine.delete_seqs(letters, [record.seq])
                moved += 1
        return Redriven(topic.name, letters.name, moved, False)


def letters_of(topic: Topic, source: str | None) -> str:
    """The topic to redrive from."""
    chosen = source or topic.config.dead_letter
    if chosen is None:
        raise InvalidRequest(f'queue "{topic.name}" has no dead_letter: say from which topic')
    return chosen


def _letter(queue: str, record: Record, deliveries: int, failure: Failure | None) -> RecordBatch:
    """The copy that goes to the dead letters; meta that is no object is replaced."""
    meta = record.raw_meta or b"{}"
    if not meta.startswith(b"{"):
        meta = b"{}"
    told = wire_letters.members(queue, deliveries, record.seq, failure)
    meta = splice_members(drop_members(meta, wire_letters.MEMBERS), told)
    return RecordBatch([record.raw], [meta], [record.tag], [record.node])


def _joined(letters: Sequence[RecordBatch]) -> RecordBatch:
    batch = RecordBatch([], [], [], [])
    assert batch.metas is not None
    assert batch.tags is not None
    assert batch.nodes is not None
    for letter in letters:
        batch.datas += letter.datas
        batch.metas += letter.metas or [b""]
        batch.tags += letter.tags or [None]
        batch.nodes += letter.nodes or [None]
    return batch


def _is_letter_of(record: Record, queue: str) -> bool:
    meta = record.meta
    return isinstance(meta, dict) and meta.get(wire_letters.FROM) == queue


def _redriven(record: Record) -> RecordBatch:
    meta = drop_members(record.raw_meta or b"{}", wire_letters.MEMBERS)
    return RecordBatch([record.raw], [b"" if meta == b"{}" else meta], [record.tag], [record.node])
