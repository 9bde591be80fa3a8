"""Lease queues: a topic plus a projection of its leases. A feature on top of the log."""

from topics.queue.claiming import Claimer
from topics.queue.holding import Named
from topics.queue.jobs import ClaimedJobs, Jobs
from topics.queue.queues import Queues

__all__ = ["ClaimedJobs", "Claimer", "Jobs", "Named", "Queues"]
