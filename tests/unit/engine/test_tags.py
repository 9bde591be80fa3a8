"""Deletes by tag find the tags of records wherever those are."""

import pytest
from tests.unit.engine.builders import Store

from topics.errors import Internal


def test_tags_of_dead_records_are_not_looked_for() -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.append("a", 1, 2, tag="t")
    store.log.delete("a", before_seq=3)
    store.append("a", 3, tag="t")
    assert store.log.delete("a", match="t").deleted == 1


def test_a_tag_is_not_taken_from_rotten_bytes() -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    store.append("a", 1, tag="secret")
    store.kill()
    (path,) = [p for p in store.disk.paths() if b"secret" in store.disk.peek(p)]
    store.disk.flip(path, store.disk.peek(path).index(b"secret"))
    with pytest.raises(Internal):
        store.log.delete("a", match="secret")
    assert store.log.state("a").count == 1
