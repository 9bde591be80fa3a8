"""How the engine hands frames to the log, whichever way they are committed."""

import logging
from collections.abc import Sequence
from typing import Protocol

from topics.errors import Internal, LogFailed
from topics.storage import layout
from topics.storage.interrupts import is_interrupt
from topics.storage.wal.shard import Shard, ShardState
from topics.storage.wal.stats import ShardStats
from topics.storage.wal.submission import Position, Submission

_log = logging.getLogger(__name__)


class Committer(Protocol):
    """Takes submissions and answers each exactly once, in log order per shard.

    Everything but `sync` is called by the owner of the topics' state, from one thread at a time.
    Methods with a body here give the answer of a committer that never queues.
    """

    is_queued: bool = False
    """Whether submissions wait in a bounded queue, so that writers have to ask for room first."""

    def submit(self, submission: Submission) -> None:
        """Take a submission; `on_done` may run before this returns. Refusals go there too."""
        ...

    def room(self, shard: int, size: int) -> bool:
        """Whether a submission of `size` bytes can be taken now without exceeding the queue."""
        del shard, size
        return True

    def refusal(self, shard: int) -> Internal | None:
        """Why a submission that frees no room must not be queued: the disk is full. Or None.

        When a submission fails, all submissions queued behind it fail, too, also those that would
        free room.
        """
        del shard
        return None

    def sync(self, shard: int) -> Position:
        """Make everything submitted before this call durable; returns the place it reaches.

        Blocks. Raises `Internal` (usually `LogFailed`) if that is not so.
        """
        ...

    def rotate(self, shard: int) -> None:
        """Have what comes after this call in another log file than what came before it. Blocks.

        Raises `Internal` if there is no room for one, or the shard takes no writes.
        """
        del shard

    def tick(self) -> None:
        """Do what is due by the clock; cheap when nothing is."""
        return

    def in_flight(self, shard: int) -> int:
        """How many submissions of the shard are not answered yet."""
        del shard
        return 0

    def most_in_flight(self, shard: int) -> int:
        """How many submissions of the shard ever waited for their answer at the same time."""
        del shard
        return 0

    def state(self, shard: int) -> ShardState:
        """Whether the shard takes writes."""
        ...

    def try_heal(self) -> None:
        """Look now whether full shards have room again."""
        return

    def position(self, shard: int) -> Position:
        """Where the next frame of the shard goes."""
        ...

    def synced(self, shard: int) -> Position:
        """Up to where the shard is durable."""
        ...

    def stats(self, shard: int) -> ShardStats:
        """Totals of the shard."""
        ...

    def shard_of(self, topic_id: int) -> int:
        """Where the frames of a topic go."""
        ...

    def close(self) -> None:
        """Answer what is pending, sync, and let go of the files.

        Raises `LogFailed` when written bytes are not known to be durable.
        """
        return


class ShardCommitter(Committer):
    """What the committers that have shards say of them."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = tuple(shards)

    def state(self, shard: int) -> ShardState:
        return self._shards[shard].state

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
        """Close each shard whatever becomes of the others; raise the first failure."""
        failures: list[Internal] = []
        for shard in self._shards:
            try:
                shard.close()
            except Internal as error:
                failures.append(error)
        if failures:
            raise failures[0]


def stop(shard: Shard, submission: Submission, cause: BaseException, reason: str) -> LogFailed:
    """Stop a shard for good, because of one submission; returns the answer that it gets.

    Either its write was interrupted, as by Ctrl-C, and how much of it is in the log is unknown. Or
    it is in the log and `on_done` could not publish it, although everything publishing needs is
    loaded before. Then the log has a change that memory shows in part or not at all, and no further
    change may follow it. Without writes there is no checkpoint, so the log keeps everything, and
    the next start publishes it from there.
    """
    reason = f"{reason}: {cause!r}"
    shard.abandon(reason)
    error = LogFailed(shard=shard.writer.shard, reason=reason)
    error.__cause__ = cause
    submission.error = error
    if not is_interrupt(cause):  # an interrupt reaches its caller as the exception itself
        _log.critical("log shard %d: %s", shard.writer.shard, reason, exc_info=cause)
    return error


UNPUBLISHED = "a committed change could not be published"
INTERRUPTED = "a write was interrupted"
