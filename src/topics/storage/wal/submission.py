"""What goes into the log: whole submissions, each answered exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from topics.errors import Internal


class Position(NamedTuple):
    """A place in one log group."""

    file_lfn: int
    """First lfn of the file, which is also its name."""
    offset: int
    """Bytes of that file before the place."""
    lfn: int
    """The last frame before the place; frames are counted per group from 1, for ever."""


class Submission:
    """Frames that enter the log together, adjacent and in one file, or not at all.

    `on_done` is called exactly once, on the owner's thread and in log order per shard. By then
    `error` tells whether the frames are committed (None) and `source_id` and `offset` where they
    begin. With an error they may or may not come back after a restart, but as a whole.
    """

    __slots__ = (
        "count",
        "done",
        "durable",
        "error",
        "frames",
        "is_relief",
        "last_lfn",
        "offset",
        "on_done",
        "settled",
        "shard",
        "source_id",
        "synced_ns",
        "written",
        "wrote_ns",
    )

    def __init__(
        self,
        shard: int,
        frames: bytes | memoryview,
        count: int,
        *,
        durable: bool,
        on_done: Callable[[Submission], None],
    ) -> None:
        self.shard = shard
        self.frames = frames
        self.count = count
        self.durable = durable
        """Whether `on_done` has to wait for a sync. Frames that are merely ordered behind a
        durable write must not ask for one of their own."""
        self.on_done = on_done
        self.is_relief = False
        """Whether it makes room, or is needed on the way there: it may use the room that every file
        keeps for a full disk."""
        self.source_id = 0
        self.offset = 0
        self.last_lfn = 0
        self.error: Internal | None = None
        self.written = False  # the owner has put its frames into the log itself
        self.settled = False  # its outcome is known
        self.done = False
        self.wrote_ns = 0
        self.synced_ns = 0
