"""Reading through the public door, each page held against the model."""

from __future__ import annotations

from dataclasses import dataclass

from tests.property.model.observe import shown_fate
from tests.property.model.oracle import Gap, Model, Rec

from topics.embedded.log import Log
from topics.values import Page, Tombstone

_HOLE_FATES = {
    "deleted": "del",
    "cap": "cap",
    "ttl": "ttl",
    "crash": "crash",
    "skipped": "skip",
    "source_trim": "trim",
}


@dataclass(frozen=True)
class Selector:
    """A tag selector as a caller writes it."""

    value: str
    is_prefix: bool = False

    @property
    def argument(self) -> list[str]:
        """The long form, in which a `*` inside an exact tag is just a character."""
        if self.is_prefix:
            return ["tag", "Glob", self.value + "*"]
        return ["tag", "Eq", self.value]

    def accepts(self, tag: str | None) -> bool:
        if tag is None:
            return False
        return tag.startswith(self.value) if self.is_prefix else tag == self.value


@dataclass(frozen=True)
class Reading:
    """One way to read a topic to its end."""

    after: int = 0
    limit: int = 256
    budget: int = 1 << 20
    nodes: tuple[str, ...] = ()
    match: Selector | None = None

    def keeps(self, model: Model, rec: Rec) -> bool:
        if model.cfg.dedupe_node and rec.draft.node in self.nodes:
            return False
        return self.match is None or self.match.accepts(rec.draft.tag)


def drain(log: Log, name: str, model: Model, reading: Reading) -> None:
    """Read to the end; every page must be exactly what the model allows."""
    cursor = reading.after
    for _ in range(4 * model.head + 8):
        page = _page(log, name, reading, cursor)
        check_page(page, model, reading, cursor)
        cursor = page.next_from_seq
        if page.caught_up:
            return
    raise AssertionError(f"reading {name} from {reading.after} never ends")


def _page(log: Log, name: str, reading: Reading, cursor: int, from_ts: int | None = None) -> Page:
    return log.read(
        name,
        after=cursor,
        limit=reading.limit,
        max_bytes=reading.budget,
        node=reading.nodes,
        match=None if reading.match is None else reading.match.argument,
        from_ts=from_ts,
    )


def check_page(page: Page, model: Model, reading: Reading, cursor: int) -> None:
    assert page.head_seq == model.head
    assert page.earliest_seq == model.earliest
    assert page.lag == model.head - page.next_from_seq
    assert page.caught_up == (page.lag == 0)
    start, gap = _begin(model, reading, cursor)
    assert _gap_of(page.tombstone) == gap
    if page.tombstone is not None:
        assert page.tombstone.head_seq == model.head
        resumes = model.earliest if gap and gap.reason == "recreated" else page.tombstone.gap_to + 1
        assert page.tombstone.earliest_seq == resumes
    assert page.caught_up or page.next_from_seq > cursor or cursor > model.head
    _check_records(page, model, reading, start, announced=gap is not None)


def _begin(model: Model, reading: Reading, cursor: int) -> tuple[int, Gap | None]:
    """Where records may begin, and the one loss that comes before them."""
    if cursor > model.head:
        return model.earliest - 1, Gap(1, model.head, "recreated")
    below = model.floor_gap(cursor)
    if below is not None:
        return below.hi, below
    first = next(model.events(cursor, lambda rec: reading.keeps(model, rec)), None)
    if isinstance(first, Gap):
        return first.hi, first
    return cursor, None


def _gap_of(tombstone: Tombstone | None) -> Gap | None:
    if tombstone is None:
        return None
    return Gap(tombstone.gap_from, tombstone.gap_to, tombstone.reason)


def _check_records(
    page: Page, model: Model, reading: Reading, start: int, *, announced: bool
) -> None:
    expected: list[int] = []
    used, following, limit = 0, model.head + 1, min(reading.limit, 1000)
    for event in model.events(start, lambda rec: reading.keeps(model, rec)):
        if isinstance(event, Gap):
            if expected or announced:
                following = event.lo
                break
            raise AssertionError(f"{event} was not announced")
        size = model.rec[event].draft.nbytes
        if len(expected) == limit or (expected and used + size > reading.budget):
            following = event
            break
        expected.append(event)
        used += size
    assert [record.seq for record in page.records] == expected
    for record in page.records:
        facts = (record.ts, record.node, record.tag, record.raw, record.raw_meta)
        assert facts == model.rec[record.seq].facts, f"seq {record.seq} changed"
    # The last record asked for ends a read; otherwise it goes up to what has to wait.
    assert page.next_from_seq == (expected[-1] if len(expected) == limit else following - 1)


def read_since(log: Log, name: str, model: Model, from_ts: int) -> None:
    """Start by time: nothing older, nothing missing, newer loss announced."""
    page = _page(log, name, Reading(), 0, from_ts)
    seqs, gaps = [record.seq for record in page.records], [_gap_of(page.tombstone)]
    while not page.caught_up:
        page = _page(log, name, Reading(), page.next_from_seq)
        seqs += [record.seq for record in page.records]
        gaps.append(_gap_of(page.tombstone))
    assert seqs == [seq for seq in model.live if model.rec[seq].ts >= from_ts]
    for seq in model.of("cap", "ttl"):
        if seq in model.rec and model.rec[seq].ts >= from_ts:
            assert any(gap and gap.lo <= seq <= gap.hi for gap in gaps), f"loss of {seq} unsaid"


def check_views(log: Log, name: str, model: Model) -> None:
    """State, ledger and holes as a caller gets them."""
    state, audit = log.state(name), log.audit(name)
    assert (state.head_seq, state.earliest_seq) == (model.head, model.earliest)
    assert (state.count, state.bytes) == (len(model.live), model.nbytes)
    assert state.delete_version == model.delete_version
    assert {k: state.config[k] for k in model.cfg.as_fields()} == model.cfg.as_fields()
    ledger = model.ledger()
    assert audit.adds_up
    assert audit.evict_floor == model.floor
    shown = (audit.live, audit.deleted, audit.lost_cap, audit.lost_ttl, audit.lost_crash)
    assert shown == tuple(ledger[fate] for fate in ("live", "del", "cap", "ttl", "crash"))
    assert (audit.skipped, audit.source_trim) == (ledger["skip"], ledger["trim"])
    check_holes(log, name, model, 1, model.head)


def check_holes(log: Log, name: str, model: Model, lo: int, hi: int) -> None:
    if hi < lo:
        return
    holes = log.holes(name, from_seq=lo, to_seq=hi)
    found: dict[int, str] = {}
    for run in holes.runs:
        for seq in range(run.from_seq, run.to_seq + 1):
            assert seq not in found
            found[seq] = _HOLE_FATES[run.kind]
    for seq in range(max(lo, 1), min(hi, model.head) + 1):
        fate = shown_fate(model, seq)
        if fate == "live":
            assert seq not in found, f"live seq {seq} is shown as a hole"
        elif fate == "lost" or seq in model.blurred:
            reached = {"cap": model.cap_hi, "ttl": model.ttl_hi}
            assert reached.get(found[seq], model.head) >= seq
        else:
            assert found[seq] == fate
    assert holes.next_from_seq == max(min(hi, model.head) + 1, lo, 1)


def check_cursors(log: Log, name: str, model: Model, now_ms: int) -> None:
    shown = log.cursors(name)
    assert {c.cursor: (c.seq, c.updated_ts) for c in shown} == model.cursors
    for cursor in shown:
        assert cursor.lag_seqs == max(0, model.head - cursor.seq)
        waiting = [seq for seq in model.live if seq > cursor.seq]
        assert cursor.lag_records == len(waiting)
        age = max(0, now_ms - model.rec[waiting[0]].ts) if waiting else 0
        assert cursor.lag_seconds == age / 1000
        pending = model.floor_gap(cursor.seq)
        before = range(cursor.seq + 1, waiting[0] if waiting else model.head + 1)
        has_run = any(model.fate[seq] in ("crash", "trim") for seq in before)
        is_ahead = cursor.seq > model.head
        assert cursor.gap_pending == (pending is not None or has_run or is_ahead)
