"""Where seqs go on after a restart, by class and by what is known of the run before."""

from __future__ import annotations

from array import array

import pytest

from topics.core.config import parse
from topics.core.facts import Appended, HeadReserved, SeqSkipped
from topics.core.topic import Ledger, Topic
from topics.engine.recovery.next_seqs import resume_head

WRITTEN, RESERVED = 3, 10


def replayed(durability: str, *, reserved: int = RESERVED) -> Topic:
    """A topic of three records as the log brings it back."""
    topic = Topic(7, "t", 7, parse({"durability": durability}, topic="t"), max_keys=1)
    zeros = array("I", [0] * WRITTEN)
    topic.apply_appended(
        Appended(
            7,
            1,
            zeros,
            array("I", [60] * WRITTEN),
            array("Q", [5] * WRITTEN),
            array("H", [0] * WRITTEN),
            array("B", [0] * WRITTEN),
        )
    )
    topic.reserved = reserved
    return topic


def audited(topic: Topic) -> Ledger:
    """The ledger, which has to add up."""
    assert topic.head == topic.handed_out == topic.count + topic.ledger.gone
    return topic.ledger


@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_a_class_that_reserves_nothing_goes_on_behind_its_last_record(durability: str) -> None:
    topic = replayed(durability)
    assert resume_head(topic, same_boot=False, keeps_reserved=False) is None
    assert topic.head == WRITTEN
    assert audited(topic) == Ledger()


@pytest.mark.parametrize(
    ("same_boot", "kind", "ledger"),
    [
        (True, SeqSkipped.UNASSIGNED, Ledger(skipped=7)),
        (False, SeqSkipped.POWER_LOSS, Ledger(lost_crash=7)),
    ],
)
def test_a_disk_topic_goes_on_above_its_ceiling(same_boot: bool, kind: int, ledger: Ledger) -> None:
    topic = replayed("disk")
    skipped = resume_head(topic, same_boot=same_boot, keeps_reserved=False)
    assert skipped == SeqSkipped(7, 5, WRITTEN + 1, RESERVED, kind)
    assert topic.head == RESERVED
    assert audited(topic) == ledger


def test_a_view_leaves_the_seqs_below_the_ceiling_to_the_owner() -> None:
    topic = replayed("disk")
    assert resume_head(topic, same_boot=True, keeps_reserved=True) is None
    assert topic.head == WRITTEN


def test_an_ephemeral_topic_is_empty_above_its_ceiling() -> None:
    topic = replayed("ephemeral")
    assert resume_head(topic, same_boot=True, keeps_reserved=False) is None
    assert (topic.head, topic.count, topic.cap_hi) == (RESERVED, 0, RESERVED)
    assert audited(topic) == Ledger(lost_crash=RESERVED)


def test_an_ephemeral_topic_that_stopped_cleanly_loses_only_its_records() -> None:
    topic = replayed("ephemeral", reserved=WRITTEN)
    assert resume_head(topic, same_boot=True, keeps_reserved=False) is None
    assert (topic.head, topic.count) == (WRITTEN, 0)
    assert audited(topic) == Ledger(lost_crash=WRITTEN)


# Salvage


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
@pytest.mark.parametrize(
    ("reserved", "doubtful", "head"), [(0, 4, 7), (RESERVED, 4, RESERVED), (RESERVED, 40, 43)]
)
def test_seqs_that_salvage_doubts_are_announced_whatever_the_class(
    durability: str, reserved: int, doubtful: int, head: int
) -> None:
    topic = replayed(durability, reserved=reserved)
    owed = resume_head(topic, same_boot=True, keeps_reserved=False, doubtful=doubtful)
    assert owed == SeqSkipped(7, 5, WRITTEN + 1, head, SeqSkipped.REPAIR)
    gap = topic.gap_at(WRITTEN + 1)
    assert gap is not None
    assert (gap.hi, gap.reason) == (head, "cap")
    assert audited(topic) == Ledger(lost_crash=head - WRITTEN)


def test_an_ephemeral_topic_logs_the_ceiling_that_salvage_leaves_it() -> None:
    topic = replayed("ephemeral")
    owed = resume_head(topic, same_boot=True, keeps_reserved=False, doubtful=40)
    assert owed == HeadReserved(7, 5, RESERVED + 40)
    assert (topic.head, topic.cap_hi) == (RESERVED + 40, RESERVED + 40)
    assert audited(topic) == Ledger(lost_crash=RESERVED + 40)


def test_a_view_doubts_nothing_that_the_owner_may_know() -> None:
    topic = replayed("fsync")
    assert resume_head(topic, same_boot=True, keeps_reserved=True, doubtful=4) is None
    assert topic.head == WRITTEN
