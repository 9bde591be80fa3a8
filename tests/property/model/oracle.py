"""The naive model of a topic: one fate per seq, no log, no files, no cleverness.

Everything here is written for the reader, who must be able to see at a glance that it is right. It
shares no code with the engine. A `Model` is a value: operations are applied to copies, so that the
states a topic went through can be kept and a crash may be judged against all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Fate = Literal["live", "del", "cap", "ttl", "crash", "trim", "skip"]
Kept = Callable[["Rec"], bool]
GONE_BY_FLOOR = ("cap", "ttl")
ANNOUNCED = ("crash", "trim")


class Refused(Exception):
    """The operation must fail with this error code and change nothing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Draft:
    """A record before it has a place."""

    text: str
    tag: str | None = None
    node: str | None = None
    meta: str | None = None

    @property
    def raw(self) -> bytes:
        return b'"%b"' % self.text.encode()

    @property
    def raw_meta(self) -> bytes | None:
        return None if self.meta is None else b'{"m":"%b"}' % self.meta.encode()

    @property
    def nbytes(self) -> int:
        return len(self.raw) + len(self.raw_meta or b"")

    def as_argument(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"data": self.text}
        if self.tag is not None:
            fields["tag"] = self.tag
        if self.node is not None:
            fields["node"] = self.node
        if self.meta is not None:
            fields["meta"] = {"m": self.meta}
        return fields


@dataclass(frozen=True)
class Rec:
    """A record in its place."""

    ts: int
    draft: Draft

    @property
    def facts(self) -> tuple[int, str | None, str | None, bytes, bytes | None]:
        draft = self.draft
        return self.ts, draft.node, draft.tag, draft.raw, draft.raw_meta


@dataclass(frozen=True)
class Cfg:
    """The settings of a topic that matter to the model."""

    durability: str = "disk"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    type: str = "log"

    def as_fields(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Write:
    """What a write answers."""

    first: int
    last: int
    head: int
    deduped: bool


@dataclass(frozen=True)
class KeyEntry:
    first: int
    count: int
    head: int
    ts: int


@dataclass(frozen=True)
class Gap:
    """Loss a reader is told of."""

    lo: int
    hi: int
    reason: str


@dataclass
class Model:
    """One topic. `volatile` are seqs of an ephemeral life: readable now, lost at any restart."""

    cfg: Cfg
    max_keys: int = 1 << 20
    head: int = 0
    ts: int = 0
    ts_is_soft: bool = False  # raised by a write that failed: memory only
    cap_hi: int = 0
    ttl_hi: int = 0
    fate: dict[int, Fate] = field(default_factory=dict)
    rec: dict[int, Rec] = field(default_factory=dict)
    keys: dict[str, KeyEntry] = field(default_factory=dict)
    cursors: dict[str, tuple[int, int]] = field(default_factory=dict)
    soft_cursors: frozenset[str] = frozenset()  # last moved while ephemeral: memory only
    volatile: frozenset[int] = frozenset()
    was_ephemeral: bool = False  # some of them are of a life before the present configuration
    blurred: frozenset[int] = frozenset()  # dead; a restart may ascribe them to another cause
    exact_from: int = 1  # below it a topic no longer knows what was deleted
    delete_version: int = 0
    version_is_logged: bool = True

    def copy(self) -> Model:
        return replace(
            self,
            fate=dict(self.fate),
            rec=dict(self.rec),
            keys=dict(self.keys),
            cursors=dict(self.cursors),
        )

    # What there is

    def of(self, *fates: Fate) -> list[int]:
        return [seq for seq in range(1, self.head + 1) if self.fate[seq] in fates]

    @property
    def live(self) -> list[int]:
        return self.of("live")

    @property
    def earliest(self) -> int:
        return min(self.live, default=self.head + 1)

    @property
    def floor(self) -> int:
        """First seq not lost to a cap or TTL."""
        return max(self.cap_hi, self.ttl_hi) + 1

    @property
    def nbytes(self) -> int:
        return sum(self.rec[seq].draft.nbytes for seq in self.live)

    def ledger(self) -> Counter[str]:
        return Counter(self.fate[seq] for seq in range(1, self.head + 1))

    # Retention

    def expire(self, now: int) -> bool:
        """Let go what is past its TTL; whether anything was."""
        due = [
            seq for seq in self.live if self.cfg.ttl_ms and now - self.rec[seq].ts > self.cfg.ttl_ms
        ]
        for seq in due:
            self.fate[seq] = "ttl"
            self.ttl_hi = seq
        return bool(due)

    def enforce_caps(self) -> None:
        cfg = self.cfg
        if cfg.discard != "old":
            return
        live = self.live
        size = self.nbytes
        while (cfg.cap_records and len(live) > cfg.cap_records) or (
            cfg.cap_bytes and size > cfg.cap_bytes
        ):
            seq = live.pop(0)
            size -= self.rec[seq].draft.nbytes
            self.fate[seq] = "cap"
            self.cap_hi = seq

    # Changes

    def find_key(self, now: int, key: str) -> KeyEntry | None:
        window = self.cfg.idempotency_window_ms
        while self.keys and now - next(iter(self.keys.values())).ts > window:
            del self.keys[next(iter(self.keys))]
        entry = self.keys.get(key)
        return entry if entry is not None and now - entry.ts <= window else None

    def admit(self, drafts: Sequence[Draft]) -> None:
        cfg = self.cfg
        if cfg.discard == "old":
            return
        size = sum(draft.nbytes for draft in drafts)
        if (cfg.cap_records and len(drafts) > cfg.cap_records) or (
            cfg.cap_bytes and size > cfg.cap_bytes
        ):
            raise Refused("record_too_large")
        if (cfg.cap_records and len(self.live) + len(drafts) > cfg.cap_records) or (
            cfg.cap_bytes and self.nbytes + size > cfg.cap_bytes
        ):
            raise Refused("topic_full")

    def write(self, now: int, drafts: Sequence[Draft], key: str | None) -> Write:
        """Append after admission; TTL was judged by the caller, who knows when that happens."""
        self.ts = max(self.ts, now)
        self.ts_is_soft = False
        first = self.head + 1
        for draft in drafts:
            self.head += 1
            self.fate[self.head] = "live"
            self.rec[self.head] = Rec(self.ts, draft)
        if self.cfg.durability == "ephemeral":
            self.volatile |= set(range(first, self.head + 1))
        self.enforce_caps()
        if key is not None:
            self.keys.pop(key, None)
            self.keys[key] = KeyEntry(first, len(drafts), self.head, now)
            while len(self.keys) > self.max_keys:
                del self.keys[next(iter(self.keys))]
        return Write(first, self.head, self.head, deduped=False)

    def selected(self, before: int | None, accepts: Callable[[str | None], bool]) -> list[int]:
        return [
            seq
            for seq in self.live
            if (before is None or seq < before) and accepts(self.rec[seq].draft.tag)
        ]

    def delete(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            self.fate[seq] = "del"

    def configure(self, cfg: Cfg) -> None:
        if self.cfg.durability == "ephemeral" != cfg.durability and self.volatile:
            self.was_ephemeral = True
        self.cfg = cfg
        self.enforce_caps()

    def hole(self, upto: int, fate: Fate) -> None:
        for seq in range(self.head + 1, upto + 1):
            self.fate[seq] = fate
        self.head = max(self.head, upto)

    def wipe(self, head: int) -> None:
        """The restart of an ephemeral topic: seqs go on, records do not."""
        for seq in self.live:
            self.fate[seq] = "crash"
        self.hole(head, "crash")
        self.cap_hi = self.head
        self.forget_volatile()
        self.blurred = frozenset(self.fate)
        self.exact_from = self.head + 1

    def forget_volatile(self) -> None:
        self.volatile = frozenset()
        self.was_ephemeral = False

    # Reading

    def floor_gap(self, cursor: int) -> Gap | None:
        if cursor + 1 >= self.floor:
            return None
        cap, ttl = self.cap_hi > cursor, self.ttl_hi > cursor
        return Gap(cursor + 1, self.floor - 1, "mixed" if cap and ttl else "cap" if cap else "ttl")

    def run_from(self, seq: int) -> Gap:
        """The rest of the announced run that `seq` lies in."""
        hi = seq
        while hi < self.head and self.fate[hi + 1] == self.fate[seq]:
            hi += 1
        return Gap(seq, hi, "source_trim" if self.fate[seq] == "trim" else "cap")

    def events(self, cursor: int, keeps: Kept) -> Iterator[int | Gap]:
        """Records a filter keeps and announced runs after a cursor at or above the floor."""
        seq = cursor + 1
        while seq <= self.head:
            if self.fate[seq] in ANNOUNCED:
                gap = self.run_from(seq)
                yield gap
                seq = gap.hi
            elif self.fate[seq] == "live" and keeps(self.rec[seq]):
                yield seq
            seq += 1
