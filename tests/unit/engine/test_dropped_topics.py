"""A topic that was dropped leaves the log in peace."""

import pytest
from tests.unit.engine.builders import Held, Store

from topics.engine.retention import due_eviction, lose_expired
from topics.errors import TopicNotFound
from topics.storage.crashpoints import installed
from topics.testing import PowerOff


def test_frames_of_a_dropped_topic_whose_files_are_gone_do_not_stop_a_start() -> None:
    store = Store()
    store.log.create("a", durability="fsync", cap_records=2)
    store.append("a", 1, 2, tag="t")
    store.log.checkpoint()
    store.append("a", 3, 4)
    store.log.delete("a", match="t")
    store.log.drop("a")
    store.kill()
    assert store.log.topics() == []


def test_a_drop_that_had_renamed_only_one_tier_is_finished_by_the_next_start() -> None:
    store = Store()
    store.settings |= {"cold_dir": "/cold", "hot_retain_segments": 1}
    store.restart()
    store.log.create("a", durability="fsync", cap_records=40)
    store.append("a", *range(20))
    store.log.checkpoint()
    store.log.checkpoint()
    store.log.maintain()

    def die(point: str) -> None:
        if point == "topic.renamed":
            raise PowerOff(point)

    store.log.drop("a")
    with installed(die), pytest.raises(PowerOff):
        store.log.maintain()
    store.kill()
    assert store.log.topics() == []
    store.log.create("a")
    assert store.log.state("a").head_seq == 0


def test_cursors_go_with_their_topic() -> None:
    store = Store()
    store.append("a", 1, 2, 3)
    store.log.set_cursor("a", "etl", 2)
    store.log.drop("a")
    store.append("a", 4, 5, 6)
    assert store.log.cursors("a") == []
    store.kill()
    assert store.log.cursors("a") == []


def test_the_disk_space_of_a_dropped_topic_comes_back_though_nobody_writes_any_more() -> None:
    store = Store()
    store.append("a", *range(10))
    store.append("b", 1)
    store.log.checkpoint()
    store.log.drop("a")
    for _ in range(3):
        store.clock.advance(60_000)
        store.log.maintain()
    assert store.disk.listdir("/data/topics") == ["00000002"]
    snapshots = store.disk.listdir("/data/meta")
    store.clock.advance(600_000)
    store.log.maintain()
    assert store.disk.listdir("/data/meta") == snapshots, "nothing is left to do"


def test_checkpoints_alone_remove_the_files_of_a_dropped_topic() -> None:
    store = Store()
    store.append("a", 1)
    store.append("b", 1)
    store.log.checkpoint()
    store.log.drop("a")
    for _ in range(2):  # and no other upkeep
        store.log.checkpoint()
    assert store.disk.listdir("/data/topics") == ["00000002"]


def test_a_cursor_that_is_moved_or_dropped_beside_its_topic_is_not_found() -> None:
    store = Held()
    store.append("a", 1, 2, 3)
    store.log.set_cursor("a", "etl", 2)
    store.hold()
    engine = store.log._engine
    dropping = store.tasks.begin(engine.drop("a"))
    moving = store.tasks.begin(engine.cursors.put("a", "etl", 3))
    removing = store.tasks.begin(engine.cursors.drop("a", "etl"))
    store.let_go()
    assert dropping.result.deleted
    for task in (moving, removing):
        assert isinstance(task.error, TopicNotFound)


def test_a_delete_that_waited_for_a_drop_leaves_the_bytes_of_others_alone() -> None:
    store = Held()
    store.append("kept", "x" * 100)
    store.append("a", 1, 2, 3)
    left = store.topic("kept").bytes
    store.hold()
    engine, topic = store.log._engine, store.topic("a")
    dropping = store.tasks.begin(engine.drop("a"))
    deleting = store.tasks.begin(engine.delete_seqs(topic, [1, 2]))
    store.let_go()
    assert dropping.result.deleted
    assert isinstance(deleting.error, TopicNotFound)
    assert store.kernel.catalog.bytes == left


def test_a_loss_that_comes_to_light_behind_a_drop_is_not_counted() -> None:
    store = Held()
    store.log.create("a", durability="ephemeral", ttl_ms=1000)
    store.append("a", 1, 2, 3)
    topic = store.topic("a")
    store.clock.advance(2000)
    loss = due_eviction(store.kernel, topic)
    assert loss is not None
    store.log.drop("a")
    lose_expired(store.kernel, topic, loss)
    assert store.kernel.catalog.bytes == 0


def test_nothing_is_remembered_of_topics_and_routers_that_were_dropped() -> None:
    store = Store()
    log, engine = store.log, store.log._engine
    ceilings, forwarder = engine._ceilings, engine.forwarder
    for _ in range(3):
        log.create("a", durability="disk")
        store.append("a", *range(300))
        log.route("one", source="a", dest="b", exactly_once=True)
        log.route("two", source="a", dest="c", exactly_once=True)
        store.append("a", *range(300))
        engine.forward()
        assert ceilings._blocks
        assert ceilings.half_used
        assert set(forwarder._signed._known) == {"one", "two"}
        log.drop_router("two")
        assert set(forwarder._signed._known) == {"one"}
        for name in "abc":
            log.drop(name)
        assert not ceilings._blocks
        assert not ceilings.half_used
        assert not forwarder._shared
        assert not forwarder._signed._known
