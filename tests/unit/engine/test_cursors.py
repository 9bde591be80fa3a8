"""Named cursors: several who set, move and drop them at once, and what they tell."""

from __future__ import annotations

import errno

import pytest
from tests.unit.queue.builders import Shop

import topics
from topics.engine.effects import run
from topics.engine.writes.deleting import MAX_CURSORS
from topics.errors import LogFull, Throttled, TopicNotFound


def shop_with_a_topic() -> Shop:
    shop = Shop(on_disk=True)
    shop.put("t", durability="fsync")
    shop.append(3, name="t")
    return shop


def test_of_several_who_set_a_new_cursor_one_made_it() -> None:
    shop = shop_with_a_topic()
    cursors = shop.engine.cursors
    shop.log.is_holding = True
    puts = [shop.loop.begin(cursors.put("t", "c", seq)) for seq in (1, 2)]
    drops = [shop.loop.begin(cursors.drop("t", "c")) for _ in range(2)]
    puts.append(shop.loop.begin(cursors.put("t", "c", 3)))
    shop.log.is_holding = False
    shop.log.let_go()
    shop.loop.settle()
    assert [put.result[0] for put in puts] == [True, False, True]
    assert [put.result[1].seq for put in puts] == [1, 2, 3]
    assert [drop.result for drop in drops] == [True, False]
    assert run(cursors.get("t", "c")).seq == 3


def test_who_set_a_cursor_is_told_so_though_it_is_dropped_at_once() -> None:
    shop = shop_with_a_topic()
    cursors = shop.engine.cursors
    shop.log.is_holding = True
    put = shop.loop.begin(cursors.put("t", "c", 2))
    drop = shop.loop.begin(cursors.drop("t", "c"))
    shop.log.is_holding = False
    shop.log.let_go()
    shop.loop.settle()
    assert (put.result[0], put.result[1].seq, drop.result) == (True, 2, True)
    assert run(cursors.list("t")) == []


def test_the_cap_of_cursors_counts_those_on_their_way() -> None:
    shop = shop_with_a_topic()
    cursors = shop.engine.cursors
    for number in range(MAX_CURSORS - 2):
        run(cursors.put("t", f"c{number}", 1))
    shop.put("other", durability="fsync")
    shop.log.is_holding = True
    elsewhere = shop.loop.begin(cursors.put("other", "c", 0))
    more = [shop.loop.begin(cursors.put("t", name, 1)) for name in ("a", "a", "b", "c", "c0")]
    shop.log.is_holding = False
    shop.log.let_go()
    shop.loop.settle()
    assert elsewhere.error is None
    assert [isinstance(put.error, Throttled) for put in more] == [False, False, False, True, False]
    assert len(run(cursors.list("t"))) == MAX_CURSORS


def test_a_cursor_that_could_not_be_set_is_not_there() -> None:
    shop = shop_with_a_topic()
    cursors = shop.engine.cursors
    shop.fs.fail("pwrite", errno.ENOSPC)
    failed = shop.loop.begin(cursors.put("t", "c", 1))
    assert isinstance(failed.error, LogFull)
    assert not run(cursors.drop("t", "c"))


def test_a_refused_move_changes_nothing_for_those_behind_it() -> None:
    shop = shop_with_a_topic()
    cursors = shop.engine.cursors
    shop.log.is_holding = True
    put = shop.loop.begin(cursors.put("t", "c", 1))
    shop.engine.kernel.committer.is_queued = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shop.log, "room", lambda shard, size: False)
        refused = shop.loop.begin(cursors.drop("t", "c"))
    shop.engine.kernel.committer.is_queued = False
    drop = shop.loop.begin(cursors.drop("t", "c"))
    shop.log.is_holding = False
    shop.log.let_go()
    shop.loop.settle()
    assert isinstance(refused.error, Throttled)
    assert (put.result[0], drop.result) == (True, True)
    assert run(cursors.list("t")) == []


def test_a_cursor_of_a_topic_that_was_made_anew_meanwhile_is_not_told_of() -> None:
    shop = shop_with_a_topic()
    shop.log.is_holding = True
    put = shop.engine.cursors.put("t", "c", 1)
    next(put)
    shop.log.is_holding = False
    shop.log.let_go()
    run(shop.engine.drop("t"))
    shop.put("t")
    with pytest.raises(TopicNotFound):
        run(put)


def test_a_gap_is_pending_wherever_the_next_read_begins_with_it() -> None:
    with topics.open() as log:
        log.append("dest", [{"data": 1}, {"data": 2}])
        log.create("source", cap_records=1)
        log.route("copies", source="source", dest="dest")
        log.append("source", [{"data": seq} for seq in (1, 2, 3)])  # the cap takes the first two
        assert log.state("dest").head_seq == 5
        log.delete("dest", before_seq=3)  # silent: the loss of 3 and 4 comes first
        for seq in range(6):
            tombstone = log.read("dest", after=seq).tombstone
            state = log.set_cursor("dest", f"at-{seq}", seq)
            assert state.gap_pending == (tombstone is not None), f"cursor {seq}: {tombstone}"
        assert log.cursor("dest", "at-0").gap_pending
