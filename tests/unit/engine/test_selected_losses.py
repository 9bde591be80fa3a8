"""Removing exactly what a call names, and telling beforehand what tighter settings remove."""

from __future__ import annotations

import pytest

from topics.batch import RecordBatch
from topics.core.facts import Match
from topics.engine.effects import run
from topics.engine.engine import Engine, memory_engine
from topics.engine.settings import EngineSettings
from topics.errors import Throttled, TopicExistsIncompatible
from topics.testing import ManualClock
from topics.values import Eviction

HOUR_MS = 3_600_000


def filled(clock: ManualClock) -> Engine:
    """Ten records of ten bytes, an hour between them, every second one tagged."""
    engine = memory_engine(EngineSettings(max_topics=1), clock)
    for n in range(10):
        run(engine.append("t", RecordBatch([b'"12345678"'], tags=["odd" if n % 2 else None])))
        clock.advance(HOUR_MS)
    return engine


@pytest.mark.parametrize(
    ("config", "evicted"),
    [
        ({}, Eviction(0, 0)),
        ({"cap_records": 10, "cap_bytes": 100, "ttl_ms": 11 * HOUR_MS}, Eviction(0, 0)),
        ({"cap_records": 4}, Eviction(6, 60)),
        ({"cap_bytes": 35}, Eviction(7, 70)),
        ({"cap_records": 4, "discard": "reject"}, Eviction(0, 0)),
        ({"ttl_ms": 3 * HOUR_MS + 1}, Eviction(7, 70)),
        ({"ttl_ms": 8 * HOUR_MS + 1, "cap_records": 5}, Eviction(5, 50)),
        ({"ttl_ms": 1}, Eviction(10, 100)),
    ],
)
def test_a_dry_run_tells_what_the_change_then_takes(
    config: dict[str, object], evicted: Eviction
) -> None:
    engine = filled(ManualClock())
    tried = run(engine.put("t", config, dry_run=True))
    assert (tried.created, tried.evicted) == (False, evicted)
    assert engine.kernel.topic("t").count == 10
    assert run(engine.put("t", config)).evicted is None
    assert run(engine.views.state("t")).count == 10 - evicted.records


def test_a_dry_run_refuses_what_the_change_would_refuse() -> None:
    engine = filled(ManualClock())
    with pytest.raises(TopicExistsIncompatible):
        run(engine.put("t", {"type": "queue"}, dry_run=True))
    with pytest.raises(Throttled):
        run(engine.put("another", {}, dry_run=True))


def test_a_tag_and_a_position_narrow_what_a_delete_names() -> None:
    engine = filled(ManualClock())
    odd = Match("odd", is_prefix=False)
    assert run(engine.delete("t", before=8, match=odd, seqs=[9, 1, 2, 4, 8, 77])).deleted == 2
    assert not any(map(engine.kernel.topic("t").is_live, (2, 4)))
    assert run(engine.delete("t", before=None, match=odd, seqs=[])).deleted == 0
