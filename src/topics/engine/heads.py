"""Where the seqs of a topic go on after a restart: above every one that may have been given out."""

from __future__ import annotations

from topics.core.facts import SeqSkipped
from topics.core.topic import Ledger, Topic

RESERVING = ("disk", "ephemeral")
"""Classes whose seqs are reserved ahead, so that none is given out twice after a crash."""
EPHEMERAL_BLOCK = 65_536
"""How many seqs a reservation of an ephemeral topic adds to those of the write that asks for it."""


def resume_head(topic: Topic, *, same_boot: bool, keeps_reserved: bool) -> SeqSkipped | None:
    """Count every seq up to the durable ceiling as given out.

    The answer has to be logged before anything else. With `keeps_reserved` somebody else may yet
    use the seqs below the ceiling, and they stay free.
    """
    klass = topic.config.durability
    skipped = None
    if klass == "ephemeral":
        _restart_ephemeral(topic)
    elif klass == "disk" and topic.reserved > topic.head and not keeps_reserved:
        kind = SeqSkipped.UNASSIGNED if same_boot else SeqSkipped.POWER_LOSS
        skipped = SeqSkipped(topic.id, topic.last_ts, topic.head + 1, topic.reserved, kind)
        topic.apply_skipped(skipped)
    topic.handed_out = topic.head
    return skipped


def _restart_ephemeral(topic: Topic) -> None:
    """Records are gone; seqs go on above every one handed out, and old cursors are told."""
    unclean = topic.reserved > topic.head
    head = max(topic.head, topic.reserved)
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
