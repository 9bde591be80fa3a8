"""Topics that several want to make at the same time."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.unit.queue.builders import Shop, Task

from topics.batch import RecordBatch
from topics.engine.engine import Engine
from topics.errors import HeadMismatch, LogFull, TopicNotFound
from topics.values import Ack


def test_who_comes_when_a_creation_has_just_failed_does_not_wait_for_it() -> None:
    shop = Shop(on_disk=True)
    shop.log.is_holding = True
    creator = shop.engine.put("t", {})
    next(creator)
    shop.fs.fail("pwrite", errno.ENOSPC)
    shop.log.is_holding = False
    shop.log.let_go()
    # Others may be resumed, or come, before the creator hears of it.
    with pytest.raises(LogFull):
        next(shop.engine.append("t", RecordBatch([b"1"])))
    with pytest.raises(LogFull):
        next(shop.engine.put("t", {}))
    with pytest.raises(LogFull):
        next(creator)


def begin_writes(shop: Shop, *conditions: dict[str, Any]) -> list[Task[Ack]]:
    """Writes to one topic that does not exist, all begun before the first has made it."""
    shop.log.is_holding = True
    engine: Engine = shop.engine
    tasks = [shop.loop.begin(engine.append("t", RecordBatch([b"1"]), **c)) for c in conditions]
    shop.log.is_holding = False
    shop.log.let_go()
    shop.loop.settle()
    return tasks


def test_only_the_write_that_made_a_topic_says_so() -> None:
    config = {"ttl_ms": 60_000}
    shop = Shop(on_disk=True)
    acks = [task.result for task in begin_writes(shop, {"config": config}, {}, {"create": True})]
    assert [(ack.created, ack.first_seq) for ack in acks] == [(True, 1), (False, 2), (False, 3)]
    assert shop.engine.kernel.catalog.by_name["t"].config.ttl_ms == 60_000


def test_a_write_behind_one_that_makes_the_topic_finds_it() -> None:
    never = {"config": {"auto_create": False}}
    key = {"key": "k"}
    found = begin_writes(
        Shop(on_disk=True),
        key,
        {"create": False},
        never,
        {"expect_head": 3},
        {"expect_head": 3},
        {"key": "k", "expect_head": 9},
    )
    assert [task.result.first_seq for task in found if task.error is None] == [1, 2, 3, 4, 1]
    assert [type(task.error) for task in found if task.error is not None] == [HeadMismatch]
    assert found[-1].result.deduped


def test_a_write_that_makes_nothing_is_refused_if_nobody_made_the_topic() -> None:
    shop = Shop(on_disk=True)
    shop.log.is_holding = True
    creator = shop.loop.begin(shop.engine.put("t", {}))
    behind = shop.loop.begin(shop.engine.append("t", RecordBatch([b"1"]), create=False))
    shop.fs.fail("pwrite", errno.ENOSPC)
    shop.log.is_holding = False
    shop.log.let_go()
    shop.loop.settle()
    assert isinstance(creator.error, LogFull)
    assert isinstance(behind.error, TopicNotFound)


def test_a_configuration_counts_though_another_makes_the_topic_anew_meanwhile() -> None:
    shop = Shop(on_disk=True)
    shop.put("t")
    shop.log.is_holding = True
    drop = shop.loop.begin(shop.engine.drop("t"))
    write = shop.loop.begin(shop.engine.append("t", RecordBatch([b"1"])))
    put = shop.loop.begin(shop.engine.put("t", {"ttl_ms": 60_000}))
    shop.log.let_go()  # the drop; the write then makes the topic, and the log holds that, too
    shop.loop.settle()
    shop.log.is_holding = False
    shop.log.let_go()
    shop.loop.settle()
    assert drop.result.deleted
    assert (write.result.created, put.result.created) == (True, False)
    assert shop.engine.kernel.catalog.by_name["t"].config.ttl_ms == 60_000
