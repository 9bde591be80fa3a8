"""What the rest of a log tells of a topic whose creation is lost."""

from __future__ import annotations

from array import array

from topics.core.config import parse_json
from topics.core.facts import (
    Appended,
    CheckpointEntry,
    CheckpointMarked,
    ClosedCleanly,
    ConfigUpdated,
    Deleted,
    Fact,
    Forwarded,
    HeadReserved,
    LeaseChanged,
    RouterCreated,
    RouterDeleted,
    StageCommitted,
    TopicCreated,
    TopicDeleted,
)
from topics.engine.recovery.lost_creations import Recreated, recreated
from topics.storage.frames.header import FLAG_DURABLE
from topics.storage.wal.scan import GenerationScan
from topics.topic_settings import TopicConfig

NOTHING = TopicConfig().to_json()


def found(*facts: Fact, known: int = 1, taken: tuple[str, ...] = ()) -> list[Recreated]:
    """Of a log with these facts; ids below `known` are the snapshot's."""
    part = GenerationScan(1, 0, 1, b"", list(enumerate(facts, 1)))
    return recreated([part], is_known=lambda topic_id: topic_id < known, taken=taken)


def config_of(*facts: Fact) -> TopicConfig:
    (made,) = found(*facts)
    return parse_json(made.fact.config)


def append(topic_id: int, *, durable: bool = False) -> Appended:
    one = array("I", [60])
    flags = array("B", [FLAG_DURABLE if durable else 0])
    return Appended(topic_id, 1, one, one, array("Q", [70]), array("H", [0]), flags)


def created(topic_id: int, name: str) -> TopicCreated:
    return TopicCreated(topic_id, 5, name, NOTHING, topic_id, 1)


def router(source_id: int, dest_id: int) -> RouterCreated:
    return RouterCreated(
        5, "r", "from", "to", source_id, dest_id, True, True, True, False, False, None, 0, 0
    )


def test_a_topic_that_is_created_first_needs_nothing_whatever_mentions_it_before() -> None:
    assert found(router(1, 2), created(1, "a"), append(1), created(2, "b")) == []


def test_a_topic_of_the_snapshot_or_one_that_was_dropped_is_left_alone() -> None:
    assert found(append(3), append(4), TopicDeleted(4, 5, "b", 4), known=4) == []


def test_a_topic_without_a_name_gets_one_that_nobody_has() -> None:
    (made,) = found(append(7), created(8, "salvaged-7-x"), taken=("salvaged-7",))
    assert made.fact == TopicCreated(7, 70, "salvaged-7-x-x", NOTHING, 7, 1)
    assert made.has_made_up_name
    assert "topic 7" in made.warning
    assert "a name made up for it" in made.warning


def test_settings_routers_and_staged_commits_tell_the_name() -> None:
    config = TopicConfig(type="queue", cap_records=3, durability="ephemeral").to_json()
    commit = StageCommitted(5, "app", 1, (), ((4, 1, 1), (5, 1, 1)), b'{"d":{},"e":{}}')
    facts = (
        ConfigUpdated(1, 5, "a", config, 1, 1),
        router(2, 3),
        commit,
        RouterDeleted(5, "r", 2, 3),
    )
    made = found(*facts, append(2))
    assert [one.fact.name for one in made] == ["a", "from", "to", "d", "e"]
    assert not any(one.has_made_up_name for one in made)
    assert "its name" in made[0].warning
    # The caps come with the change itself; before it nobody knows of any.
    assert parse_json(made[0].fact.config) == TopicConfig(type="queue")


def test_a_topic_of_which_only_heads_are_left_is_made_again_to_announce_them() -> None:
    mark = CheckpointMarked(5, 1, (CheckpointEntry(2, 9, 0, 0, 1, 1, 0, 0),))
    made = found(ClosedCleanly(5, ((1, 4),)), mark)
    assert [one.fact.name for one in made] == ["salvaged-1", "salvaged-2"]
    assert all(one.may_be_volatile for one in made)


def test_records_tell_the_class_and_acks_the_type() -> None:
    passed = Forwarded(1, 5, "r", 9, True, True, True, False, False, 1, 1, 1, ((1, 1, False),))
    lease = LeaseChanged(1, 1, 5, LeaseChanged.CLAIMED, 1, 9, 1, "n")
    fsync = config_of(append(1, durable=True), append(1))
    assert (fsync.durability, fsync.durable, fsync.type) == ("fsync", True, "log")
    assert config_of(append(1), append(1, durable=True)).durability == "disk"
    assert config_of(passed, append(1, durable=True)).durability == "disk"
    assert config_of(append(1), lease).type == "queue"
    assert config_of(append(1), Deleted(1, 5, seqs=(1,))).type == "queue"
    assert config_of(append(1), Deleted(1, 5, before=2)).type == "log"
    (reserved,) = found(HeadReserved(1, 5, 65_536))
    assert reserved.may_be_volatile
    assert not any(one.may_be_volatile for one in found(append(1)))


def test_a_topic_whose_name_was_given_again_had_been_dropped() -> None:
    config = ConfigUpdated(1, 5, "a", NOTHING, 1, 1)
    assert found(config, created(2, "a"), TopicDeleted(2, 5, "a", 2)) == []


def test_a_topic_that_an_earlier_salvage_made_keeps_what_it_was_given() -> None:
    earlier = TopicCreated(1, 5, "salvaged-1", TopicConfig(type="queue").to_json(), 1, 1)
    (made,) = found(append(1), earlier)
    assert made.fact is earlier
    assert made.is_logged
