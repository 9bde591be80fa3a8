"""Leases and the log: freeing leases whose time is over, and logging what happens to leases.

Lease events of a queue with durable leases are logged and never waited for: if one is lost, a job
can be claimed again. An expiry is logged like a release, so that a clock that is set back over a
restart revives no lease whose end a worker has seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from topics.core.config import MAX_LEASE_MS
from topics.core.facts import LeaseChanged
from topics.core.leases import Lease, LeaseBook
from topics.core.topic import Topic
from topics.engine.kernel import Kernel
from topics.errors import TopicNotFound

EVENT_BYTES = 256
"""About what one event costs in the log, at most."""


class Presence:
    """Whether the client that asked is still connected."""

    __slots__ = ("is_gone",)

    def __init__(self) -> None:
        self.is_gone = False

    def leave(self) -> None:
        self.is_gone = True


def live_leases(kernel: Kernel, queue: Topic) -> LeaseBook:
    """The leases of a queue that was there before a wait; raises if it is gone."""
    if kernel.catalog.by_id.get(queue.id) is not queue or queue.leases is None:
        raise TopicNotFound(queue.name)
    return queue.leases


def leaves_traces(kernel: Kernel, topic: Topic) -> bool:
    """Whether lease events of the queue go into the log."""
    return topic.config.leases_durable and kernel.is_logged(topic)


def log_leases(
    kernel: Kernel, topic: Topic, event: int, leases: Sequence[tuple[int, Lease]]
) -> None:
    """Leave a trace of what happened to these leases, if the queue wants one and the log has room.

    The deadline of a released lease is the time from which the job can be had again.
    """
    if not leases or not leaves_traces(kernel, topic):
        return
    kernel.dirty.add(topic.id)
    size = EVENT_BYTES * len(leases)
    if not kernel.committer.room(kernel.committer.shard_of(topic.id), size):
        return
    assert topic.leases is not None
    deliveries = topic.leases.deliveries
    now_ms = kernel.clock.now_ms()
    kernel.leave_trace(
        [
            LeaseChanged(
                topic.id,
                seq,
                now_ms,
                event,
                lease.lease_id,
                lease.deadline_ms,
                deliveries.get(seq, 0),
                lease.node,
            )
            for seq, lease in leases
        ],
        topic_id=topic.id,
    )


def sweep_leases(kernel: Kernel, topic: Topic) -> int:
    """Free leases and delays that are over; returns the time by which that was judged."""
    leases = topic.leases
    assert leases is not None
    now_ms = kernel.clock.now_ms()
    if leases.furthest_ms > now_ms + MAX_LEASE_MS:
        # No call can ask for a lease this long: the clock was ahead when the lease was granted.
        lease_ms = topic.config.lease_ms
        leases.pull_in(now_ms, latest_ms=now_ms + MAX_LEASE_MS, lease_ms=lease_ms)
    if now_ms >= leases.quiet_until_ms:
        kernel.host.before_change()
        expired = leases.sweep(now_ms)
        freed = [(seq, Lease(lease.lease_id, lease.node, now_ms)) for seq, lease in expired]
        log_leases(kernel, topic, LeaseChanged.RELEASED, freed)
    return now_ms


def queue_counts(topic: Topic) -> tuple[int, int]:
    """Jobs ready to be claimed and jobs on lease, of a queue that was swept."""
    assert topic.leases is not None
    in_flight = len(topic.leases.leased)
    return topic.count - in_flight - len(topic.leases.delayed), in_flight
