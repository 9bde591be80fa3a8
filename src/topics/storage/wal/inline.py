"""Commit inside the call: an embedded log without threads.

When `submit` returns, the submission is answered: written, and synced if it asked for that. Bytes
not yet synced are once they get old or many, judged at each submission and at `tick`; an idle tail
therefore waits for the next call.
"""

from collections.abc import Sequence

from topics.errors import Internal
from topics.storage import layout
from topics.storage.interrupts import is_interrupt
from topics.storage.wal.answering import stop_interrupted, stop_unpublished
from topics.storage.wal.shard import Shard, ShardState
from topics.storage.wal.stats import ShardStats
from topics.storage.wal.submission import Position, Submission


class InlineCommitter:
    """Writes and syncs on the caller's thread."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = tuple(shards)

    def submit(self, submission: Submission) -> None:
        """Commit now; `on_done` has run when this returns, with `error` set after a failure.

        A failure of `on_done` itself is one too: see `answering`.
        """
        shard = self._shards[submission.shard]
        try:
            shard.commit(submission)
        except Internal as error:
            submission.error = error
        except BaseException as error:
            stop_interrupted(shard, submission, error)
            submission.done = True
            submission.on_done(submission)  # with an error it only takes its seqs back
            raise
        submission.done = True
        try:
            submission.on_done(submission)
        except BaseException as error:
            stop_unpublished(shard, submission, error)
            if is_interrupt(error):
                raise

    def room(self, shard: int, size: int) -> bool:
        """Always: nothing is ever queued."""
        del shard, size
        return True

    def refusal(self, shard: int) -> None:
        """None: nothing is queued, and a write that is tried looks for room."""
        del shard

    def sync(self, shard: int) -> Position:
        """Make everything written to the shard durable."""
        return self._shards[shard].sync()

    def tick(self) -> None:
        """Sync tails that got old, leave a beacon when idle, probe full disks."""
        for shard in self._shards:
            shard.tick()

    def in_flight(self, shard: int) -> int:
        """None: each submission is answered before the next."""
        del shard
        return 0

    most_in_flight = in_flight

    def state(self, shard: int) -> ShardState:
        return self._shards[shard].state

    def try_heal(self) -> None:
        for shard in self._shards:
            shard.try_heal()

    def position(self, shard: int) -> Position:
        return self._shards[shard].position

    def synced(self, shard: int) -> Position:
        return self._shards[shard].synced

    def stats(self, shard: int) -> ShardStats:
        return self._shards[shard].stats()

    def shard_of(self, topic_id: int) -> int:
        shards = len(self._shards)
        return layout.shard_of(topic_id, shards) if shards > 1 else 0

    def close(self) -> None:
        """Sync and close every shard, then report the first that could not."""
        close_all(self._shards)


def close_all(shards: Sequence[Shard]) -> None:
    """Close each shard whatever becomes of the others; raise the first failure."""
    failures: list[Internal] = []
    for shard in shards:
        try:
            shard.close()
        except Internal as error:
            failures.append(error)
    if failures:
        raise failures[0]
