"""Deletes by tag find the tags of records wherever those are."""

import pytest
from tests.unit.engine.builders import Store
from tests.unit.engine.test_admission import DATA, Slow

from topics.batch import RecordBatch
from topics.core.facts import Match
from topics.core.tags import FEW_DEAD
from topics.engine.effects import PAUSE, Pause, run
from topics.engine.reads.tagging import SLICE_RECORDS
from topics.errors import Internal, TopicNotFound


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


def test_a_delete_by_tag_that_cannot_see_all_tags_deletes_nothing_and_says_why() -> None:
    store = Store()
    store.log.create("a", durability="fsync")
    store.append("a", *range(9), tag="t")
    store.log.checkpoint()
    store.restart()
    for path in [path for path in store.disk.paths() if "/topics/" in path]:
        store.disk.unlink(path)
    with pytest.raises(Internal, match="tags of topic 'a' could not be read: "):
        store.log.delete("a", match="t")
    assert store.log.state("a").count == 9


def test_a_delete_by_tag_finds_its_records_though_most_others_die_before_its_turn() -> None:
    slow = Slow()
    run(slow.engine.put("t", {"durability": "fsync"}))
    plain = RecordBatch([DATA] * 2 * FEW_DEAD)
    run(slow.engine.append("t", plain))
    run(slow.engine.append("t", RecordBatch([DATA], None, ["x"], None)))
    assert run(slow.engine.delete("t", before=None, match=Match("y"))).deleted == 0
    slow.log.is_holding = True
    older = slow.loop.begin(slow.engine.delete("t", before=len(plain) + 1, match=None))
    tagged = slow.loop.begin(slow.engine.delete("t", before=None, match=Match("x")))
    slow.let_go()
    assert (older.result.deleted, tagged.result.deleted) == (len(plain), 1)
    assert slow.engine.kernel.topic("t").count == 0


def test_others_have_a_turn_while_many_records_are_looked_through() -> None:
    slow = Slow()
    run(slow.engine.append("t", RecordBatch([DATA] * 4 * SLICE_RECORDS, None, None, None)))
    waits = list(slow.engine.delete("t", before=None, match=Match("x")))
    assert [type(wait) for wait in waits] == [Pause] * 3


def test_a_topic_dropped_while_its_tags_are_loaded_is_not_looked_into_any_more() -> None:
    store = Store()
    store.log.create("a", durability="ephemeral", ttl_ms=1000)
    store.append("a", *range(2 * SLICE_RECORDS), tag="x")
    deletion = store.log._engine.delete("a", before=None, match=Match("x"))
    assert next(deletion) is PAUSE
    store.log.drop("a")
    store.clock.advance(2000)  # what has expired by now went with the topic, and is not to go twice
    with pytest.raises(TopicNotFound):
        run(deletion)
    assert store.kernel.catalog.bytes == 0


def test_who_writes_much_does_not_outrun_a_delete_by_tag() -> None:
    slow = Slow()
    run(slow.engine.append("t", RecordBatch([DATA] * 2 * SLICE_RECORDS)))
    op = slow.engine.delete("t", before=None, match=Match("x"))
    turns = 0
    for wait in op:
        assert wait is PAUSE
        turns += 1
        if turns < 50:
            run(slow.engine.append("t", RecordBatch([DATA] * 2 * SLICE_RECORDS)))
        if turns > 60:
            break
    assert slow.engine.kernel.topic("t").tags.loaded
    assert 0 < turns < 5
