"""One topic: its watermarks, what is live, and how facts change both.

Theory of operation. A seq is *live* when it has a record, lies above the floor (`max(cap_hi,
ttl_hi)`), was not deleted and is not inside a run of holes. Nothing here is stored per record
except the tail's columns: deletes are runs of seqs, losses are two floors and a few runs, and
records below the tail live in segments that the topic asks about through `History`.

`plan_*` methods are pure. `apply_*` methods change memory, are given facts that are already
durable as the class asks, and serve live writes and replay alike. They do not fail: what they need
of segments, to tell the bytes and the time of what goes, is loaded before the fact is committed
(`loading`), and so is the tag index for a delete by tag. What is live is always known in memory.

Invariant after every step: `1 <= evict_floor <= earliest <= head + 1`, and the ledger adds up:
`head = count + deleted + lost_cap + lost_ttl + lost_crash + skipped + source_trim`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from topics.core.ages import AHEAD_MS, Ages
from topics.core.choosing import Chosen, chosen_at_once
from topics.core.durability import CLASSES
from topics.core.facts import Appended, CursorMoved, Deleted, Evicted, SeqSkipped
from topics.core.keys import KeyWindow
from topics.core.leases import LeaseBook
from topics.core.runs import KindRuns, RunSet, runs_of
from topics.core.seqset import CHUNK, CHUNK_BITS, LAST_BIT, SeqSet, bits_between, lowest
from topics.core.tags import TagIndex
from topics.core.tail import FRAME_OVERHEAD, History, NoHistory, Tail
from topics.core.weights import Weights
from topics.errors import RecordTooLarge, TopicFull
from topics.topic_settings import TopicConfig

SEQ_BASE = 1
MAX_DELETED_RUNS = 100_000
STEP_TAGS = 1 << 20
"""In replay nobody waits for the tag index to be pruned."""
NO_HISTORY: History = NoHistory()


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


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Involuntary loss a reader has to be told of."""

    lo: int
    hi: int
    reason: str


class Topic:
    __slots__ = (
        "_first",
        "ages",
        "bytes",
        "cap_hi",
        "config",
        "count",
        "cursors",
        "delete_below",
        "delete_version",
        "deleted",
        "durability",
        "earliest",
        "epoch",
        "evicts",
        "exact_from",
        "floor_ts",
        "handed_out",
        "head",
        "history",
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
        "runs",
        "tags",
        "tail",
        "ttl_hi",
        "ttl_logged_hi",
        "unflipped",
        "volatile",
        "volatile_from",
        "weights",
    )

    def __init__(
        self, topic_id: int, name: str, epoch: int, config: TopicConfig, *, max_keys: int
    ) -> None:
        self.id = topic_id
        self.name = name
        self.epoch = epoch
        self.config = config
        self.durability = CLASSES[config.durability]
        self.evicts = _evicts(config)
        self.head = SEQ_BASE - 1  # last published seq
        self.handed_out = SEQ_BASE - 1  # last seq given to a write, published or not
        self.pending = 0  # submissions on their way through the log
        self.pending_bytes = 0  # their bytes, as far as a cap or quota counts them
        self.reserved = 0  # durable ceiling of handed-out seqs
        self.earliest = SEQ_BASE
        self._first = (0, 0)  # a seq and its time
        self.cap_hi = 0
        self.ttl_hi = 0
        self.ttl_logged_hi = 0  # what the log knows of ttl_hi; nothing above it is reclaimed
        self.floor_ts = -1
        self.delete_below = 0
        self.last_ts = 0
        self.ages = Ages()  # while `last_ts` is far ahead of the clock
        self.count = 0
        self.bytes = 0
        self.ledger = Ledger()
        self.runs = KindRuns()  # SeqSkipped kinds
        self.deleted = SeqSet()
        self.exact_from = SEQ_BASE  # below it nobody knows what was deleted and what was lost
        self.unflipped = SeqSet()  # deleted seqs whose delete byte is not on disk yet
        self.delete_version = 0
        self.cursors: dict[str, tuple[int, int]] = {}
        self.keys = KeyWindow(max_keys)
        self.tags = TagIndex()
        self.leases = LeaseBook() if config.is_queue else None
        self.tail = Tail(SEQ_BASE)
        self.history = NO_HISTORY
        self.weights = Weights()
        self.volatile = RunSet()  # records of a past ephemeral life: readable until restart
        self.volatile_from = 0 if self.durability.survives_restart else SEQ_BASE
        self.last_write_ts: int | None = None
        self.last_read_ts: int | None = None
        self.last_consumed: int | None = None

    # What is live

    @property
    def evict_floor(self) -> int:
        """First seq not lost to a cap or TTL."""
        return max(self.cap_hi, self.ttl_hi) + 1

    def is_live(self, seq: int) -> bool:
        if not self.earliest <= seq <= self.head or seq in self.deleted:
            return False
        return not len(self.runs) or self.runs.run_at(seq) is None

    def is_all_live(self, lo: int, hi: int) -> bool:
        """Whether every seq of `lo..hi` is known to be live."""
        return (
            self.earliest <= lo
            and hi <= self.head
            and not len(self.runs)
            and self.deleted.has_none_of(lo, hi)
        )

    def extents(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Runs of live seqs in `lo..hi`, in order."""
        cursor = max(lo, self.earliest)
        hi = min(hi, self.head)
        while cursor <= hi:
            skipped = self.deleted.end_of(cursor)
            hole = self.runs.run_at(cursor) if len(self.runs) else None
            if hole is not None:
                skipped = max(skipped, hole[1])
            if skipped >= cursor:
                cursor = skipped + 1
                continue
            stop = self.deleted.next_start(cursor, hi + 1)
            following = self.runs.next_from(cursor) if len(self.runs) else None
            if following is not None:
                stop = min(stop, following[0])
            stop = min(stop, hi + 1)
            yield cursor, stop - 1
            cursor = stop

    def weigh(self, lo: int, hi: int) -> tuple[int, int]:
        """Live records and their bytes in `lo..hi`; whole chunks of it are remembered."""
        lo, hi = max(lo, self.earliest), min(hi, self.head)
        last = hi + 1 >> CHUNK_BITS
        # What lies below the first live record weighs nothing.
        first = (lo if lo == self.earliest else lo + LAST_BIT) >> CHUNK_BITS
        if last <= first or (hi - lo < 2 * CHUNK and lo != self.earliest):
            return self._weigh_part(lo, hi)
        count, nbytes = self._weigh_part(lo, (first << CHUNK_BITS) - 1)
        for chunk in range(first, last):
            n, size = self.weights.get(chunk) or self.weigh_chunk(chunk)
            count, nbytes = count + n, nbytes + size
        n, size = self._weigh_part(last << CHUNK_BITS, hi)
        return count + n, nbytes + size

    def weigh_chunk(self, chunk: int) -> tuple[int, int]:
        """Live records and their bytes in a chunk that ends at or below `head`."""
        lo = max(chunk << CHUNK_BITS, self.earliest)
        weight = self._weigh_part(lo, chunk << CHUNK_BITS | LAST_BIT)
        self.weights.put(chunk, weight)
        return weight

    def weigh_front(self, through: int) -> Iterator[None]:
        """Weigh what `lose` and deletes by position have to know, a step for each chunk.

        All of it is remembered but the last chunk: of that, sizes have to be at hand then, which
        are those from the seq on that `rest_of` tells.
        """
        for chunk in range(self.earliest >> CHUNK_BITS, min(through, self.head) >> CHUNK_BITS):
            if self.weights.get(chunk) is None:
                self.weigh_chunk(chunk)
                yield

    def rest_of(self, through: int) -> int:
        """The first seq whose size must be at hand before everything up to `through` goes."""
        return max(self.earliest, min(through, self.head) >> CHUNK_BITS << CHUNK_BITS)

    def _weigh_part(self, lo: int, hi: int) -> tuple[int, int]:
        if lo > hi:
            return 0, 0
        if not len(self.runs) and self.deleted.has_none_of(lo, hi):
            return self._weigh_extent(lo, hi)
        return self.weigh_bits(lo, bits_between(0, hi - lo) & ~self.dead_bits(lo, hi))

    def dead_bits(self, lo: int, hi: int) -> int:
        """The seqs of a short range that are deleted or in holes: bit 0 is `lo`."""
        bits = self.deleted.bits(lo, hi)
        if len(self.runs):
            for a, b, _ in self.runs.between(lo, hi):
                bits |= bits_between(a - lo, b - lo)
        return bits

    def runs_in(self, chunk: int) -> int:
        """The bits of a chunk that lie in holes."""
        lo, bits = chunk << CHUNK_BITS, 0
        for a, b, _ in self.runs.between(lo, lo | LAST_BIT):
            bits |= bits_between(a - lo, b - lo)
        return bits

    def live_bits(self, chunk: int, bits: int, below: int) -> int:
        """Those of some bits of a chunk whose seqs are live and below a seq."""
        lo = max(chunk << CHUNK_BITS, self.earliest)
        hi = min(chunk << CHUNK_BITS | LAST_BIT, below - 1, self.head)
        if lo > hi:
            return 0
        bits &= bits_between(lo & LAST_BIT, hi & LAST_BIT) & ~self.deleted.chunk(chunk)
        if len(self.runs):
            for a, b, _ in self.runs.between(lo, hi):
                bits &= ~bits_between(a & LAST_BIT, b & LAST_BIT)
        return bits

    def weigh_bits(self, lo: int, bits: int) -> tuple[int, int]:
        """Records and bytes of `lo + i` for each bit `i`, none of them known dead."""
        behind = self.history.last - lo + 1
        if behind <= 0:
            return self.tail.weigh_bits(lo, bits)
        count, nbytes = self.history.weigh_bits(lo, bits & (1 << behind) - 1)
        if bits >> behind:
            more, size = self.tail.weigh_bits(lo + behind, bits >> behind)
            count, nbytes = count + more, nbytes + size
        return count, nbytes

    def live_after(self, seq: int) -> int:
        """How many live records come after a seq, from memory alone."""
        lo, hi = max(seq + 1, self.earliest), self.head
        if lo == self.earliest:
            return self.count
        dead = self.deleted.count_between(lo, hi)
        for a, b, _ in self.runs.between(lo, hi):
            dead += b - a + 1 - self.deleted.count_between(a, b)
        return min(self.count, max(0, hi - lo + 1 - dead))

    def sizes_of(self, chunk: int, bits: int) -> list[int]:
        """The bytes of each of some live records of a chunk, in order."""
        base = chunk << CHUNK_BITS
        lo, hi = base + lowest(bits), base + bits.bit_length() - 1
        return [nbytes for seq, nbytes in self.sizes(lo, hi) if bits >> (seq - base) & 1]

    def _weigh_below(self, limit: int) -> tuple[int, int]:
        """Live records and their bytes below a seq; looks at the shorter side.

        Or at the front, if all of it was weighed before.
        """
        is_short = self.head - limit >= limit - self.earliest
        if is_short or self.weights.has_all(self.earliest, limit):
            return self.weigh(self.earliest, limit - 1)
        count, nbytes = self.weigh(limit, self.head)
        return self.count - count, self.bytes - nbytes

    def _weigh_extent(self, lo: int, hi: int) -> tuple[int, int]:
        border = self.history.last
        if lo > border:
            return self.tail.weigh(lo, hi)
        count, nbytes = self.history.weigh(lo, min(hi, border))
        if hi > border:
            more, size = self.tail.weigh(border + 1, hi)
            count, nbytes = count + more, nbytes + size
        return count, nbytes

    def sizes(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """`(seq, nbytes)` of the live records in `lo..hi`."""
        border = self.history.last
        for a, b in self.extents(lo, hi):
            if a <= border:
                yield from self.history.sizes(a, min(b, border))
            if b > border:
                yield from self.tail.sizes(max(a, border + 1), b)

    def time_of(self, seq: int) -> int:
        if seq >= self.tail.first and seq < self.tail.end:
            return self.tail.times[seq - self.tail.first]
        return self.history.time_of(seq)

    def last_before(self, ts: int) -> int:
        """Highest seq with a slot whose time is below `ts`, 0 when there is none."""
        if len(self.tail):
            seq = self.tail.last_before(ts)
            if seq:
                return seq
        return self.history.last_before(ts)

    def first_after(self, cursor: int) -> tuple[int, int] | None:
        """The first live record behind a cursor and its time; None when there is none."""
        for seq, _ in self.extents(cursor + 1, self.head):
            return seq, self.time_of(seq)
        return None

    def start_of(self, from_ts: int) -> int:
        """Cursor from which every record with time >= `from_ts` is read or announced as lost."""
        seq = self.last_before(from_ts)
        if seq >= self.evict_floor:
            return seq
        return self.evict_floor - 1 if self.floor_ts < from_ts else SEQ_BASE - 1

    def last_live_at_or_below(self, seq: int) -> int:
        """Highest live seq not above `seq`, 0 when there is none."""
        seq = min(seq, self.head)
        while seq >= self.earliest:
            hole = self.runs.run_at(seq) if len(self.runs) else None
            below = min(self.deleted.start_of(seq) - 1, hole[0] - 1 if hole else seq)
            if below >= seq:
                return seq
            seq = below
        return 0

    def find_earliest(self, start: int) -> None:
        """Set `earliest`, known not to lie below `start`."""
        self.earliest = self._find_earliest(max(start, self.evict_floor))

    def _find_earliest(self, start: int) -> int:
        if not len(self.runs):
            return min(self.deleted.end_of(start), self.head) + 1
        self.earliest = start  # what `extents` begins with
        return next((lo for lo, _ in self.extents(start, self.head)), self.head + 1)

    # Writing

    def admit(self, count: int, nbytes: int) -> None:
        """Refuse what a `reject` topic cannot hold, before any seq exists."""
        config = self.config
        if config.discard == "old":
            return
        cap_records, cap_bytes = config.cap_records, config.cap_bytes
        if cap_records and count > cap_records:
            raise RecordTooLarge.for_cap(
                self.name, cap="cap_records", size=count, maximum=cap_records
            )
        if cap_bytes and nbytes > cap_bytes:
            raise RecordTooLarge.for_cap(self.name, cap="cap_bytes", size=nbytes, maximum=cap_bytes)
        # What is on its way is not visible yet, but it will be.
        coming = self.handed_out - self.head
        if (cap_records and self.count + coming + count > cap_records) or (
            cap_bytes and self.bytes + self.pending_bytes + nbytes > cap_bytes
        ):
            raise TopicFull(
                self.name,
                cap_records=cap_records,
                cap_bytes=cap_bytes,
                head_seq=self.head,
                earliest_seq=self.earliest,
            )

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
        """Holes `lo..hi` at the head: seqs nobody got, or records that are known to be lost."""
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

    def expired_through(self, now_ms: int, *, aged: int = 0) -> int:
        """Highest live seq past its TTL; `ttl_hi` when nothing new has expired.

        Seqs up to `aged` are past it whatever their times say.
        """
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
            count, nbytes = self._weigh_below(through + 1)
            self._forget_weights_through(through)
            self.count -= count
            self.bytes -= nbytes
            if ttl_hi >= cap_hi:
                self.ledger.lost_ttl += count
            else:
                self.ledger.lost_cap += count
            if count:
                self._forget_leases(lowest, through)
                self.tags.note_dead(count)
        self.ttl_hi = max(self.ttl_hi, ttl_hi)
        self.cap_hi = max(self.cap_hi, cap_hi)
        if self.evict_floor == old_floor and through < lowest:
            return
        self.floor_ts = max(self.floor_ts, self._time_at_most(through))
        self.runs.discard_through(self.evict_floor - 1)
        self._advance(lowest)

    def _forget_weights_through(self, seq: int) -> None:
        """All that is live up to a seq is about to go."""
        if not len(self.weights):
            return
        chunk = min(seq, self.head) >> CHUNK_BITS
        if self.weights.get(chunk) is not None:
            lo = max(self.earliest, chunk << CHUNK_BITS)
            self.weights.take_off(chunk, *self._weigh_part(lo, min(seq, self.head)))
        self.weights.forget(self.earliest, (chunk << CHUNK_BITS) - 1)

    def _time_at_most(self, seq: int) -> int:
        """The time of a seq; if no slot tells any more, the newest it can have been."""
        try:
            return self.time_of(seq)
        except KeyError:
            return self.last_ts

    def _advance(self, lowest: int) -> None:
        """Move `earliest` after removals that may have reached the front."""
        self.find_earliest(lowest)
        if self.earliest > self.tail.first and len(self.tail):
            dead = min(self.earliest, self.tail.end) - self.tail.first
            # Cutting columns moves what is left: wait until it is worth it.
            if dead >= 4096 and dead * 2 >= len(self.tail):
                self.tail.drop_front(self.earliest)

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
        # Also those of an earlier, logged life: a key must not answer for records that are gone.
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

    # Deleting

    def selects_any(self, fact: Deleted, chosen: Chosen | None = None) -> bool:
        """Whether a delete removes anything; finds out at the first record."""
        limit = self.limit_of(fact)
        if fact.match is None:
            return self.earliest < limit and self.count > 0
        chosen = chosen or chosen_at_once(self, fact.match, limit)
        return next(chosen.live(limit), None) is not None

    def limit_of(self, fact: Deleted) -> int:
        """No seq from here on is reached by a delete."""
        limit = self.head + 1 if fact.bound is None else min(fact.bound, self.head + 1)
        return limit if fact.before is None else min(limit, fact.before)

    def _live_among(self, seqs: tuple[int, ...]) -> Iterable[tuple[int, int]]:
        """Runs of those of some seqs that are live, in order."""
        run = _as_run(seqs)
        if run is not None and self.is_all_live(*run):
            return (run,)  # an ack of what one claim gave
        return list(self._live_parts(runs_of(sorted(set(seqs)))))

    def _live_parts(self, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        for lo, hi in runs:
            if self.is_all_live(lo, hi):
                yield lo, hi
            else:
                yield from self.extents(lo, hi)

    def apply_deleted(self, fact: Deleted, *, generation: int, chosen: Chosen | None = None) -> int:
        """Remove what the fact selects: silent, and no floor moves. Returns how many died.

        `chosen` is what a fact with a tag removes, from a caller who has looked for it before and
        prunes the tag index afterwards, both in steps.
        """
        lowest, limit = self.earliest, self.limit_of(fact)
        if fact.seqs:
            removed = self._remove_runs(self._live_among(fact.seqs))
        elif fact.match is None:
            removed = self._remove_below(limit)
            self.delete_below = max(self.delete_below, self._marker_of(fact))
        else:
            found = chosen or chosen_at_once(self, fact.match, limit)
            removed = self._remove_chosen(found, limit)
        self.ledger.deleted += removed
        with self.tags.held():
            self.tags.note_dead(removed)
            if fact.match is not None and fact.before is None and chosen is None:
                for _ in self.tags.forget_matching(fact.match, below=limit, step=STEP_TAGS):
                    pass
        if self.delete_version >> 32 == generation:
            self.delete_version += 1
        else:
            self.delete_version = generation << 32 | 1
        if lowest in self.deleted:
            self._advance(lowest)
        if self.config.cap_records or self.config.cap_bytes:
            self.enforce_caps()
        return removed

    def _marker_of(self, fact: Deleted) -> int:
        """The new `delete_below` of a delete by position."""
        bound = self.head + 1 if fact.bound is None else fact.bound
        return 0 if fact.before is None else min(fact.before, bound)

    def _remove_runs(self, runs: Iterable[tuple[int, int]]) -> int:
        """Remove live records one run after the other."""
        removed = 0
        for lo, hi in runs:
            count, nbytes = self._weigh_extent(lo, hi)
            self.count -= count
            self.bytes -= nbytes
            removed += count
            if len(self.weights):
                self._take_off_weights(lo, hi)
            self.deleted.add(lo, hi)
            self.unflipped.add(lo, hi)
            self._forget_leases(lo, hi)
        return removed

    def _take_off_weights(self, lo: int, hi: int) -> None:
        """A run of live records is about to go."""
        for chunk in range(lo >> CHUNK_BITS, (hi >> CHUNK_BITS) + 1):
            if self.weights.get(chunk) is not None:
                a, b = max(lo, chunk << CHUNK_BITS), min(hi, chunk << CHUNK_BITS | LAST_BIT)
                self.weights.take_off(chunk, *self._weigh_extent(a, b))

    def _remove_below(self, limit: int) -> int:
        """Remove every record below a seq. What lies there was live, is deleted or in a hole, so
        it becomes one run between holes, however many runs of it were deleted before."""
        lo, hi = self.earliest, limit - 1
        if lo > hi:
            return 0
        count, nbytes = self._weigh_below(limit)
        self._forget_weights_through(hi)
        self.count -= count
        self.bytes -= nbytes
        for a, b in self.runs.gaps_between(lo, hi):
            self.deleted.add(a, b)
            self.unflipped.add(a, b)
        self._forget_leases(lo, hi)
        return count

    def _remove_chosen(self, chosen: Chosen, limit: int) -> int:
        """Remove the live ones of some records, a step for each chunk."""
        removed = 0
        gone: dict[int, int] = {}
        for chunk, bits, nbytes in chosen.live(limit):
            count = bits.bit_count()
            self.bytes -= nbytes
            removed += count
            gone[chunk] = bits
            self.weights.take_off(chunk, count, nbytes)
        self.count -= removed
        self.deleted.update(gone)
        self.unflipped.update(gone)
        if self.leases is not None and self.leases.deliveries:
            was = self.leases.deliveries
            self.leases.forget(
                [seq for seq in was if gone.get(seq >> CHUNK_BITS, 0) >> (seq & LAST_BIT) & 1]
            )
        return removed

    def _forget_leases(self, lo: int, hi: int) -> None:
        leases = self.leases
        if leases is None or not leases.deliveries:
            return
        if hi - lo < len(leases.deliveries):
            leases.forget(range(lo, hi + 1))
        else:
            leases.forget([seq for seq in leases.deliveries if lo <= seq <= hi])

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

    # Reading

    def gap_below(self, cursor: int) -> Gap | None:
        """Loss to a floor that a reader at `cursor` has to be told of."""
        if cursor + 1 >= self.evict_floor:
            return None
        cap, ttl = self.cap_hi > cursor, self.ttl_hi > cursor
        reason = "mixed" if cap and ttl else "cap" if cap else "ttl"
        return Gap(cursor + 1, self.evict_floor - 1, reason)

    def gap_at(self, seq: int) -> Gap | None:
        """The rest of the announced run that holds `seq`."""
        run = self.runs.run_at(seq) if len(self.runs) else None
        if run is None or run[2] == SeqSkipped.UNASSIGNED:
            return None
        reason = "source_trim" if run[2] == SeqSkipped.SOURCE_TRIM else "cap"
        return Gap(seq, run[1], reason)

    def next_announced(self, seq: int) -> int:
        """First seq at or after `seq` that lies in an announced run; beyond head when none."""
        for lo, _, kind in self.runs.between(seq, self.head):
            if kind != SeqSkipped.UNASSIGNED:
                return lo
        return self.head + 1


def _evicts(config: TopicConfig) -> bool:
    """Whether records may go by themselves."""
    return bool(config.cap_records or config.cap_bytes or config.ttl_ms)


def _as_run(seqs: tuple[int, ...]) -> tuple[int, int] | None:
    """The first and last of seqs that follow each other without a gap."""
    lo, hi = seqs[0], seqs[-1]
    if hi - lo + 1 == len(seqs) and seqs == tuple(range(lo, hi + 1)):
        return lo, hi
    return None
