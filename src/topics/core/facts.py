"""Facts: decided changes, ready to persist and apply.

Every change of state is one of these values. The core decides and returns a fact, storage writes
it as a frame, and one `apply` publishes it; after a crash the same values come back from the log
and go through the same `apply`. A fact holds only what the log holds, so nothing that matters can
live in memory alone.

`Appended` is the exception to "one fact, one frame": it stands for a run of records with
consecutive seqs, as columns, because a fact per record would cost more than the record.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

import msgspec


class Match(msgspec.Struct, frozen=True, gc=False):
    """A tag selector: one exact tag, or every tag that starts with a prefix."""

    value: str
    is_prefix: bool = False

    def accepts(self, tag: str | None) -> bool:
        """Untagged records match nothing."""
        if tag is None:
            return False
        return tag.startswith(self.value) if self.is_prefix else tag == self.value


class Appended(msgspec.Struct, gc=False):
    """Records `first_seq ..` of one topic, as parallel columns.

    `base + offsets[i]` locates the frame of record i: the upper 32 bits name a byte source, the
    lower 32 the offset in it. `base` is 0 until the log has taken the frames. Columns may be
    shared between facts: they are never changed in place.
    """

    topic_id: int
    first_seq: int
    offsets: array[int]  # 'I': frame start, relative to base
    lengths: array[int]  # 'I': frame bytes, length field and checksum included
    times: array[int]  # 'Q': ms; non-decreasing
    name_lengths: array[int]  # 'H': node bytes + tag bytes
    flags: array[int]  # 'B': the frame's flags byte (FLAG_* of storage.frames)
    tags: list[str | None] | None = None  # None: no record of the run has a tag
    base: int = 0

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.lengths) - 1


class _Configured(msgspec.Struct, frozen=True, gc=False):
    topic_id: int
    ts: int
    name: str
    config: bytes  # JSON
    epoch: int
    seq_base: int


class TopicCreated(_Configured, frozen=True, gc=False): ...


class ConfigUpdated(_Configured, frozen=True, gc=False): ...


class TopicDeleted(msgspec.Struct, frozen=True, gc=False):
    topic_id: int
    ts: int
    name: str
    epoch: int


class RouterCreated(msgspec.Struct, frozen=True, gc=False):
    """A new router, or new knobs for one that has the same name and topic ids."""

    ts: int
    name: str
    source: str
    dest: str
    source_id: int
    dest_id: int
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    allow_cycle: bool
    exactly_once: bool
    match: Match | None
    initial_cursor: int
    initial_dest_base: int


class RouterDeleted(msgspec.Struct, frozen=True, gc=False):
    ts: int
    name: str
    source_id: int
    dest_id: int


class Deleted(msgspec.Struct, frozen=True, gc=False):
    """Explicit seqs (queue acks), or a selector that reaches only seqs below `bound`."""

    topic_id: int
    ts: int
    before: int | None = None
    match: Match | None = None
    seqs: tuple[int, ...] = ()
    bound: int | None = None


class Evicted(msgspec.Struct, frozen=True, gc=False):
    """Floors only rise: replay takes the maximum."""

    topic_id: int
    ts: int
    cap_hi: int
    earliest: int
    ttl_hi: int


class Beacon(msgspec.Struct, frozen=True, gc=False):
    """Proof in the log that every earlier byte of the group was durable when this was written."""

    ts: int
    store_mark: int  # first 8 bytes of the store id
    file_lfn: int
    offset: int


class CheckpointEntry(msgspec.Struct, frozen=True, gc=False):
    topic_id: int
    last_seq: int
    cap_hi: int
    ttl_hi: int
    earliest: int
    seg_first: int
    data_len: int
    idx_len: int


class CheckpointMarked(msgspec.Struct, frozen=True, gc=False):
    ts: int
    checkpoint_id: int
    entries: tuple[CheckpointEntry, ...]


class ClosedCleanly(msgspec.Struct, frozen=True, gc=False):
    """Exact heads at a clean stop: `(topic_id, head)`."""

    ts: int
    heads: tuple[tuple[int, int], ...]


class LeaseChanged(msgspec.Struct, frozen=True, gc=False):
    """One lease event with absolute values. For `released`, `deadline_ms` is the ready time."""

    CLAIMED = 0
    RELEASED = 1
    EXTENDED = 2
    ACKED = 3

    topic_id: int
    seq: int
    ts: int
    event: int
    lease_id: int
    deadline_ms: int
    deliveries: int
    node: str


class HeadReserved(msgspec.Struct, frozen=True, gc=False):
    """Every seq up to the ceiling counts as handed out."""

    topic_id: int
    ts: int
    ceiling: int


class FileHeader(msgspec.Struct, frozen=True, gc=False):
    """First frame of every WAL file."""

    ts: int
    format: int
    shard: int
    shards: int
    generation: int
    first_lfn: int
    prev_first_lfn: int
    prev_len: int
    store_id: bytes  # 16
    boot_id: bytes  # 16


class TierFlipped(msgspec.Struct, frozen=True, gc=False):
    HOT = 0
    COLD = 1

    topic_id: int
    ts: int
    first_seq: int
    tier: int
    data_len: int
    idx_len: int
    data_h: int
    idx_h: int


class SeqSkipped(msgspec.Struct, frozen=True, gc=False):
    """Seqs `lo..hi` hold no record. Only UNASSIGNED is silent; the others are announced loss."""

    UNASSIGNED = 1
    POWER_LOSS = 2
    REPAIR = 3
    SOURCE_TRIM = 4

    topic_id: int
    ts: int
    lo: int
    hi: int
    kind: int


class CursorMoved(msgspec.Struct, frozen=True, gc=False):
    topic_id: int
    ts: int
    name: str
    seq: int
    present: bool  # False: the cursor was removed


class Forwarded(msgspec.Struct, frozen=True, gc=False):
    """One router pass. `runs` are `(source_first, count, lost)` in order."""

    topic_id: int  # the destination
    ts: int
    router: str
    source_id: int
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    allow_cycle: bool
    exactly_once: bool
    dest_first: int
    cursor: int
    forwarded_total: int
    runs: tuple[tuple[int, int, bool], ...]


class StageCommitted(msgspec.Struct, frozen=True, gc=False):
    ts: int
    app: str
    epoch: int
    parts: tuple[tuple[int, int], ...]  # (part, attempt)
    topics: tuple[tuple[int, int, int], ...]  # (topic_id, first_seq, count)
    result: bytes  # JSON
    owner: bytes = b""  # fingerprint of the key the app belongs to; empty without keys


class KeyRemembered(msgspec.Struct, frozen=True, gc=False):
    """An idempotency key with the answer of its write."""

    topic_id: int
    ts: int
    key: str
    first_seq: int
    count: int
    head: int


Fact: TypeAlias = (
    Appended
    | TopicCreated
    | ConfigUpdated
    | TopicDeleted
    | RouterCreated
    | RouterDeleted
    | Deleted
    | Evicted
    | Beacon
    | CheckpointMarked
    | ClosedCleanly
    | LeaseChanged
    | HeadReserved
    | FileHeader
    | TierFlipped
    | SeqSkipped
    | CursorMoved
    | Forwarded
    | StageCommitted
    | KeyRemembered
)
