"""How the engine hands frames to the log, whichever way they are committed."""

from typing import Protocol

from topics.errors import Internal
from topics.storage.wal.shard import ShardState
from topics.storage.wal.stats import ShardStats
from topics.storage.wal.submission import Position, Submission


class Committer(Protocol):
    """Takes submissions and answers each exactly once, in log order per shard.

    Everything but `sync` is called by the owner of the topics' state, from one thread at a time.
    """

    def submit(self, submission: Submission) -> None:
        """Take a submission; `on_done` may run before this returns. Refusals go there too."""
        ...

    def room(self, shard: int, size: int) -> bool:
        """Whether a submission of `size` bytes can be taken now without exceeding the queue."""
        ...

    def refusal(self, shard: int) -> Internal | None:
        """Why what is no relief should not be queued: the disk is full. None where it may be.

        Behind a submission that fails all others fail too, also those that would make room.
        """
        ...

    def sync(self, shard: int) -> Position:
        """Make everything submitted before this call durable; returns the place it reaches.

        Blocks. Raises `Internal` (usually `LogFailed`) if that is not so.
        """
        ...

    def tick(self) -> None:
        """Do what is due by the clock; cheap when nothing is."""
        ...

    def in_flight(self, shard: int) -> int:
        """How many submissions of the shard are not answered yet."""
        ...

    def most_in_flight(self, shard: int) -> int:
        """How many submissions of the shard ever waited for their answer at the same time."""
        ...

    def state(self, shard: int) -> ShardState:
        """Whether the shard takes writes."""
        ...

    def try_heal(self) -> None:
        """Look now whether full shards have room again."""
        ...

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
        ...
