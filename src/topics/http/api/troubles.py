"""What is wrong with topics now, in a sentence each: the list on the console's first page.

Judged from what memory holds, while the history walks over all topics. The whole story of a topic
is told by `GET /v0/topics/{topic}/explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nlargest

from topics.core.topic import Topic
from topics.engine.upkeep.lease_log import queue_counts
from topics.values import RouterState
from topics.wire.plain import counted, counted_and, span
from topics.wire.shapes import Trouble

MOST = 100
IDLE_S = 300
"""A consumer that has records to read and did not move for so long is told of."""


def heaviest(found: list[Trouble]) -> list[Trouble]:
    """The worst first, at most as many as are shown."""
    return nlargest(MOST, found, key=lambda trouble: trouble.weight)


def of_topic(topic: Topic, letters: Mapping[str, Topic], now_ms: int) -> Iterator[Trouble]:
    """Troubles of one topic. `letters` are the dead-letter topics, by name."""
    name, config = topic.name, topic.config
    if topic.ledger.lost_crash:
        lost = counted_and(topic.ledger.lost_crash, "record", "was", "were")
        yield Trouble(9, name, "ledger", f"At most {lost} lost in a crash or to damage.")
    if config.discard == "reject" and _is_full(topic):
        yield Trouble(7, name, "settings", "It is full and refuses writes.")
    if topic.leases is not None and topic.count:
        ready, in_flight = queue_counts(topic)
        if ready and not in_flight:
            jobs = counted_and(ready, "job", "is", "are")
            yield Trouble(6, name, "jobs", f"{jobs} ready, and no worker holds any.")
    dead = letters.get(config.dead_letter or "")
    if topic.leases is not None and dead is not None and dead.count:
        jobs = counted_and(dead.count, "dead letter", "waits", "wait")
        yield Trouble(5, name, "dead", f"{jobs} in {dead.name}.")
    for cursor, (seq, updated_ts) in topic.cursors.items():
        behind = topic.live_after(seq)
        if topic.gap_below(seq) is not None:
            yield Trouble(
                5, name, "consumers", f"{cursor} was too slow: records it has not read are lost."
            )
        elif behind and now_ms - updated_ts > IDLE_S * 1000:
            idle = span((now_ms - updated_ts) / 1000)
            records = counted(behind, "record")
            yield Trouble(
                4, name, "consumers", f"{cursor} has not moved for {idle} and is {records} behind."
            )


def of_router(router: RouterState) -> Trouble | None:
    """A router that has records to copy."""
    if not router.lag:
        return None
    records = counted(router.lag, "record")
    what = f"Router {router.router} has yet to copy {records} of {router.source}."
    return Trouble(3, router.dest, "routers", what)


def _is_full(topic: Topic) -> bool:
    config = topic.config
    return bool(
        (config.cap_records and topic.count >= config.cap_records)
        or (config.cap_bytes and topic.bytes >= config.cap_bytes)
    )
