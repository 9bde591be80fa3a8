"""Where the seqs of a topic go on after a restart: above every one that may have been given out."""

from __future__ import annotations

from topics.core.facts import HeadReserved, SeqSkipped
from topics.core.topic import Ledger, Topic


def ceiling_of(topic: Topic) -> int:
    """The highest seq that may have been given out, if the class reserves seqs ahead."""
    return max(topic.head, topic.reserved)


def resume_head(
    topic: Topic, *, same_boot: bool, keeps_reserved: bool, doubtful: int = 0
) -> SeqSkipped | HeadReserved | None:
    """Count every seq up to the durable ceiling as given out, and those that salvage doubts.

    The answer has to be logged before anything else. With `keeps_reserved` the running owner may
    still use the seqs behind the head, so they stay free.
    """
    klass = topic.durability
    owed: SeqSkipped | HeadReserved | None = None
    if not klass.survives_restart:
        if doubtful:
            topic.reserved = ceiling_of(topic) + doubtful
            owed = HeadReserved(topic.id, topic.last_ts, topic.reserved)
        restart_ephemeral(topic)
    elif keeps_reserved:
        pass
    elif doubtful:
        # For every class: the change to a class that reserves may be among the lost frames.
        owed = _skip(topic, max(ceiling_of(topic), topic.head + doubtful), SeqSkipped.REPAIR)
    elif klass.announces_lost_tail and topic.reserved > topic.head:
        kind = SeqSkipped.UNASSIGNED if same_boot else SeqSkipped.POWER_LOSS
        owed = _skip(topic, topic.reserved, kind)
    topic.handed_out = topic.head
    return owed


def _skip(topic: Topic, through: int, kind: int) -> SeqSkipped:
    skipped = SeqSkipped(topic.id, topic.last_ts, topic.head + 1, through, kind)
    topic.apply_skipped(skipped)
    return skipped


def restart_ephemeral(topic: Topic) -> None:
    """Records are gone; seqs go on above every one handed out, and old cursors are told."""
    unclean = topic.reserved > topic.head
    head = ceiling_of(topic)
    topic.ledger = (
        Ledger(lost_crash=head)
        if unclean
        else Ledger(
            deleted=topic.ledger.deleted,
            lost_cap=topic.ledger.lost_cap,
            lost_ttl=topic.ledger.lost_ttl,
            lost_crash=topic.ledger.lost_crash + topic.count,
            skipped=topic.ledger.skipped,
            source_trim=topic.ledger.source_trim,
        )
    )
    if topic.ledger.gone != head:
        topic.ledger = Ledger(lost_crash=head)
    topic.wipe(head)
