"""Replay: what the log says after the snapshot, put through the same `apply` as live changes.

Generations come in order; within one, each topic's frames in log order, then those that belong to
no topic. Frames the snapshot already contains are skipped, by the last frame noted for each topic:
an old configuration run again would evict records that are live. A record whose seq does not
follow the one before it means a lost or misdirected write, and the start is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

import msgspec

from topics.core.catalog import Catalog
from topics.core.facts import (
    Appended,
    CheckpointMarked,
    ClosedCleanly,
    ConfigUpdated,
    Deleted,
    Fact,
    Forwarded,
    HeadReserved,
    RouterCreated,
    RouterDeleted,
    SeqSkipped,
    StageCommitted,
    TierFlipped,
    TopicCreated,
    TopicDeleted,
)
from topics.core.topic import SEQ_BASE, Topic
from topics.engine import effects
from topics.engine.arenas import Arenas
from topics.engine.reads.history import segments_of
from topics.engine.reads.tagging import TagLoader
from topics.engine.recovery.copied_records import Copier, Originals
from topics.engine.recovery.lost_creations import Recreated, recreated
from topics.engine.recovery.lost_tails import LostTails
from topics.engine.recovery.next_seqs import ceiling_of, restart_ephemeral
from topics.errors import RefusedToOpen
from topics.storage.crashpoints import crashpoint
from topics.storage.wal.scan import GenerationScan, GroupScan

PROGRESS_EVERY = 256


class Contained(msgspec.Struct):
    """What the snapshot already holds: frames up to these, in its own generation."""

    generation: int = 0
    next_topic_id: int = 1
    agnostic_lfn: int = 0
    topic_lfn: Mapping[int, int] = msgspec.field(default_factory=dict)

    def holds(self, generation: int, lfn: int, topic_id: int) -> bool:
        if generation < self.generation:
            return True
        if generation > self.generation:
            return False
        return lfn <= (self.topic_lfn.get(topic_id, 0) if topic_id else self.agnostic_lfn)


class Replay:
    """Applies scanned groups to a catalog. `salvage` turns a seq gap into announced loss."""

    def __init__(
        self,
        catalog: Catalog,
        contained: Contained,
        originals: Originals,
        arenas: Arenas,
        tags: TagLoader,
        *,
        salvage: bool = False,
        progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        self._catalog = catalog
        self._contained = contained
        self._originals = originals
        self._copier = Copier(arenas, originals)
        self._tags = tags
        self._salvage = salvage
        self._progress = progress
        self._dropped: set[int] = set()
        self._done = self._total = 0
        self.repaired: list[Fact] = []  # what salvage decided, to be logged by the new run
        self.recreated: list[Recreated] = []  # topics that salvage made again
        self.boot_ids: dict[int, bytes] = {}  # per topic: of the run that last logged for it
        self.changed: set[int] = set()  # topics that are other than the snapshot says
        self.graveyard: dict[int, Topic] = {}
        self.lost_tails = LostTails(contained.holds, (router.dest_id for router in catalog.routers))

    def run(self, scans: Iterable[GroupScan]) -> None:
        generations: dict[int, list[GenerationScan]] = {}
        for scan in scans:
            for generation in scan.generations:
                generations.setdefault(generation.generation, []).append(generation)
                self._total += len(generation.entries)
                for _, fact in generation.entries:
                    if isinstance(fact, TopicDeleted):
                        self._dropped.add(fact.topic_id)
        for parts in generations.values():
            parts.sort(key=lambda part: part.shard)
        if self._salvage:
            self._recreate([part for number in sorted(generations) for part in generations[number]])
        for number in sorted(generations):
            parts = generations[number]
            if number > self._contained.generation:
                self._restart()
            self._originals.index(number, parts, self._contained.holds)
            self._run_generation(number, parts)
        live = set(self._catalog.by_id)
        self._catalog.routers.drop_orphans(live)
        if self._salvage:
            self.lost_tails.weigh(chain.from_iterable(generations.values()), self._catalog)

    def _restart(self) -> None:
        """What the start of a run took from its topics: no frame says so, the configuration does.

        A topic that was made durable since must not get it back with the next start.
        """
        for topic in self._catalog:
            if not topic.durability.survives_restart:
                restart_ephemeral(topic)
            elif not topic.config.leases_durable and topic.forget_leases():
                self.changed.add(topic.id)

    def _run_generation(self, number: int, parts: list[GenerationScan]) -> None:
        agnostic: list[Fact] = []
        passes: list[Forwarded] = []
        for part in parts:
            for lfn, fact in part.entries:
                self._done += 1
                if self._done % PROGRESS_EVERY == 0:
                    self._progress(self._done / self._total)
                    crashpoint("rec.mid_replay")
                topic_id = getattr(fact, "topic_id", 0)
                if self._contained.holds(number, lfn, topic_id):
                    continue  # a pass among them is in the router's captured position as well
                if isinstance(fact, Forwarded):
                    passes.append(fact)
                if topic_id:
                    if self._salvage:
                        self._note_seqs(fact, topic_id, (number, lfn))
                    self._apply(fact, topic_id, number, part.boot_id)
                elif not isinstance(fact, CheckpointMarked | ClosedCleanly):
                    agnostic.append(fact)
        self._apply_agnostic(agnostic, number)
        heads = {topic.id: _reached(topic) for topic in self._catalog}
        self._catalog.routers.settle(passes, heads)
        for part in parts:
            closed = part.closed
            if closed is not None:
                if self._salvage:
                    self._reach_heads(closed, number)
                self._settle_heads(closed)

    # Facts of one topic

    def _apply(self, fact: Fact, topic_id: int, generation: int, boot_id: bytes) -> None:
        topic = self._catalog.by_id.get(topic_id)
        if topic is None and not isinstance(fact, TopicCreated):
            self._check_unknown(topic_id)
            return
        if topic_id in self._dropped and not isinstance(fact, TopicCreated | TopicDeleted):
            return  # its files may be gone; what other topics need of its records is indexed
        self.boot_ids[topic_id] = boot_id
        self.changed.add(topic_id)
        match fact:
            case Appended():
                assert topic is not None
                run = self._following(topic, fact)
                if run is not None:
                    self._catalog.apply(run, generation=generation)
            case Forwarded():
                assert topic is not None
                self._forward(topic, fact, generation)
            case TierFlipped():
                assert topic is not None
                segments_of(topic).move(fact.first_seq, fact.tier)
            case Deleted():
                assert topic is not None
                if fact.match is not None:
                    effects.run(self._tags.load(topic))
                self._catalog.apply(fact, generation=generation)
            case TopicDeleted():
                assert topic is not None
                self.graveyard[topic_id] = topic
                self._originals.bury(topic)
                self._catalog.apply(fact, generation=generation)
            case _:
                self._catalog.apply(fact, generation=generation)

    def _check_unknown(self, topic_id: int) -> None:
        if self._salvage or topic_id in self._dropped or topic_id < self._contained.next_topic_id:
            return  # dropped, as far as can be told
        raise RefusedToOpen(
            "seq_gap",
            message=f"the log has records of topic {topic_id}, which it never created; "
            "part of the log is missing. Restore the log, or set TOPICS_WAL_REPAIR=salvage to go "
            "on without its settings",
            file="wal",
        )

    def _following(self, topic: Topic, run: Appended) -> Appended | None:
        """The part of a run that comes next; None when all of it is known already."""
        if run.last_seq <= topic.head:
            return None
        if run.first_seq <= topic.head:
            return _without_front(run, topic.head + 1 - run.first_seq)
        if run.first_seq > topic.head + 1:
            self._gap(topic, run.first_seq)
        return run

    # Salvage

    def _recreate(self, parts: list[GenerationScan]) -> None:
        """Make the topics whose creation is lost, before anything is applied to them."""
        self.recreated = recreated(
            parts,
            is_known=lambda topic_id: topic_id < self._contained.next_topic_id,
            taken=self._catalog.by_name,
        )
        for made in self.recreated:
            self.changed.add(made.fact.topic_id)
            self._catalog.apply(made.fact, generation=0)
            if made.may_be_volatile:
                self.lost_tails.leave_volatile(self._catalog.by_id[made.fact.topic_id])
            if not made.is_logged:
                self.repaired.append(made.fact)

    def _note_seqs(self, fact: Fact, topic_id: int, place: tuple[int, int]) -> None:
        """Before a fact is applied: whether it tells which seqs were given out before it."""
        topic = self._catalog.by_id.get(topic_id)
        if topic is None:
            if isinstance(fact, TopicCreated):
                self.lost_tails.settle(topic_id, *place)
            return
        if topic_id in self._dropped:
            return
        is_volatile = not topic.durability.survives_restart
        match fact:
            case HeadReserved() if is_volatile:
                self.lost_tails.settle(topic_id, *place)
            case Appended() | Forwarded(runs=(_, *_)) if not is_volatile:
                self.lost_tails.settle(topic_id, *place)
            case SeqSkipped() if fact.hi > topic.head:
                # A run that ends below the head was found by an earlier salvage, which may have
                # died before it had logged its other doubts.
                self.lost_tails.settle(topic_id, *place)
                if fact.lo > topic.head + 1:
                    self._gap(topic, fact.lo)
            case ConfigUpdated() if is_volatile:
                self.lost_tails.leave_volatile(topic)
            case _:
                pass

    def _reach_heads(self, closed: ClosedCleanly, generation: int) -> None:
        """A clean stop told every head: what lies between is lost, and nothing behind it."""
        for topic_id, head in closed.heads:
            topic = self._catalog.by_id.get(topic_id)
            if topic is None or topic_id in self._dropped:
                continue
            self.lost_tails.settle(topic_id, generation)
            if topic.durability.survives_restart and head > topic.head:
                self.changed.add(topic_id)
                self._gap(topic, head + 1)

    def _gap(self, topic: Topic, first_seq: int) -> None:
        lost = SeqSkipped(topic.id, topic.last_ts, topic.head + 1, first_seq - 1, SeqSkipped.REPAIR)
        if not self._salvage:
            raise RefusedToOpen(
                "seq_gap",
                message=f"topic {topic.name!r} goes from seq {topic.head} to {first_seq} in the "
                "log; records between are missing. Restore the log, or set "
                "TOPICS_WAL_REPAIR=salvage to give them up",
                file="wal",
            )
        topic.apply_skipped(lost)
        self.repaired.append(lost)

    def _forward(self, topic: Topic, fact: Forwarded, generation: int) -> None:
        if not topic.durability.survives_restart:
            return  # its copies died with the process; only the router's place counts
        count = sum(run[1] for run in fact.runs)
        last = fact.dest_first + count - 1
        if not count or last <= topic.head:
            return
        if fact.dest_first > topic.head + 1:
            self._gap(topic, fact.dest_first)
        for part in self._copier.copies(topic, fact, generation):
            self._catalog.apply(part, generation=generation)

    # Facts of no topic

    def _apply_agnostic(self, facts: list[Fact], generation: int) -> None:
        for fact in facts:
            match fact:
                case StageCommitted():
                    self._complete(fact, generation)
                case RouterCreated() | RouterDeleted():
                    self._catalog.apply(fact, generation=generation)
                case _:
                    pass

    def _complete(self, fact: StageCommitted, generation: int) -> None:
        """A committed epoch is whole: what had not reached the log comes from its stages."""
        missing = [
            (topic, first, count)
            for topic_id, first, count in fact.topics
            if topic_id not in self._dropped
            and (topic := self._catalog.by_id.get(topic_id)) is not None
            and topic.head < first + count - 1
        ]
        if missing:
            batches = self._originals.staged(fact)
            for topic, first, _ in missing:
                self.changed.add(topic.id)
                run = self._copier.staged_run(topic, fact, batches[topic.name], first)
                following = self._following(topic, run)
                if following is not None:
                    self._catalog.apply(following, generation=generation)
        self._catalog.apply(fact, generation=generation)

    def _settle_heads(self, closed: ClosedCleanly) -> None:
        for topic_id, head in closed.heads:
            topic = self._catalog.by_id.get(topic_id)
            if topic is None:
                continue
            if topic.reserved != head:
                self.changed.add(topic_id)
            topic.reserved = head
            if not topic.durability.survives_restart:
                topic.apply_skipped(
                    SeqSkipped(topic_id, closed.ts, SEQ_BASE, head, SeqSkipped.POWER_LOSS)
                )


def _reached(topic: Topic) -> int:
    """The head of the run just replayed; of an ephemeral topic the log knows only a ceiling."""
    return topic.head if topic.durability.survives_restart else ceiling_of(topic)


def _without_front(run: Appended, count: int) -> Appended:
    return msgspec.structs.replace(
        run,
        first_seq=run.first_seq + count,
        offsets=run.offsets[count:],
        lengths=run.lengths[count:],
        times=run.times[count:],
        name_lengths=run.name_lengths[count:],
        flags=run.flags[count:],
        tags=None if run.tags is None else run.tags[count:],
    )
