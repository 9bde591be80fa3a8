"""A topic that was dropped leaves the log in peace."""

import pytest
from tests.unit.engine.builders import Store

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
