"""What a snapshot says: the state at a position of the log, one JSON object per line.

    head    first line: which snapshot, whose, and up to where in the log
    part    first line instead of `head`: the same, and on top of which file this one is read
    gone    second line of a part: what the files below it list and this one takes away
    topic   one per topic, or in a part one per topic that changed
    router  one per router, or per router that changed
    app     one per staging app, or per app that changed
    end     last line: how many topics, routers and apps came before

The field `line` tells them apart. A topic's records, tags and the records of `ephemeral` topics are
not in it: segments and the log hold them. Rows of numbers are lists, since a topic may have very
many of them. A field we do not know makes the whole snapshot invalid, as does one that is missing
and has no default: state that is half understood would be written back wrong.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from topics.core.facts import Match
from topics.storage.segments.segment import Segment, label_of


class _SnapshotLine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="line"
):
    """A line of the body."""


class GroupPosition(msgspec.Struct, frozen=True, array_like=True):
    """How much of a log group is absorbed: its bytes below, its frames up to the last one named."""

    key: str  # its directory under wal/, empty for the flat layout
    file_lfn: int
    offset: int
    lfn: int


class HeadLine(_SnapshotLine, frozen=True, kw_only=True, tag="head"):
    """Identity and log positions."""

    id: int
    ts: int
    generation: int
    store_id: str  # 32 hex digits
    next_topic_id: int
    groups: tuple[GroupPosition, ...]  # of every group directory on disk
    agnostic_lfn: int  # last absorbed frame that belongs to no topic
    last_lease_id: int  # ids of leases are not used twice


class PartLine(HeadLine, frozen=True, kw_only=True, tag="part"):
    """Identity and log positions of a part: what changed since an earlier file was written."""

    after: tuple[int, str]  # number of that file, and the checksum it must have: 16 hex digits


class GoneLine(_SnapshotLine, frozen=True, kw_only=True, tag="gone"):
    """What is no more since the file below."""

    topics: list[int]  # ids
    routers: list[str]
    apps: list[str]


class LedgerTotals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where every seq went that is not live."""

    deleted: int
    lost_cap: int
    lost_ttl: int
    lost_crash: int
    skipped: int
    source_trim: int


class QueueState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lease projection of a queue."""

    claim_cursor: int
    deliveries: list[tuple[int, int]]  # seq, times handed out
    leases: list[tuple[int, int, str, int]]  # seq, lease id, node, deadline in ms
    delayed: list[tuple[int, int]]  # seq, ready at ms
    dead_lettered: int


class TopicLine(_SnapshotLine, frozen=True, kw_only=True, omit_defaults=True, tag="topic"):
    """One topic but for its records. What only few topics have comes last and may be missing."""

    name: str
    id: int
    epoch: int
    seq_base: int
    config: msgspec.Raw  # JSON
    lfn: int  # last absorbed frame of this topic; replay goes on behind it
    base: int
    head: int
    reserved: int
    cap_hi: int
    ttl_hi: int
    floor_ts: int
    earliest: int
    delete_below: int
    last_ts: int
    count: int
    bytes: int
    ledger: LedgerTotals
    delete_version: int
    deleted_runs: list[tuple[int, int]]  # lo, hi
    # Below `exact_from` delete bytes tell; `deleted_runs` names only what has no byte yet.
    exact_from: int
    cursors: list[tuple[str, int, int]]  # name, seq, updated at ms
    keys: list[tuple[str, int, int, int, int]]  # key, first seq, count, head, ts
    runs: list[tuple[int, int, int]]  # lo, hi, kind of SeqSkipped
    segs: list[Segment]
    dropped: list[tuple[int, int]]  # first, last: segments no longer needed but maybe on disk
    active: tuple[int, int, int, int] | None  # first, last, data_len, idx_len
    queue: QueueState | None
    ages: list[tuple[int, int]] = []  # seq, ms: the topic was there so long ago at least
    # first, last, version: as `dropped`, of segments that an erasure had written anew
    dropped_versions: list[tuple[int, int, int]] = []

    def dropped_labels(self) -> list[tuple[int, int]]:
        """Label and last seq of every segment that is no longer needed but maybe on disk."""
        later = [(label_of(first, version), last) for first, last, version in self.dropped_versions]
        return [*self.dropped, *later]


class RouterLine(_SnapshotLine, frozen=True, kw_only=True, tag="router"):
    """One router and its position.

    Its fields are those of the fact `RouterCreated`, but a snapshot is a format of its own.
    """

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
    cursor: int
    forwarded_total: int
    dest_base: int


class AppLine(_SnapshotLine, frozen=True, kw_only=True, tag="app", omit_defaults=True):
    """The last commit of a staging app. Without an owner the line is that of earlier versions."""

    name: str
    epoch: int
    result: msgspec.Raw  # JSON
    last_use_ms: int
    owner: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")] = ""  # fingerprint of a key


class EndLine(_SnapshotLine, frozen=True, kw_only=True, tag="end"):
    """Counts of the lines between head and here."""

    topics: int
    routers: int
    apps: int


BodyLine: TypeAlias = TopicLine | RouterLine | AppLine
Line: TypeAlias = HeadLine | PartLine | GoneLine | BodyLine | EndLine


class Label(msgspec.Struct, frozen=True, gc=False):
    """What a line is about, without reading the rest of it."""

    line: str
    id: int = 0
    name: str = ""


encode_line = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder[Line](Line).decode
"""One line without its line feed; raises `msgspec.DecodeError`."""

decode_gone = msgspec.json.Decoder(GoneLine).decode
read_label = msgspec.json.Decoder(Label).decode
"""The same for its label only."""
NOTHING = Label("")
