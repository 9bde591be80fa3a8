"""What calls give back, the same from an embedded log and from a server.

Plain immutable values: no method here reads a disk, a socket or a clock. `to_dict()` gives
the field names of the HTTP API, so that logs, server and commands print and parse one shape.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import force_setattr

from topics import showing

Config = Mapping[str, Any]
"""A topic's resolved config, all keys present."""

TombstoneReason = Literal["cap", "ttl", "mixed", "source_trim", "recreated", "from_seq_too_old"]
GapCause = Literal["crash", "repair", "source_trim"]
JobState = Literal["leased", "delayed", "ready"]
HoleKind = Literal["deleted", "cap", "ttl", "crash", "skipped", "source_trim"]


class Value(Struct, frozen=True):
    """Base of the result types."""

    def to_dict(self) -> dict[str, Any]:
        """The value as the API spells it, ready to be encoded as JSON."""
        return {name: _plain(getattr(self, name)) for name in self.__struct_fields__}


def _plain(item: object) -> object:
    if isinstance(item, Value):
        return item.to_dict()
    if isinstance(item, (list, tuple)):
        return [_plain(part) for part in item]
    return item


_TITLES = ("seq", "time", "node", "tag", "data", "meta")
_INSIDE = frozenset(("_data", "_meta", "_facts", "_row", "_repr_html_"))


class Record(Struct, frozen=True, gc=False, eq=False):
    """One entry of a topic. `raw` and `raw_meta` are its stored JSON, byte for byte.

    A page holds many of these and most callers touch few fields, so the JSON is parsed
    only when `data` or `meta` is first asked for. `gc=False` is safe: what is decoded
    from JSON cannot refer back to its record.
    """

    seq: int
    ts: int
    node: str | None
    tag: str | None
    raw: bytes
    raw_meta: bytes | None = None
    _data: Any = UNSET
    _meta: Any = UNSET

    @property
    def data(self) -> Any:  # noqa: ANN401 - any JSON value
        """The payload, parsed once and remembered."""
        if self._data is UNSET:
            force_setattr(self, "_data", parse(self.raw))
        return self._data

    @property
    def meta(self) -> Any:  # noqa: ANN401 - any JSON value
        """The metadata, parsed once and remembered; None when the record has none."""
        if self.raw_meta is None:
            return None
        if self._meta is UNSET:
            force_setattr(self, "_meta", parse(self.raw_meta))
        return self._meta

    @property
    def time(self) -> datetime:
        """When the record was written, in UTC; `ts` is the same in milliseconds since 1970."""
        return showing.time_of(self.ts)

    def to_dict(self) -> dict[str, Any]:
        """The record as the API spells it; what was not set has no key."""
        shown: dict[str, Any] = {"$seq": self.seq, "$ts": self.ts}
        if self.node is not None:
            shown["$node"] = self.node
        if self.tag is not None:
            shown["$tag"] = self.tag
        shown["data"] = self.data
        if self.raw_meta is not None:
            shown["meta"] = self.meta
        return shown

    def _facts(self) -> tuple[Any, ...]:
        return self.seq, self.ts, self.node, self.tag, self.raw, self.raw_meta

    def __eq__(self, other: object) -> bool:
        # Whether the data was parsed before is no part of the record.
        return self._facts() == other._facts() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._facts())

    def __repr__(self) -> str:
        return showing.line(
            "Record",
            (
                ("seq", self.seq),
                ("time", showing.moment(self.ts)),
                ("node", None if self.node is None else repr(self.node)),
                ("tag", None if self.tag is None else repr(self.tag)),
                ("data", showing.short(self.raw)),
                ("meta", None if self.raw_meta is None else showing.short(self.raw_meta)),
            ),
        )

    def _repr_html_(self) -> str:
        return showing.table(_TITLES, [self._row()], ())

    def _row(self) -> tuple[str | None, ...]:
        raw_meta = self.raw_meta
        meta = None if raw_meta is None else showing.short(raw_meta)
        time = showing.moment(self.ts)
        return str(self.seq), time, self.node, self.tag, showing.short(self.raw), meta

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in _INSIDE]

    def __reduce__(self) -> tuple[type["Record"], tuple[Any, ...]]:
        return Record, self._facts()


_parse_fast = msgspec.json.Decoder().decode


def parse(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Stored JSON as Python objects.

    Stored numbers may exceed what a float (`1e400`) or Python's integer parser holds;
    those become `Decimal`, so that no record is unreadable and no digit is lost.
    """
    try:
        return _parse_fast(raw)
    except msgspec.ValidationError:
        return _parse_exact(raw)


def _parse_exact(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    # Rare, and each import costs more than all of this module.
    import json  # noqa: PLC0415
    from decimal import Decimal  # noqa: PLC0415

    def real(text: str) -> float | Decimal:
        number = float(text)
        return Decimal(text) if number in (float("inf"), float("-inf")) else number

    def whole(text: str) -> int | Decimal:
        try:
            return int(text)
        except ValueError:
            return Decimal(text)

    return json.loads(raw, parse_float=real, parse_int=whole)


class Tombstone(Value, frozen=True, gc=False):
    """The notice that records between two seqs were lost against the reader's will."""

    gap_from: int
    gap_to: int
    reason: TombstoneReason
    earliest_seq: int
    head_seq: int

    @property
    def missed_estimate(self) -> int:
        """How many records the gap may have held; a recreated topic counts as one at least."""
        return max(self.gap_to - self.gap_from + 1, 1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "gap_from": self.gap_from,
            "gap_to": self.gap_to,
            "reason": self.reason,
            "missed_estimate": self.missed_estimate,
            "earliest_seq": self.earliest_seq,
            "head_seq": self.head_seq,
        }


class Ack(Value, frozen=True, gc=False):
    """A write that is as safe as its topic's durability class promises.

    When `deduped`, it reports the original write with the same idempotency key.
    """

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool = False
    deduped: bool = False

    @property
    def seqs(self) -> range:
        """The seqs given to the records, in their order."""
        return range(self.first_seq, self.last_seq + 1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "seqs": list(self.seqs),
            "head_seq": self.head_seq,
            "count": self.count,
            "created": self.created,
            "deduped": self.deduped,
        }


class BackPage(Value, frozen=True):
    """One read that goes back: records from the highest seq down, and the losses between them.

    `next_before_seq` is where the next page goes on, None at the beginning of the topic. A reader
    that wants what comes after the page goes on from `next_from_seq`.
    """

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    gaps: list[Tombstone]
    next_before_seq: int | None = None


class Page(Value, frozen=True):
    """One read: records after a cursor, and the cursor to go on with.

    `caught_up` is False when there is more than the page holds. `next_from_seq` may pass
    seqs that gave no record (deleted, filtered), so continue from it and not from the
    last record.
    """

    topic: str
    records: Sequence[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None = None
    lag: int = 0
    records_scanned: int = 0
    cold_segments_read: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "records": [record.to_dict() for record in self.records],
            "next_from_seq": self.next_from_seq,
            "head_seq": self.head_seq,
            "earliest_seq": self.earliest_seq,
            "caught_up": self.caught_up,
            "tombstone": None if self.tombstone is None else self.tombstone.to_dict(),
            "lag": self.lag,
            "performance": {"records_scanned": self.records_scanned},
        }

    def __repr__(self) -> str:
        some = [repr(record) for record in self.records[:3]]
        if len(self.records) > len(some):
            some.append(f"... {len(self.records) - len(some)} more")
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__[2:])
        return showing.line(
            "Page", (("topic", repr(self.topic)), ("records", f"[{', '.join(some)}]"), *fields)
        )

    def _repr_html_(self) -> str:
        notes = [] if self.tombstone is None else [repr(self.tombstone)]
        if len(self.records) > showing.MOST_ROWS:
            notes.append(f"the first {showing.MOST_ROWS} of {len(self.records)} records")
        if not self.caught_up:
            notes.append(f"there is more after seq {self.next_from_seq}, up to {self.head_seq}")
        rows = (record._row() for record in self.records[: showing.MOST_ROWS])
        return showing.table(_TITLES, rows, notes)


class QueueCounts(Value, frozen=True, gc=False):
    """How many jobs of a queue wait, are leased, and died since the log was opened."""

    ready: int
    in_flight: int
    dead_lettered: int


class TopicState(Value, frozen=True):
    """A topic at one moment; `count` and `bytes` are of live records only.

    `queue` is None for a log.
    """

    topic: str
    type: Literal["log", "queue"]
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    config: Config
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    epoch: int
    delete_version: int
    queue: QueueCounts | None = None

    @property
    def next_seq(self) -> int:
        """The seq the next record will get."""
        return self.head_seq + 1

    def to_dict(self) -> dict[str, Any]:
        shown = super().to_dict()
        shown["next_seq"] = self.next_seq
        shown["config"] = dict(self.config)
        if self.queue is None:
            del shown["queue"]
        return shown


class QueueDetails(Value, frozen=True, gc=False):
    """Jobs of a queue. `dead` counts the records of its dead-letter topic; if other queues share
    that topic, or the key may not see it, the jobs that died since the server started."""

    ready: int
    in_flight: int
    delayed: int
    dead: int


class TopicSummary(Value, frozen=True, gc=False):
    """One line of the list of topics. The last four are details: None unless asked for, and
    `queue` is None for a log."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int
    type: str | None = None
    durability: str | None = None
    lost: int | None = None
    queue: QueueDetails | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: item for name, item in super().to_dict().items() if item is not None}


class Created(Value, frozen=True):
    """The outcome of creating a topic; `created` is False when it was there already.

    A dry run creates and changes nothing, and tells in `evicted` what would go.
    """

    topic: str
    created: bool
    config: Config
    evicted: "Eviction | None" = None

    def to_dict(self) -> dict[str, Any]:
        shown = {"topic": self.topic, "created": self.created, "config": dict(self.config)}
        return shown if self.evicted is None else shown | {"evicted": self.evicted.to_dict()}


class Change(NamedTuple):
    """A setting as it was and as it is now, or would be."""

    was: Any
    now: Any


class Eviction(Value, frozen=True, gc=False):
    """Records that a tighter limit removes at once, and the bytes of their data and meta."""

    records: int
    bytes: int


class Configured(Value, frozen=True):
    """The outcome of changing settings; after a dry run, what the outcome would be.

    `evicted` was counted just before the change. Records written meanwhile are not in it.
    """

    topic: str
    config: Config
    changes: Mapping[str, Change]
    evicted: Eviction
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "config": dict(self.config),
            "changes": {name: change._asdict() for name, change in self.changes.items()},
            "evicted": self.evicted.to_dict(),
            "dry_run": self.dry_run,
        }


class Dropped(Value, frozen=True):
    """The outcome of dropping a topic; `deleted` is False when there was none."""

    topic: str
    deleted: bool
    routers_removed: Sequence[str] = ()


class DeleteResult(Value, frozen=True, gc=False):
    """The outcome of deleting records; `deleted` counts those this call removed."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class ErasureState(Value, frozen=True):
    """How far an erasure is. `receipt` is what the ledger keeps of it, once it is done.

    `segments` are those of the topic that are looked at, `segments_done` how many of them were.
    """

    erasure: int
    topic: str
    state: Literal["running", "done"]
    phase: str
    deleted: int
    begun_ms: int
    ended_ms: int | None
    segments: int
    segments_done: int
    receipt: dict[str, Any] | None


class Gap(Value, frozen=True, gc=False):
    """A run of seqs lost inside a topic, and what lost it."""

    gap_from: int
    gap_to: int
    reason: TombstoneReason
    cause: GapCause


class Audit(Value, frozen=True):
    """Where every seq of a topic went."""

    topic: str
    epoch: int
    head_seq: int
    earliest_seq: int
    evict_floor: int
    skipped: int
    source_trim: int
    written: int
    live: int
    deleted: int
    lost_cap: int
    lost_ttl: int
    lost_crash: int
    gaps: Sequence[Gap] = ()

    @property
    def adds_up(self) -> bool:
        """Whether the terms account for every seq, as they must."""
        lost = self.lost_cap + self.lost_ttl + self.lost_crash
        return (
            self.written == self.live + self.deleted + lost
            and self.head_seq == self.written + self.skipped + self.source_trim
        )


class CursorState(Value, frozen=True, gc=False):
    """A named cursor and how far it is behind.

    `lag_records` counts live records that wait; `lag_seqs` is the distance to the head, which also
    counts seqs that never held a record, or no longer do.
    """

    topic: str
    cursor: str
    seq: int
    updated_ts: int
    head_seq: int
    lag_records: int
    lag_seqs: int
    lag_seconds: float
    gap_pending: bool


class Hole(Value, frozen=True, gc=False):
    """A run of dead seqs, ends included, and what removed them first."""

    from_seq: int
    to_seq: int
    kind: HoleKind


class Holes(Value, frozen=True):
    """The dead runs of a range; ask again from `next_from_seq` until it passes the range.

    Below `exact_from` the topic no longer knows which seqs were deleted and which lost.
    """

    topic: str
    epoch: int
    delete_version: int
    runs: Sequence[Hole]
    next_from_seq: int
    exact_from: int

    def to_dict(self) -> dict[str, Any]:
        shown = super().to_dict()
        shown["runs"] = [[run.from_seq, run.to_seq, run.kind] for run in self.runs]
        return shown


class PlannedRange(Value, frozen=True, gc=False):
    """A range of seqs for one reader, ends included, and what a read of it will bring."""

    from_seq: int
    to_seq: int
    records: int
    bytes: int


class ReadPlan(Value, frozen=True):
    """A range of seqs cut for parallel readers; go on from `next_from_seq` until it is passed.

    The ranges follow each other without a gap. They begin at the evict floor: what lies below it
    is lost to every reader.
    """

    topic: str
    epoch: int
    delete_version: int
    head_seq: int
    evict_floor: int
    ranges: Sequence[PlannedRange]
    next_from_seq: int

    def to_dict(self) -> dict[str, Any]:
        shown = super().to_dict()
        shown["ranges"] = [[r.from_seq, r.to_seq, r.records, r.bytes] for r in self.ranges]
        return shown


class Staged(Value, frozen=True, gc=False):
    """Records kept aside until their epoch is committed.

    When `deduped`, the epoch already was: nothing was kept.
    """

    app: str
    epoch: int
    part: int
    attempt: int
    records: int
    bytes: int
    deduped: bool = False

    def to_dict(self) -> dict[str, Any]:
        shown = super().to_dict()
        if not self.deduped:
            del shown["deduped"]
        return shown


class CommittedRange(Value, frozen=True, gc=False):
    """The seqs that a commit gave to its records in one topic."""

    first_seq: int
    last_seq: int
    count: int


class StageCommit(Value, frozen=True):
    """A committed epoch: every record of its stages is visible, in every topic.

    When `deduped`, an earlier call committed it and this is the answer that one got.
    """

    app: str
    epoch: int
    deduped: bool
    topics: Mapping[str, CommittedRange]

    def to_dict(self) -> dict[str, Any]:
        shown = super().to_dict()
        shown["topics"] = {name: given.to_dict() for name, given in self.topics.items()}
        return shown


class WaitingStages(Value, frozen=True, gc=False):
    """What an app has staged for an epoch that is not committed.

    `bytes` are data and meta, `disk_bytes` what the files take. The times are those of the first
    and the last stage, in milliseconds.
    """

    app: str
    epoch: int
    stages: int
    records: int
    bytes: int
    disk_bytes: int
    oldest_ts: int
    newest_ts: int


class DroppedStages(Value, frozen=True, gc=False):
    """How many stages of an app were discarded, and the bytes of their files."""

    app: str
    dropped: int
    disk_bytes: int


class RouterState(Value, frozen=True):
    """A router and how far it has come; `lag` source records are still to be looked at.

    `filter` is the triple a tag has to match, or None; `forwarded_total` counts copies, suppressed
    duplicates and lost seqs.
    """

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: tuple[str, str, str] | None
    allow_cycle: bool
    guarantee: Literal["at_least_once", "exactly_once"]
    forwarded_total: int
    lag: int


class Job(Struct, frozen=True, gc=False):
    """A job on lease: the worker's own until `deadline_ms`."""

    seq: int
    lease_id: int
    deadline_ms: int
    ts: int
    deliveries: int
    raw: bytes
    tag: str | None = None
    raw_meta: bytes | None = None

    @property
    def data(self) -> Any:  # noqa: ANN401 - any JSON value
        return parse(self.raw)

    @property
    def meta(self) -> Any:  # noqa: ANN401 - any JSON value
        return None if self.raw_meta is None else parse(self.raw_meta)

    @property
    def time(self) -> datetime:
        """When the job was written, in UTC; `ts` is the same in milliseconds since 1970."""
        return showing.time_of(self.ts)

    def __repr__(self) -> str:
        return showing.line(
            "Job",
            (
                ("seq", self.seq),
                ("lease_id", self.lease_id),
                ("deadline", showing.moment(self.deadline_ms)),
                ("time", showing.moment(self.ts)),
                ("deliveries", self.deliveries),
                ("tag", None if self.tag is None else repr(self.tag)),
                ("data", showing.short(self.raw)),
                ("meta", None if self.raw_meta is None else showing.short(self.raw_meta)),
            ),
        )


JobRow = tuple[int, int, int, int, int, bytes, str | None, bytes | None]
"""The fields of a `Job`, in order, where an object for each would be one too many."""


class Failure(Value, frozen=True):
    """Why a delivery of a job failed: what was raised, by which worker, when."""

    worker: str
    at_ms: int
    type: str
    message: str

    def __str__(self) -> str:
        """`ValueError: no such picture`."""
        return ": ".join(filter(None, (self.type, self.message))) or "an error without a message"


class PeekedJob(Struct, frozen=True):
    """A job of a queue, looked at without taking the job.

    `node` holds a leased job since `claimed_ts` (None if that was before a restart) until
    `deadline_ts`; a delayed job is ready at `ready_ts`. Times are in milliseconds since 1970.
    """

    seq: int
    state: JobState
    deliveries: int
    node: str | None = None
    claimed_ts: int | None = None
    deadline_ts: int | None = None
    ready_ts: int | None = None
    last_error: Failure | None = None
    tag: str | None = None
    raw: bytes = b"null"

    def with_record(self, record: Record) -> "PeekedJob":
        return msgspec.structs.replace(self, tag=record.tag, raw=record.raw)

    @property
    def data(self) -> Any:  # noqa: ANN401 - any JSON value
        return parse(self.raw)

    def to_dict(self) -> dict[str, Any]:
        """The job as the API spells it; what it does not have has no key. `data` is JSON text."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__[:-3]}
        if self.last_error is not None:
            said = self.last_error
            facts = {"type": said.type, "message": said.message}
            shown["last_error"] = {**facts, "node": said.worker, "ts": said.at_ms}
        shown |= {"tag": self.tag, "data": msgspec.Raw(self.raw)}
        return {name: value for name, value in shown.items() if value is not None}


class PeekedJobs(Value, frozen=True):
    """Jobs of a queue: leased ones, then delayed ones, then ready ones.

    `more` says whether the queue has others.
    """

    topic: str
    jobs: Sequence[PeekedJob]
    more: bool

    def to_dict(self) -> dict[str, Any]:
        jobs = [job.to_dict() for job in self.jobs]
        return {"topic": self.topic, "jobs": jobs, "more": self.more}


class Acked(Value, frozen=True):
    """Jobs finished; `skipped` were not this worker's any more."""

    topic: str
    acked: int
    skipped: Sequence[int]
    ready: int
    in_flight: int


class Nacked(Value, frozen=True):
    """Jobs given back; `skipped` were not this worker's any more."""

    topic: str
    nacked: int
    skipped: Sequence[int]
    ready: int
    in_flight: int


class Extended(Value, frozen=True):
    """Jobs held for longer, with the new deadline of each seq."""

    topic: str
    extended: int
    skipped: Sequence[int]
    deadlines: Mapping[int, int]


class Redriven(Value, frozen=True):
    """Dead letters put back into their queue; `more` says whether some are left."""

    topic: str
    source: str
    moved: int
    more: bool
