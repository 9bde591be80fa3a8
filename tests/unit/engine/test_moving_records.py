"""Reads whose records move to a segment, and whose log file goes, while they wait for the disk."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.engine.builders import Store

from topics.engine.effects import Op, fulfil, resumed, run
from topics.engine.reads.bulk import slices
from topics.engine.reads.reading import Query
from topics.engine.reads.versioned_pages import VersionedBulk
from topics.errors import Internal
from topics.storage.frames.columns import Frames, headers
from topics.values import Page


def held(op: Op[Any], meanwhile: Callable[[], object]) -> Any:  # noqa: ANN401 - what it returns
    """Run an operation; something else happens each time it begins to wait, the first two times."""
    pauses: Iterator[int] = iter(range(2))
    try:
        wait = next(op)
        while True:
            if next(pauses, None) is not None:
                meanwhile()
            wait = fulfil(op, wait)
    except StopIteration as finished:
        return finished.value


def store_with_old_log() -> Store:
    """Records that only files of an earlier run hold, with others between them."""
    store = Store()
    for topic in ("t", "other"):
        store.log.create(topic, durability="fsync")
    for number in range(4):
        store.append("t", number)
        store.append("other", "x" * 5000)  # far enough apart to need a read each
    store.kill()
    return store


def let_the_log_go(store: Store) -> None:
    for _ in range(2):
        store.append("other", 0)
        store.log.checkpoint()


def test_a_page_finds_records_that_moved_while_it_waited() -> None:
    store = store_with_old_log()
    before = set(store.disk.paths())
    page: Page = held(store.log._engine.read("t", Query()), lambda: let_the_log_go(store))
    assert [record.data for record in page.records] == [0, 1, 2, 3]
    assert page.tombstone is None
    assert any(path.endswith(".log") for path in before - set(store.disk.paths()))


def test_a_page_announces_records_that_were_lost_while_it_waited() -> None:
    store = Store()
    store.log.create("t", durability="fsync", cap_records=8)
    store.append("t", *range(8))
    store.log.checkpoint()
    read = store.log._engine.read("t", Query())
    wait = next(read)
    for _ in range(4):  # the segment that the read is about to look at goes
        store.append("t", *range(8))
        store.log.checkpoint()
    page: Page = run(resumed(read, wait))
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, len(page.records)) == (1, 8, 0)


def test_a_page_passes_over_records_that_were_deleted_while_it_waited() -> None:
    store = Store()
    store.log.create("t", durability="fsync")
    store.append("t", *range(12))
    store.log.checkpoint()
    read = store.log._engine.read("t", Query())
    wait = next(read)
    store.log.delete("t", before_seq=9)
    for number in range(4):
        store.append("t", number)
        store.log.checkpoint()
    page: Page = run(resumed(read, wait))
    assert [record.seq for record in page.records] == [9, 10, 11, 12]
    assert page.tombstone is None


def test_a_large_page_finds_records_that_moved_while_it_waited() -> None:
    store = store_with_old_log()
    pages = store.log._engine.pages
    found = run(pages.plan("t", Query(), b"", []))
    assert isinstance(found, VersionedBulk)
    (seqs,) = slices(found.bulk.plan.runs)
    seen: list[int] = []

    def note(frames: Frames) -> int:
        seen.extend(headers(frames)["seq"].tolist())
        return frames.size

    while len(seqs):
        step = pages.bulk.step(found.bulk.plan.topic, seqs, note)
        seqs = seqs[held(step, lambda: let_the_log_go(store)) :]
    assert seen == [1, 2, 3, 4]


def test_copies_in_memory_that_were_given_back_are_not_taken_for_rot() -> None:
    store = Store()
    for topic in ("source", "dest"):
        store.log.create(topic, durability="fsync")
    store.log.route("r", source="source", dest="dest")
    store.append("source", *range(4))
    store.log.read("dest")
    pages = store.log._engine.pages
    found = run(pages.plan("dest", Query(), b"", []))
    assert isinstance(found, VersionedBulk)
    (seqs,) = slices(found.bulk.plan.runs)
    step = pages.bulk.step(found.bulk.plan.topic, seqs, lambda frames: frames.size)
    assert held(step, store.log.checkpoint) >= 1
    assert store.log.read("dest").tombstone is None


def test_a_disk_that_cannot_be_read_is_still_an_error() -> None:
    store = store_with_old_log()
    with pytest.raises(Internal, match="could not be read"):
        held(store.log._engine.read("t", Query()), lambda: _break(store))


def _break(store: Store) -> None:
    def fail(path: str, size: int, offset: int) -> bytes:
        raise OSError(errno.EIO, path)

    source = store.kernel.sources.get(store.topic("t").tail.locations[0] >> 32)
    source._handles.pread = fail  # type: ignore[attr-defined]  # the disk, as this log sees it
