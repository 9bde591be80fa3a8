"""Commit inside the call: logs without threads, on a disk or in memory.

When `submit` returns, the submission is answered: written, and synced if it asked for that. Other
bytes are synced once they are old or many, which is judged at each submission and at `tick`; an
idle tail therefore waits for the next call.
"""

from topics.errors import Internal
from topics.storage.interrupts import is_interrupt
from topics.storage.wal.committer import INTERRUPTED, UNPUBLISHED, Committer, ShardCommitter, stop
from topics.storage.wal.shard import ShardState
from topics.storage.wal.stats import SYNC_BOUNDS_US, ShardStats
from topics.storage.wal.submission import Position, Submission

_NOWHERE = Position(0, 0, 0)


class InlineCommitter(ShardCommitter):
    """Writes and syncs on the caller's thread. A write that is tried looks for room itself."""

    def submit(self, submission: Submission) -> None:
        """Commit now; `on_done` has run when this returns, with `error` set after a failure.

        A failure of `on_done` itself is one too: see `committer.stop`.
        """
        shard = self._shards[submission.shard]
        try:
            shard.write_one(submission)
            if submission.durable or shard.sync_is_due:
                shard.sync()
                submission.synced_ns = shard.synced_ns
        except Internal as error:
            submission.error = error
        except BaseException as error:
            stop(shard, submission, error, INTERRUPTED)
            submission.done = True
            submission.on_done(submission)  # with an error it only takes its seqs back
            raise
        submission.done = True
        try:
            submission.on_done(submission)
        except BaseException as error:
            stop(shard, submission, error, UNPUBLISHED)
            if is_interrupt(error):
                raise

    def sync(self, shard: int) -> Position:
        return self._shards[shard].sync()

    def rotate(self, shard: int) -> None:
        self._shards[shard].rotate()

    def tick(self) -> None:
        """Sync tails that got old, leave a beacon when idle, probe full disks."""
        for shard in self._shards:
            shard.tick()

    def try_heal(self) -> None:
        for shard in self._shards:
            shard.try_heal()


class NullCommitter(Committer):
    """Answers every submission at once; its frames go nowhere and have no location."""

    def submit(self, submission: Submission) -> None:
        submission.done = True
        submission.on_done(submission)

    def sync(self, shard: int) -> Position:
        del shard
        return _NOWHERE

    position = synced = sync

    def state(self, shard: int) -> ShardState:
        del shard
        return ShardState.OPEN

    def stats(self, shard: int) -> ShardStats:
        del shard
        return ShardStats(0, 0, 0, 0, 0, 0, (0,) * (len(SYNC_BOUNDS_US) + 1))

    def shard_of(self, topic_id: int) -> int:
        del topic_id
        return 0
