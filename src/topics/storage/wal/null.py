"""A log that keeps nothing: for stores that live in memory."""

from topics.storage.wal.shard import ShardState
from topics.storage.wal.stats import SYNC_BOUNDS_US, ShardStats
from topics.storage.wal.submission import Position, Submission

_NOWHERE = Position(0, 0, 0)


class NullCommitter:
    """Answers every submission at once; its frames go nowhere and have no location."""

    def submit(self, submission: Submission) -> None:
        submission.done = True
        submission.on_done(submission)

    def room(self, shard: int, size: int) -> bool:
        del shard, size
        return True

    def refusal(self, shard: int) -> None:
        del shard

    def sync(self, shard: int) -> Position:
        del shard
        return _NOWHERE

    def tick(self) -> None:
        """Nothing is ever due."""

    def in_flight(self, shard: int) -> int:
        del shard
        return 0

    most_in_flight = in_flight

    def state(self, shard: int) -> ShardState:
        del shard
        return ShardState.OPEN

    def try_heal(self) -> None:
        """Nothing is ever full."""

    def position(self, shard: int) -> Position:
        del shard
        return _NOWHERE

    def synced(self, shard: int) -> Position:
        del shard
        return _NOWHERE

    def stats(self, shard: int) -> ShardStats:
        del shard
        return ShardStats(0, 0, 0, 0, 0, 0, (0,) * (len(SYNC_BOUNDS_US) + 1))

    def shard_of(self, topic_id: int) -> int:
        del topic_id
        return 0

    def close(self) -> None:
        """Nothing is held."""
