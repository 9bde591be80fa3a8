"""Memory of records that are in no file."""

from __future__ import annotations

import pytest

from topics.engine import arenas
from topics.engine.arenas import Arenas
from topics.storage.sources import Sources


@pytest.fixture
def sources() -> Sources:
    return Sources()


@pytest.fixture
def held(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> Arenas:
    """Two topics with two chunks each, one record in a chunk."""
    monkeypatch.setattr(arenas, "CHUNK_BYTES", 1)
    made = Arenas(sources)
    for topic_id in (1, 2):
        for seq in (1, 2):
            made.keep(topic_id, b"frame", seq)
    return made


def test_what_is_gone_gives_its_memory_back_at_once(held: Arenas, sources: Sources) -> None:
    held.release(1, 2)
    assert len(sources) == 3
    held.forget(2)
    assert len(sources) == 1
    assert held.total == len(b"frame")


def test_what_a_checkpoint_holds_stays_readable_until_it_lets_go(
    held: Arenas, sources: Sources
) -> None:
    held.hold()
    held.release(1, 3)
    held.forget(2)
    assert [sources.get(source_id).pread(0, 5) for source_id in sources] == [b"frame"] * 4
    held.let_go()
    assert len(sources) == 0


def test_what_came_after_the_capture_is_not_held(held: Arenas, sources: Sources) -> None:
    held.hold()
    held.keep(1, b"later", 3)
    held.release(1, 4)
    assert len(sources) == 4
    held.let_go()
    assert len(sources) == 2
