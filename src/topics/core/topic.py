"""One topic: how facts change its watermarks and what is live.

`admit` and `expired_through` decide and change nothing. `apply_*` methods change memory, are given
facts that are already durable as the class asks, and serve live writes and replay alike. They do
not fail: what they need of segments, to tell the bytes and the time of what goes, is loaded before
the fact is committed (`loading`). `live` has the questions, `deleting` the deletes.

Invariant after every step: `1 <= evict_floor <= earliest <= head + 1`, and the ledger adds up:
`head = count + deleted + lost_cap + lost_ttl + lost_crash + skipped + source_trim`.
"""

from __future__ import annotations

import msgspec

from topics.core.ages import AHEAD_MS, Ages
from topics.core.durability import CLASSES
from topics.core.facts import Appended, CursorMoved, Evicted, SeqSkipped
from topics.core.keys import KeyWindow
from topics.core.leases import LeaseBook
from topics.core.live import SEQ_BASE, LiveSeqs
from topics.core.runs import KindRuns, RunSet
from topics.core.seqset import CHUNK_BITS, LAST_BIT, SeqSet
from topics.core.tags import TagIndex
from topics.core.tail import FRAME_OVERHEAD, Tail
from topics.errors import RecordTooLarge, TopicFull, TopicsError
from topics.topic_settings import TopicConfig

__all__ = ["SEQ_BASE", "Ledger", "Topic"]

MAX_DELETED_RUNS = 100_000


class Ledger(msgspec.Struct):
    """Where every seq went that is not live."""

    deleted: int = 0
    lost_cap: int = 0
    lost_ttl: int = 0
    lost_crash: int = 0
    skipped: int = 0
    source_trim: int = 0

    @property
    def gone(self) -> int:
        return (
            self.deleted
            + self.lost_cap
            + self.lost_ttl
            + self.lost_crash
            + self.skipped
            + self.source_trim
        )


class Topic(LiveSeqs):
    __slots__ = (
        "_first",
        "ages",
        "config",
        "cursors",
        "delete_below",
        "delete_version",
        "durability",
        "epoch",
        "evicts",
        "exact_from",
        "handed_out",
        "id",
        "keys",
        "last_consumed",
        "last_read_ts",
        "last_ts",
        "last_write_ts",
        "leases",
        "ledger",
        "name",
        "pending",
        "pending_bytes",
        "reserved",
        "tags",
        "ttl_logged_hi",
        "unflipped",
        "volatile",
        "volatile_from",
    )

    def __init__(
        self, topic_id: int, name: str, epoch: int, config: TopicConfig, *, max_keys: int
    ) -> None:
        super().__init__()
        self.id = topic_id
        self.name = name
        self.epoch = epoch
        self.config = config
        self.durability = CLASSES[config.durability]
        self.evicts = _evicts(config)
        self.handed_out = SEQ_BASE - 1  # last seq given to a write, published or not
        self.pending = 0  # submissions on their way through the log
        self.pending_bytes = 0  # their bytes, as far as a cap or quota counts them
        self.reserved = 0  # durable ceiling of handed-out seqs
        self._first = (0, 0)  # a seq and its time
        self.ttl_logged_hi = 0  # what the log knows of ttl_hi; nothing above it is reclaimed
        self.delete_below = 0
        self.last_ts = 0
        self.ages = Ages()  # while `last_ts` is far ahead of the clock
        self.ledger = Ledger()
        self.exact_from = SEQ_BASE  # below it, deleted and lost seqs cannot be told apart
        self.unflipped = SeqSet()  # deleted seqs whose delete byte is not on disk yet
        self.delete_version = 0
        self.cursors: dict[str, tuple[int, int]] = {}
        self.keys = KeyWindow(max_keys)
        self.tags = TagIndex()
        self.leases = LeaseBook() if config.is_queue else None
        self.volatile = RunSet()  # records of a past ephemeral life: readable until restart
        self.volatile_from = 0 if self.durability.survives_restart else SEQ_BASE
        self.last_write_ts: int | None = None
        self.last_read_ts: int | None = None
        self.last_consumed: int | None = None

    # Writing

    @property
    def headroom(self) -> tuple[int | None, int | None]:
        """Records and bytes that a `reject` topic still takes; None is no limit."""
        config = self.config
        if config.discard != "reject":
            return None, None
        # What is on its way is not visible yet, but it will be.
        records = self.count + self.handed_out - self.head
        nbytes = self.bytes + self.pending_bytes
        return (
            config.cap_records - records if config.cap_records else None,
            config.cap_bytes - nbytes if config.cap_bytes else None,
        )

    def refusal_of(self, count: int, nbytes: int) -> TopicsError | None:
        """Why a `reject` topic does not take so much more; judged before any seq exists."""
        records_left, bytes_left = self.headroom
        cap_records, cap_bytes = self.config.cap_records, self.config.cap_bytes
        if records_left is not None and count > cap_records:
            return RecordTooLarge.for_cap(
                self.name, cap="cap_records", size=count, maximum=cap_records
            )
        if bytes_left is not None and nbytes > cap_bytes:
            return RecordTooLarge.for_cap(
                self.name, cap="cap_bytes", size=nbytes, maximum=cap_bytes
            )
        if (records_left is not None and count > records_left) or (
            bytes_left is not None and nbytes > bytes_left
        ):
            return TopicFull(
                self.name,
                cap_records=cap_records,
                cap_bytes=cap_bytes,
                head_seq=self.head,
                earliest_seq=self.earliest,
            )
        return None

    def apply_appended(self, run: Appended) -> None:
        """Publish records; `run.first_seq` is the next seq, or follows a run of holes."""
        self.tail.extend(run)
        lengths, ts = run.lengths, run.times[-1]
        count = len(lengths)
        if count == 1:
            nbytes = lengths[0] - FRAME_OVERHEAD - run.name_lengths[0]
        else:
            nbytes = sum(lengths) - sum(run.name_lengths) - FRAME_OVERHEAD * count
        if not self.count:
            self.earliest = run.first_seq
        self.count += count
        self.bytes += nbytes
        self.head = head = run.first_seq + count - 1
        self.handed_out = max(self.handed_out, head)
        self.last_ts = max(self.last_ts, ts)
        self.last_write_ts = ts
        if run.tags is not None and self.tags.loaded:
            for seq, tag in enumerate(run.tags, run.first_seq):
                if tag is not None:
                    self.tags.add(tag, seq)
        earliest = self.earliest
        if earliest <= self.cap_hi or earliest <= self.ttl_hi:  # floors restored before records
            self.lose(ttl_hi=self.ttl_hi, cap_hi=self.cap_hi)
        if self.config.cap_records or self.config.cap_bytes:
            self.enforce_caps()

    def apply_skipped(self, fact: SeqSkipped) -> None:
        """Holes `lo..hi` at the head: seqs no record got, or records that are known to be lost."""
        lo = max(fact.lo, self.head + 1)
        if fact.hi < lo:
            return
        count = fact.hi - lo + 1
        if fact.kind == SeqSkipped.UNASSIGNED:
            self.ledger.skipped += count
        elif fact.kind == SeqSkipped.SOURCE_TRIM:
            self.ledger.source_trim += count
        else:
            self.ledger.lost_crash += count
        self.head = fact.hi
        self.handed_out = max(self.handed_out, self.head)
        if fact.hi >= self.evict_floor:
            self.runs.add(max(lo, self.evict_floor), fact.hi, fact.kind)
        if not self.count:
            self.earliest = self.head + 1

    # Losing

    def is_ahead_of(self, now_ms: int) -> bool:
        """Whether a wrong clock set the topic's time: it tells nothing of how old records are."""
        return self.last_ts > now_ms + AHEAD_MS

    def expired_through(self, now_ms: int, *, aged: int = 0, ttl_ms: int | None = None) -> int:
        """Highest live seq past its TTL; `ttl_hi` when nothing new has expired.

        Seqs up to `aged` are past it whatever their times say. `ttl_ms` is that of the topic
        unless another one is tried.
        """
        if ttl_ms is None:
            ttl_ms = self.config.ttl_ms
        if not ttl_ms or not self.count:
            return self.ttl_hi
        if now_ms - self._first_time() > ttl_ms:
            aged = max(aged, self.last_before(now_ms - ttl_ms))
        if aged < self.earliest:
            return self.ttl_hi
        return max(self.ttl_hi, self.last_live_at_or_below(aged))

    def _first_time(self) -> int:
        """The time of the first live record, remembered: it is asked for with every read."""
        seq, ts = self._first
        if seq != self.earliest:
            seq, ts = self._first = self.earliest, self.time_of(self.earliest)
        return ts

    def apply_evicted(self, fact: Evicted) -> None:
        """Raise the floors; what they pass is lost. Older floors than ours change nothing."""
        self.ttl_logged_hi = max(self.ttl_logged_hi, fact.ttl_hi)
        self.lose(ttl_hi=fact.ttl_hi, cap_hi=0)
        self.lose(ttl_hi=0, cap_hi=fact.cap_hi)

    def enforce_caps(self) -> None:
        """Drop the oldest records until both caps hold (`discard: old` only)."""
        if self.count:
            floor = self.cap_floor(self.config)
            if floor > self.cap_hi:
                self.lose(ttl_hi=0, cap_hi=floor)

    def cap_floor(self, config: TopicConfig, *, count: int = 0, nbytes: int = 0) -> int:
        """What `cap_hi` has to be under a configuration, with so much more to come."""
        if config.discard != "old":
            return self.cap_hi
        over = self.count + count - config.cap_records if config.cap_records else 0
        over_bytes = self.bytes + nbytes - config.cap_bytes if config.cap_bytes else 0
        if over <= 0 and over_bytes <= 0:
            return self.cap_hi
        return max(self.cap_hi, self._cap_cut(over, over_bytes))

    @property
    def counts_volatile(self) -> bool:
        """Whether records of a past ephemeral life may still count; after a restart they do not."""
        return any(hi >= self.earliest for _, hi in self.volatile)

    def _cap_cut(self, over: int, over_bytes: int) -> int:
        """The seq through which the oldest must go."""
        if over_bytes <= 0:
            left = over
            for lo, hi in self.extents(self.earliest, self.head):
                if hi - lo + 1 >= left:
                    return lo + left - 1
                left -= hi - lo + 1
        cut, first = 0, self.earliest
        while first | LAST_BIT <= self.head:
            chunk = first >> CHUNK_BITS
            count, nbytes = self.weights.get(chunk) or self.weigh_chunk(chunk)
            if over <= count and over_bytes <= nbytes:
                break
            over, over_bytes = over - count, over_bytes - nbytes
            cut, first = first | LAST_BIT, (first | LAST_BIT) + 1
        for seq, nbytes in self.sizes(first, self.head):
            cut = seq
            over -= 1
            over_bytes -= nbytes
            if over <= 0 and over_bytes <= 0:
                break
        return cut

    def lose(self, *, ttl_hi: int, cap_hi: int) -> None:
        """Everything live at or below the new floor is gone, involuntarily."""
        through = max(ttl_hi, cap_hi)
        lowest, old_floor = self.earliest, self.evict_floor
        if through >= lowest:
            count, nbytes = self.weigh_below(through + 1)
            self.forget_weights_through(through)
            self.count -= count
            self.bytes -= nbytes
            if ttl_hi >= cap_hi:
                self.ledger.lost_ttl += count
            else:
                self.ledger.lost_cap += count
            if count:
                self.forget_leases_between(lowest, through)
                self.tags.note_dead(count)
        self.ttl_hi = max(self.ttl_hi, ttl_hi)
        self.cap_hi = max(self.cap_hi, cap_hi)
        if self.evict_floor == old_floor and through < lowest:
            return
        self.floor_ts = max(self.floor_ts, self._time_at_most(through))
        self.runs.discard_through(self.evict_floor - 1)
        self.advance(lowest)

    def forget_weights_through(self, seq: int) -> None:
        """All that is live up to a seq is about to go."""
        if not len(self.weights):
            return
        chunk = min(seq, self.head) >> CHUNK_BITS
        if self.weights.get(chunk) is not None:
            lo = max(self.earliest, chunk << CHUNK_BITS)
            self.weights.take_off(chunk, *self.weigh_part(lo, min(seq, self.head)))
        self.weights.forget(self.earliest, (chunk << CHUNK_BITS) - 1)

    def _time_at_most(self, seq: int) -> int:
        """The time of a seq; if no slot tells any more, the newest it can have been."""
        try:
            return self.time_of(seq)
        except KeyError:
            return self.last_ts

    def advance(self, lowest: int) -> None:
        """Move `earliest` after removals that may have reached the front."""
        self.find_earliest(lowest)
        if self.earliest > self.tail.first and len(self.tail):
            dead = min(self.earliest, self.tail.end) - self.tail.first
            # Cutting columns moves what is left: wait until it is worth it.
            if dead >= 4096 and dead * 2 >= len(self.tail):
                self.tail.drop_front(self.earliest)

    # What a restart forgets

    def wipe(self, head: int) -> None:
        """Restart of an ephemeral topic: nothing at or below `head` is left."""
        self.head = self.handed_out = head
        self.reserved = max(self.reserved, head)
        self.count = self.bytes = 0
        self.cap_hi = head
        self.earliest = head + 1
        self.runs = KindRuns()
        self.deleted = SeqSet()
        self.unflipped = SeqSet()
        self.weights.clear()
        self.exact_from = head + 1
        self.floor_ts = max(self.floor_ts, self.last_ts)
        # Also keys from when the topic was logged: a key must not answer for records that are gone.
        self.keys.clear()
        self.cursors.clear()
        self.tags.clear()
        self.tail = Tail(head + 1)
        self.volatile = RunSet()
        self.volatile_from = head + 1
        self.ages = Ages()
        self.forget_leases()

    def forget_leases(self) -> bool:
        """Restart of a queue without durable leases: every live job is as if never handed out.

        Whether there was anything to forget.
        """
        if self.leases is None:
            return False
        was_used = self.leases.claim_cursor > SEQ_BASE or self.leases.dead_lettered > 0
        self.leases = LeaseBook()
        return was_used

    def exact_from_now_on(self) -> int:
        """From where on a snapshot names what was deleted: the newest runs. Below, delete bytes
        tell a restart, which are due with that snapshot; records of an ephemeral life have none."""
        volatile = (lo for lo, hi in self.volatile_spans() if hi >= self.earliest)
        limit = max(next(volatile, self.head + 1), self.earliest)
        return max(self.exact_from, min(self.deleted.start_of_newest(MAX_DELETED_RUNS), limit))

    def forget_deleted_below(self, floor: int) -> None:
        """Bound the memory of deletes: what was deleted below `floor`, and not lost, is forgotten
        as far as nothing is live there, nor a delete byte due."""
        floor = min(floor, self.earliest)
        if floor > self.exact_from:
            self.deleted.forget_below(floor, keep=self.unflipped)
            self.exact_from = floor

    def volatile_spans(self) -> RunSet:
        """Seqs of all ephemeral lives: a restart finds none of their records."""
        spans = RunSet(self.volatile)
        if self.volatile_from and self.head >= self.volatile_from:
            spans.add(self.volatile_from, self.head)
        return spans

    def forget_leases_between(self, lo: int, hi: int) -> None:
        """The jobs of `lo..hi` are gone."""
        leases = self.leases
        if leases is None or not leases.deliveries:
            return
        if hi - lo < len(leases.deliveries):
            leases.forget(range(lo, hi + 1))
        else:
            leases.forget([seq for seq in leases.deliveries if lo <= seq <= hi])

    # Cursors and configuration

    def apply_cursor(self, fact: CursorMoved) -> None:
        if fact.present:
            self.cursors[fact.name] = (fact.seq, fact.ts)
        else:
            self.cursors.pop(fact.name, None)

    def apply_config(self, config: TopicConfig) -> None:
        self.config = config
        self.evicts = _evicts(config)
        was, self.durability = self.durability, CLASSES[config.durability]
        if was is not self.durability:
            if not was.survives_restart:
                self.reserved = self.head  # its wide blocks are not for the classes that skip few
                if self.head >= self.volatile_from:
                    self.volatile.add(self.volatile_from, self.head)
            self.volatile_from = 0 if self.durability.survives_restart else self.head + 1
        if config.is_queue and self.leases is None:
            self.leases = LeaseBook()
        self.enforce_caps()


def _evicts(config: TopicConfig) -> bool:
    """Whether records may go by themselves."""
    return bool(config.cap_records or config.cap_bytes or config.ttl_ms)
