"""Erasures: a delete whose bytes go, too. What begins one, and what tells how far it is.

delete   as any other delete, and durable whatever the class of the topic
note     the ledger says durably that the erasure has begun
work     in the maintenance lane, after a restart as well  `engine.upkeep.erasing`
receipt  the last step: the ledger says what was done
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial

import msgspec

from topics.core.facts import Match
from topics.core.topic import SEQ_BASE, Topic
from topics.engine.effects import PAUSE, Io, Op
from topics.engine.kernel import Kernel
from topics.engine.reads.reading import Query, Reader
from topics.engine.reads.views import dead_runs, merged
from topics.engine.writes.deleting import Deleter, check_before
from topics.errors import Internal, InvalidRequest
from topics.storage.erasures import BadLedger, Begun, Erasure, ErasureLedger, ErasureScope, TagHash
from topics.values import ErasureState

PROBES = 16
"""Payloads that are looked for in all files at the end."""
SEQS_PER_STEP = 1 << 16
LEAST_PROBE = 16
"""Shorter payloads are found by chance."""
_COPY = re.compile(r"topic (\S+), (?:to which router (\S+) copies|which takes .*)")
"""An entry of `unreached` with names that not every key may see."""
UNSEEN_COPY = "a topic that this key may not use"


def _anything(_: str) -> bool:
    return True


class Running(msgspec.Struct):
    """An erasure under way."""

    begun: Begun
    probes: list[bytes] = msgspec.field(default_factory=list)
    phase: str = "waiting"
    segments: int = 0
    segments_done: int = 0

    def state(self) -> ErasureState:
        """How far it is."""
        begun = self.begun
        return ErasureState(
            erasure=begun.number,
            topic=begun.topic,
            state="running",
            phase=self.phase,
            deleted=begun.deleted,
            begun_ms=begun.begun_ms,
            ended_ms=None,
            segments=self.segments,
            segments_done=self.segments_done,
            receipt=None,
        )


class ErasureBook:
    """The erasures of a store: those under way in memory, all of them in the ledger."""

    def __init__(self, ledger: ErasureLedger, store_id: str) -> None:
        self.ledger = ledger
        self.store_id = store_id
        self.running: dict[int, Running] = {}
        self.pending: set[int] = set()
        """Numbers whose erasure is not noted yet."""
        self._next = 0

    def resume(self) -> list[str]:
        """Go on with what an earlier run began; returns what is wrong with notes that are not
        intact. Their numbers are not used again."""
        self._next = self.ledger.next_number()
        warnings = []
        for number in self.ledger.begun_numbers():
            try:
                self.running[number] = Running(self.ledger.note(number))
            except BadLedger as error:
                warnings.append(f"an erasure that has begun cannot go on: {error}")
        return warnings

    def take_number(self) -> int:
        """A number for an erasure; `pending` has it until the erasure runs or could not begin."""
        number, self._next = self._next, self._next + 1
        self.pending.add(number)
        return number

    def ready(self) -> list[Running]:
        """The erasures to work on, in the order of their receipts: none that has still to begin
        may come before them."""
        least = min(self.pending, default=self._next)
        return [run for number, run in sorted(self.running.items()) if number < least]


class Erasing:
    """The calls about erasures; `book` is None for a log without a directory of its own."""

    def __init__(
        self, kernel: Kernel, deleter: Deleter, reader: Reader, book: ErasureBook | None
    ) -> None:
        self._kernel = kernel
        self._deleter = deleter
        self._reader = reader
        self._book = book

    def begin(self, name: str, *, before: int | None, match: Match | None) -> Op[ErasureState]:
        """Delete what the selector reaches, durably, and begin to remove the bytes."""
        book, kernel = self._book, self._kernel
        if book is None:
            raise InvalidRequest("this log has no files of its own: use delete")
        if before is None and match is None:
            raise InvalidRequest("say what to erase: before_seq, match, or both")
        check_before(before)
        removed = None
        while removed is None:  # a topic that was dropped before may have a successor
            topic = kernel.topic(name)
            probes = yield from self._probes(topic, before, match)
            bound = topic.head  # what the delete reaches above it is in `erased`
            removed = yield from self._deleter.delete_from(topic, before, match)
        delete_version = topic.delete_version  # later deletes may miss `erased`
        erased = yield from deleted_runs(topic)
        shard = kernel.committer.shard_of(topic.id)
        number = book.take_number()
        begun = Begun(
            number=number,
            store_id=book.store_id,
            topic=name,
            topic_id=topic.id,
            scope=_scope(before, match),
            begun_ms=kernel.clock.now_ms(),
            deleted=removed.deleted,
            bound=bound,
            delete_version=delete_version,
            erased=erased,
        )
        try:
            yield Io(partial(kernel.committer.sync, shard))
            yield Io(partial(book.ledger.begin, begun))
            running = book.running[number] = Running(begun, probes)
        finally:
            book.pending.discard(number)
        return running.state()

    def _probes(self, topic: Topic, before: int | None, match: Match | None) -> Op[list[bytes]]:
        """Some of the payloads that are going to be erased."""
        last = topic.head if before is None else min(before - 1, topic.head)
        if last < topic.earliest:
            return []
        query = Query(after=topic.earliest - 1, limit=PROBES, match=match, to_seq=last)
        page = yield from self._reader.read(topic.name, query)
        return [record.raw for record in page.records if len(record.raw) >= LEAST_PROBE]

    def of_topic(
        self, name: str, *, allows: Callable[[str], bool] = _anything
    ) -> Op[list[ErasureState]]:
        """The erasures of all topics that ever had a name; the oldest first. Receipts name only
        those other topics and routers that `allows` says."""
        if self._book is None:
            return []
        found = yield from self._ended(name, allows)
        ended = {state.erasure for state in found}
        return found + [
            run.state()
            for number, run in sorted(self._book.running.items())
            if run.begun.topic == name and number not in ended
        ]

    def _ended(self, name: str, allows: Callable[[str], bool]) -> Op[list[ErasureState]]:
        assert self._book is not None
        receipts = self._book.ledger.receipts

        def ended() -> list[ErasureState]:
            return [_ended(receipt, allows) for receipt in receipts() if receipt.topic == name]

        try:
            states: list[ErasureState] = yield Io(ended)
        except (BadLedger, OSError) as error:
            message = f"the ledger of erasures does not hold: {error}; restore meta/erasures"
            raise Internal(message) from error
        return states


def _scope(before: int | None, match: Match | None) -> ErasureScope:
    if match is None:
        return ErasureScope(before)
    return ErasureScope(
        before, TagHash.of(match.value, salt=os.urandom(16), is_prefix=match.is_prefix)
    )


def _ended(receipt: Erasure, allows: Callable[[str], bool]) -> ErasureState:
    told = [_told(place, allows) for place in receipt.unreached]
    return ErasureState(
        erasure=receipt.number,
        topic=receipt.topic,
        state="done",
        phase="done",
        deleted=receipt.deleted,
        begun_ms=receipt.begun_ms,
        ended_ms=receipt.ended_ms,
        segments=len(receipt.rewritten),
        segments_done=len(receipt.rewritten),
        receipt=msgspec.to_builtins(receipt) | {"unreached": list(dict.fromkeys(told))},
    )


def _told(place: str, allows: Callable[[str], bool]) -> str:
    copy = _COPY.fullmatch(place)
    if copy is None or all(name is None or allows(name) for name in copy.groups()):
        return place
    return UNSEEN_COPY


def deleted_runs(topic: Topic) -> Op[list[tuple[int, int]]]:
    """The ranges of a topic that deletes removed, in steps."""
    found: list[tuple[int, int]] = []
    for start in range(SEQ_BASE, topic.head + 1, SEQS_PER_STEP):
        end = min(start + SEQS_PER_STEP - 1, topic.head)
        for lo, hi, kind in merged(dead_runs(topic, start, end)):
            if kind != "deleted":
                continue
            if found and found[-1][1] + 1 == lo:
                found[-1] = found[-1][0], hi
            else:
                found.append((lo, hi))
        yield PAUSE
    return found
