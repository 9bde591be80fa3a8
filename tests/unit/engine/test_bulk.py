"""Large pages against small ones: the same records, and every seq accounted for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.builders import Store

from topics.batch import RecordBatch
from topics.core.facts import Match
from topics.engine.effects import run
from topics.engine.engine import Engine
from topics.engine.reads.bulk import BulkPage, UnreadableRecord, slices
from topics.engine.reads.reading import Query
from topics.engine.reads.versioned_pages import Unchanged, VersionedBulk, VersionedPage
from topics.storage.frames.columns import Frames, headers

TAGS = ["a", "b", None]
BIG = 1_000_000


class Pages:
    """A store with one topic `t`, and both ways to read it."""

    def __init__(self) -> None:
        self.store = Store()

    @property
    def engine(self) -> Engine:
        return self.store.log._engine

    def append(self, count: int) -> None:
        head = self.head
        tags = [TAGS[(head + n) % 3] for n in range(count)]
        datas = [b'"%d"' % (head + n + 1) for n in range(count)]
        metas = [b"{}" if n % 2 else b"" for n in range(count)]
        run(self.engine.append("t", RecordBatch(datas, metas, tags)))

    @property
    def head(self) -> int:
        topic = self.engine.kernel.catalog.by_name.get("t")
        return 0 if topic is None else topic.head

    def page(self, **query: Any) -> VersionedPage:  # noqa: ANN401
        found = run(self.engine.pages.read("t", Query(**query), b"", []))
        assert isinstance(found, VersionedPage)
        return found

    def plan(self, **query: Any) -> VersionedBulk:  # noqa: ANN401
        found = run(self.engine.pages.plan("t", Query(**query), b"", []))
        assert isinstance(found, VersionedBulk)
        return found

    def seqs(self, bulk: BulkPage) -> list[int]:
        """The seqs that the frames of a page say they are of."""
        found: list[int] = []
        for wanted in slices(bulk.plan.runs, size=5):
            left = wanted
            while len(left):
                step = self.engine.pages.bulk.step(bulk.plan.topic, left, _seqs)
                some: list[int] = run(step)
                found += some
                left = left[len(some) :]
        return found

    def has(self, version: str, **query: Any) -> bool:  # noqa: ANN401
        found = run(self.engine.pages.read("t", Query(**query), b"", [version]))
        return isinstance(found, Unchanged)


def _seqs(frames: Frames) -> list[int]:
    found: list[int] = headers(frames)["seq"].tolist()
    return found


def check_coverage(bulk: BulkPage) -> None:
    plan = bulk.plan
    live = {seq for lo, hi in plan.runs for seq in range(lo, hi + 1)}
    dead = {seq for lo, hi, _ in plan.holes for seq in range(lo, hi + 1)}
    assert not live & dead
    assert all(plan.first <= seq <= plan.last for seq in live | dead)
    assert len(live) + len(dead) + bulk.filtered == plan.last - plan.first + 1


steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 9)),
    st.tuples(st.just("delete below"), st.integers(1, 12)),
    st.tuples(st.just("delete tag"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("checkpoint"), st.none()),
    st.tuples(st.sampled_from(["restart", "kill", "lose power"]), st.none()),
    st.tuples(st.just("cap"), st.integers(1, 20)),
)
queries = st.fixed_dictionaries(
    {"after": st.integers(0, 40), "limit": st.integers(1, 30), "budget": st.integers(1, 120)},
    optional={
        "to_seq": st.integers(0, 40),
        "match": st.sampled_from([Match("a"), Match("", is_prefix=True)]),
    },
)


def apply(store: Pages, step: tuple[str, Any]) -> None:
    what, how = step
    engine = store.engine
    match what:
        case "append":
            store.append(how)
        case "delete below":
            run(engine.delete("t", before=how, match=None))
        case "delete tag":
            run(engine.delete("t", before=None, match=Match(how)))
        case "checkpoint":
            engine.checkpoint()
        case "restart":
            store.store.restart()
        case "kill":
            store.store.kill()
        case "lose power":
            store.store.lose_power()
        case "cap":
            run(engine.put("t", {"cap_records": how}))


@settings(max_examples=60)
@given(st.lists(steps, max_size=12), queries)
def test_a_large_page_is_the_small_one_and_accounts_for_every_seq(
    history: list[tuple[str, Any]], query: dict[str, Any]
) -> None:
    store = Pages()
    store.append(8)
    for step in history:
        apply(store, step)
    small, large = store.page(**query), store.plan(**query)
    check_coverage(large.bulk)
    last, told = large.bulk.plan.last, small.page.tombstone
    found = [record.seq for record in small.page.records]
    if "match" in query and large.tombstone != told:
        # A filter finds out late that nothing comes before a loss: the next page tells of it.
        assert large.tombstone is None
        assert told is not None
        assert last < told.gap_from
        found = [seq for seq in found if seq <= last]
    else:
        assert large.tombstone == told
        assert large.caught_up == small.page.caught_up
        assert last == small.page.next_from_seq
    assert store.seqs(large.bulk) == found
    assert (large.head, large.earliest) == (small.head, small.earliest)


@settings(max_examples=60)
@given(st.lists(steps, max_size=6), st.lists(steps, max_size=4), queries)
def test_a_version_holds_exactly_as_long_as_its_page(
    before: list[tuple[str, Any]], after: list[tuple[str, Any]], query: dict[str, Any]
) -> None:
    store = Pages()
    store.append(8)
    for step in before:
        apply(store, step)
    old = store.page(**query)
    assert store.has(old.version, **query)
    for step in after:
        apply(store, step)
    new = store.page(**query)
    same = shown(old) == shown(new)
    if store.has(old.version, **query):
        assert same, "a version must not outlive its page"
        assert old.version == new.version
    elif same:
        assert old.version != new.version, "a delete elsewhere changes versions, growth does not"


def shown(found: VersionedPage) -> tuple[Any, ...]:
    page = found.page
    return list(page.records), page.next_from_seq, page.caught_up, page.tombstone


def test_growth_alone_leaves_a_full_page_its_version() -> None:
    store = Pages()
    store.append(20)
    version = store.page(limit=10).version
    store.append(20)
    store.engine.checkpoint()
    assert store.has(version, limit=10)
    assert store.page(limit=10).version == version


def test_a_damaged_record_ends_the_read_and_is_announced_by_the_next() -> None:
    store = Pages()
    store.append(12)
    store.store.restart()
    path = segment_with(store, 6)
    whole = store.store.disk.peek(path)
    at = whole.index(b'"6"')
    store.store.disk.poke(path, at, b'"X"')
    with pytest.raises(UnreadableRecord):
        store.seqs(store.plan(limit=BIG, budget=BIG).bulk)
    cut = store.plan(limit=BIG, budget=BIG)
    check_coverage(cut.bulk)
    assert store.seqs(cut.bulk) == [1, 2, 3, 4, 5]
    told = store.plan(after=5, limit=BIG, budget=BIG)
    check_coverage(told.bulk)
    assert told.tombstone is not None
    assert (told.tombstone.gap_from, told.tombstone.gap_to) == (6, 6)
    assert store.seqs(told.bulk) == list(range(7, 13))
    store.store.disk.poke(path, at, b'"6"')
    healed = store.plan(limit=BIG, budget=BIG)
    assert store.seqs(healed.bulk) == list(range(1, 13))


def segment_with(store: Pages, seq: int) -> str:
    topic = store.engine.kernel.catalog.by_name["t"]
    parts = topic.history.parts  # type: ignore[attr-defined]
    part = next(part for part in parts if part.first <= seq <= part.last)
    segments = store.engine.kernel.segments
    assert segments is not None
    return segments.files(topic.id, part.first).data
