"""What a live read can say besides records and tombstones; the same from every kind of log.

`follow` yields records and tombstones of one topic as they are, and nothing else. `watch` yields
events, each with the topic it is about.
"""

from collections.abc import Mapping

from topics.errors import TopicNotFound
from topics.values import Record, Tombstone, Value


class Arrived(Value, frozen=True):
    """A record of a watched topic."""

    topic: str
    record: Record

    @property
    def seq(self) -> int:
        return self.record.seq

    def to_dict(self) -> dict[str, object]:
        return {"event": "record", "topic": self.topic, **self.record.to_dict()}


class Lost(Value, frozen=True):
    """Records of a watched topic were lost against the reader's will."""

    topic: str
    tombstone: Tombstone

    def to_dict(self) -> dict[str, object]:
        return {"event": "tombstone", "topic": self.topic, **self.tombstone.to_dict()}


class CaughtUp(Value, frozen=True, gc=False):
    """Everything that a watched topic holds has been delivered, for now."""

    topic: str
    head_seq: int

    def to_dict(self) -> dict[str, object]:
        return {"event": "caught_up", "topic": self.topic, "head_seq": self.head_seq}


class TopicDropped(Value, frozen=True, gc=False):
    """A watched topic is gone; nothing more of it follows."""

    topic: str

    def to_dict(self) -> dict[str, object]:
        return {"event": "topic_dropped", "topic": self.topic}


class Resumed(Value, frozen=True):
    """The connection was lost and is back; reading goes on after `positions`, skipping nothing.

    `away_seconds` is how long there was no connection, `tries` how often connecting failed
    meanwhile. A log in this process never gives this event.
    """

    reason: str
    positions: Mapping[str, int]
    away_seconds: float
    tries: int

    def to_dict(self) -> dict[str, object]:
        return {
            "event": "resumed",
            "reason": self.reason,
            "positions": dict(self.positions),
            "away_seconds": self.away_seconds,
            "tries": self.tries,
        }


Event = Arrived | Lost | CaughtUp | TopicDropped | Resumed


def item_of(event: Event) -> Record | Tombstone | None:
    """What `follow` yields for an event; None for one that only `watch` tells.

    Raises `TopicNotFound` when the topic was dropped.
    """
    if isinstance(event, Arrived):
        return event.record
    if isinstance(event, Lost):
        return event.tombstone
    if isinstance(event, TopicDropped):
        raise TopicNotFound(event.topic)
    return None
