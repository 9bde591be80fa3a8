"""A page that was rendered before is given again only while reading would give the same."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.delivery.builders import InlineRunner

from topics.batch import RecordBatch
from topics.core.facts import Match
from topics.delivery.pages import ENTRY_BYTES, PageCache
from topics.engine.effects import run
from topics.engine.engine import Engine, memory_engine
from topics.engine.reads.reading import Query
from topics.engine.routers.routing import RouterSpec
from topics.engine.settings import EngineSettings
from topics.http.api import reading
from topics.testing import ManualClock
from topics.values import Page
from topics.wire.rendering import render_records, rows_of
from topics.wire.requests import DiffBody

CLOCK = 1_000_000


class World:
    """A topic of ten records, and a service that reads and remembers its pages."""

    def __init__(self, **config: object) -> None:
        self.clock = ManualClock(CLOCK)
        self.engine: Engine = memory_engine(EngineSettings(), self.clock)
        self.pages = PageCache(self.engine, InlineRunner())
        run(self.engine.put("t", config))
        self.append(10)

    def append(self, count: int) -> None:
        run(self.engine.append("t", RecordBatch([b"1"] * count, None, ["x"] * count, None)))

    def recreate(self) -> None:
        run(self.engine.drop("t"))
        run(self.engine.put("t", {}))
        self.append(10)

    @property
    def call(self) -> Any:  # noqa: ANN401 - as much of a call as a read looks at
        return SimpleNamespace(
            engine=self.engine,
            service=SimpleNamespace(pages=self.pages),
            reply=lambda response: None,
            elapsed_ms=lambda: 0.0,
        )

    def read(self, asked: DiffBody) -> Page:
        query = Query(after=asked.cursor, limit=asked.limit, budget=asked.max_batch_bytes)
        return run(self.engine.read("t", query))

    def keep(self, asked: DiffBody) -> bytes:
        page = self.read(asked)
        reading._Diff(self.call, "t", asked)._answer(page)
        return render_records(rows_of(page.records))

    def known(self, asked: DiffBody) -> bytes | None:
        found = reading._known(self.call, "t", asked)
        return None if found is None else found[1].records


FULL = DiffBody(from_seq=2, limit=4)
AT_HEAD = DiffBody(from_seq=8, limit=100)


@pytest.mark.parametrize("asked", [FULL, AT_HEAD])
def test_a_page_is_known_once_it_was_read(asked: DiffBody) -> None:
    world = World()
    assert world.known(asked) is None
    rendered = world.keep(asked)
    assert world.known(asked) == rendered
    assert world.known(msgspec.structs.replace(asked, limit=3)) is None
    assert world.known(msgspec.structs.replace(asked, from_seq=1)) is None
    assert world.known(msgspec.structs.replace(asked, include_tags=True)) is None


def test_growth_matters_only_to_a_page_that_reached_the_head() -> None:
    world = World()
    rendered = world.keep(FULL)
    world.keep(AT_HEAD)
    world.append(1)
    assert world.known(FULL) == rendered
    assert world.known(AT_HEAD) is None


CHANGES: list[tuple[str, Callable[[World], object]]] = [
    ("a delete", lambda w: run(w.engine.delete("t", before=4, match=None))),
    ("a delete by tag", lambda w: run(w.engine.delete("t", before=None, match=Match("x")))),
    ("an eviction", lambda w: run(w.engine.put("t", {"cap_records": 3}))),
    ("a recreation", lambda w: w.recreate()),
]


@pytest.mark.parametrize("change", [call for _, call in CHANGES], ids=[name for name, _ in CHANGES])
@pytest.mark.parametrize("asked", [FULL, AT_HEAD])
def test_a_page_that_may_have_lost_records_is_read_again(
    change: Callable[[World], object], asked: DiffBody
) -> None:
    world = World()
    world.keep(asked)
    change(world)
    assert world.known(asked) is None


def test_a_page_is_read_again_when_records_have_expired() -> None:
    world = World(ttl_ms=1000)
    world.keep(FULL)
    assert world.known(FULL) is not None
    world.clock.advance(1001)
    assert world.known(FULL) is None


def test_a_topic_that_is_fed_by_routers_is_always_read() -> None:
    world = World()
    world.keep(FULL)
    run(world.engine.routing.put("r", RouterSpec(source="s", dest="t")))
    assert world.known(FULL) is None


@pytest.mark.parametrize(
    "asked",
    [
        DiffBody(from_seq=2, limit=4, node="n"),
        DiffBody(from_seq=2, limit=4, match="x"),
        DiffBody(from_ts=1, limit=4),
    ],
)
def test_reads_with_a_filter_or_a_time_are_not_kept(asked: DiffBody) -> None:
    world = World()
    world.keep(asked)
    assert world.known(asked) is None


def test_a_page_with_news_of_loss_is_not_kept() -> None:
    world = World(cap_records=5)
    asked = DiffBody(from_seq=0, limit=5)
    page = world.read(asked)
    assert page.tombstone is not None
    world.keep(asked)
    assert world.known(asked) is None


def test_the_oldest_pages_go_when_there_are_too_many_bytes() -> None:
    world = World()
    size = 2 * len(world.keep(FULL)) + ENTRY_BYTES
    world.pages = PageCache(world.engine, InlineRunner(), max_bytes=4 * size + 64)
    world.keep(FULL)
    others = [DiffBody(from_seq=seq, limit=4) for seq in range(3, 7)]
    for other in others:
        world.keep(other)
    assert world.known(FULL) is None
    assert all(world.known(other) is not None for other in others)


def test_a_known_page_counts_as_a_read() -> None:
    world = World()
    world.keep(FULL)
    world.clock.advance(5000)
    world.known(FULL)
    assert world.engine.kernel.catalog.by_name["t"].last_read_ts == CLOCK + 5000
