"""When the delete bytes of a topic with very many deletes are written."""

from __future__ import annotations

import pytest
from tests.unit.engine.builders import Store

from topics.core import topic as topic_module


def test_a_delete_below_what_snapshots_name_is_named_in_two_and_then_gets_its_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_module, "MAX_DELETED_RUNS", 1)
    store = Store()
    store.log.append("t", [{"data": n, "tag": f"t{n}"} for n in range(1, 10)])
    store.log.checkpoint()
    for gone in (2, 4, 8):
        store.log.delete("t", match=f"t{gone}")
    store.log.checkpoint()
    store.log.delete("t", match="t3")
    named = []
    for _ in range(5):
        store.log.checkpoint()
        twin = Store(store.disk.clone())
        topic = twin.topic("t")
        assert (topic.count, list(topic.deleted)) == (5, [(2, 4), (8, 8)])
        named.append(list(topic.unflipped))
    assert named == [[(3, 3)], [(3, 3)], [], [], []]
    assert not store.kernel.dirty
