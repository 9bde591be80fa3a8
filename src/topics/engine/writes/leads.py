"""What lies before the records of a write in the log: its idempotency key, and what was lost.

These frames belong to the write, and are there if and only if its records are.
"""

from __future__ import annotations

from collections.abc import Sequence

from topics.core.facts import Evicted, KeyRemembered
from topics.storage.frames.buffer import encode


def remembered_of(
    topic_id: int, now_ms: int, first: int, keys: Sequence[str | None], ends: Sequence[int]
) -> list[KeyRemembered]:
    """What is to be remembered of writes that lie one behind the other, from seq `first` on."""
    facts, begin = [], 0
    for key, end in zip(keys, ends, strict=True):
        if key is not None:
            seq, last = first + begin, first + end - 1
            facts.append(KeyRemembered(topic_id, now_ms, key, seq, end - begin, last))
        begin = end
    return facts


def leads_of(
    evicted: Evicted | None, keys: Sequence[KeyRemembered], first: int, *, durable: bool
) -> dict[int, bytes]:
    """The frames before each write, by the place of its first record; a loss comes first of all."""
    leads = {key.first_seq - first: encode(key, durable=durable, cont=True) for key in keys}
    if evicted is not None:
        leads[0] = encode(evicted, durable=durable, cont=True) + leads.get(0, b"")
    return leads
