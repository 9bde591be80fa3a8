"""One WebSocket's outbound side: a handful of messages, then everything waits.

Nothing is queued beyond what the transport holds. A read is begun only when its messages are sure
to fit, and one message is kept free for the answer to a command under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.delivery.pages import PageFrames, Rendered
from topics.delivery.subscriptions import Subscription
from topics.wire import ws
from topics.wire.sse import ThrottleReason

MAX_MESSAGES = 4
MESSAGES_PER_READ = 3
"""A tombstone, records, and having caught up."""


class TextSocket(Protocol):
    """The transport's side: whole messages go out."""

    on_drain: Callable[[], None] | None

    def send_text(self, data: bytes) -> bool:
        """Queue a message; False when it could not leave at once, and then `on_drain` follows."""
        ...

    @property
    def queued_messages(self) -> int: ...


class SocketSink:
    """Messages to one socket. `on_change` follows every change of `is_full`, and some others."""

    kind = "socket"

    def __init__(self, socket: TextSocket, *, on_change: Callable[[], None]) -> None:
        self.on_drained: Callable[[], None] = _ignore
        self.answer_is_due = False
        self._socket = socket
        self._on_change = on_change
        socket.on_drain = self._drain

    @property
    def is_full(self) -> bool:
        """Whether the peer has to take something before anything else may happen."""
        return self._socket.queued_messages >= MAX_MESSAGES

    @property
    def has_room(self) -> bool:
        queued = self._socket.queued_messages + self.answer_is_due
        return queued + MESSAGES_PER_READ <= MAX_MESSAGES

    def send(self, message: bytes) -> None:
        if not self._socket.send_text(message):
            self._on_change()

    def show(self, sub: Subscription, page: Rendered, *, caught_up: bool) -> bool:
        if not self.has_room:
            return False
        self._send_all(self.frames_of(sub, page, caught_up=caught_up))
        return True

    def frames_of(self, sub: Subscription, page: Rendered, *, caught_up: bool) -> PageFrames:
        fits = (caught_up, sub.place.cursor)
        known = page.frames.get(self.kind)
        if known is not None and known[0] == fits:
            return known[1]
        messages = _frame(sub, page, caught_up=caught_up)
        frames = PageFrames(tuple(messages), len(messages))
        page.frames[self.kind] = (fits, frames)
        return frames

    def repeat(self, frames: PageFrames, now: float) -> bool:
        if not self.has_room:
            return False
        self._send_all(frames)
        return True

    def _send_all(self, frames: PageFrames) -> None:
        for message in frames.pieces:
            self.send(message)

    def show_deleted(self, sub: Subscription) -> bool:
        if not self.has_room:
            return False
        self.send(ws.topic_deleted(sub.name))
        return True

    def advise(self, reason: ThrottleReason, topic: str | None) -> None:
        """Nothing: WebSockets have no message for a slow reader."""

    def _drain(self) -> None:
        self.on_drained()
        self._on_change()


def _frame(sub: Subscription, page: Rendered, *, caught_up: bool) -> list[bytes]:
    name = sub.name
    messages = []
    if page.tombstone is not None:
        messages.append(ws.tombstone(name, page.tombstone))
    if page.count:
        messages.append(
            ws.records(
                name,
                page.records,
                from_seq=sub.place.cursor,
                to_seq=page.next,
                head_seq=page.head,
            )
        )
    if caught_up:
        messages.append(ws.caught_up(name, head_seq=page.head))
    return messages


def _ignore() -> None:
    """No feed waits for room."""
