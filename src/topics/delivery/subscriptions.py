"""What a connection follows: a topic, the place reached in it, and where its frames go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.delivery.pages import Options, PageFrames, Rendered
from topics.wire.sse import ThrottleReason


class Place:
    """Where a reader stands in a topic: the instance it reads, and the last seq it was sent."""

    __slots__ = ("cursor", "epoch", "left")

    def __init__(self, epoch: int, cursor: int) -> None:
        self.epoch = epoch
        self.cursor = cursor
        self.left: tuple[int, int] | None = None
        """The instance before this one and how far the reader had come in it."""

    def move(self, epoch: int, cursor: int) -> None:
        if epoch != self.epoch:
            self.left = (self.epoch, self.cursor)
        self.epoch = epoch
        self.cursor = cursor

    def rewind(self, epoch: int, cursor: int) -> None:
        """Go back to where frames that got lost began."""
        if epoch != self.epoch or cursor < self.cursor:
            self.epoch = epoch
            self.cursor = cursor

    def lower(self, cursor: int) -> None:
        """Go back to the cursor that the reader reports, but never beyond what it was sent."""
        if cursor < self.cursor:
            self.cursor = cursor
        elif self.left is not None and self.cursor < cursor <= self.left[1]:
            # The cursor is one of the topic's previous instance: all frames about the new one,
            # which has the same name, got lost.
            self.epoch, self.cursor = self.left[0], cursor


class Subscription:
    """One topic of one connection. Replaced, never changed, when the reader asks anew."""

    __slots__ = ("announced", "first_read", "name", "options", "place")

    def __init__(self, name: str, place: Place, options: Options) -> None:
        self.name = name
        self.place = place
        self.options = options
        self.first_read = True
        self.announced = False
        """Whether the reader knows that it has caught up, and was sent nothing since."""


class Sink(Protocol):
    """Frames what the feed says and queues it for one connection."""

    kind: str
    """Sinks of one kind frame alike what is said to readers of one topic at the same place."""

    on_drained: Callable[[], None]
    """Called when a sink without room has room again."""

    @property
    def has_room(self) -> bool:
        """Whether another read makes sense."""
        ...

    def show(self, sub: Subscription, page: Rendered, *, caught_up: bool) -> bool:
        """Queue the frames of a read; False when they do not fit, and then nothing is queued."""
        ...

    def frames_of(self, sub: Subscription, page: Rendered, *, caught_up: bool) -> PageFrames:
        """The frames of a read; made once for all readers that get the same."""
        ...

    def repeat(self, frames: PageFrames, now: float) -> bool:
        """Send what another sink of this kind was sent; False, and nothing sent, if not possible
        at once. `now` is the present moment."""
        ...

    def show_deleted(self, sub: Subscription) -> bool:
        """Queue the news that a topic is gone; False when it does not fit."""
        ...

    def advise(self, reason: ThrottleReason, topic: str | None) -> None:
        """Tell the reader why it gets less than there is, where there is a way to say so."""
        ...
