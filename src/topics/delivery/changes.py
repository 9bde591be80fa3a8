"""Who waits for which topic, and how they are woken.

Writers only signal: a publish notes the topic's name, and whoever waits for it is woken on the
next turn of the loop, once, however many publishes came together. Waiters stand under the name and
not under the topic, so that a topic dropped and made again finds the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.core.topic import Topic
from topics.delivery.turns import STEPS, Schedule, Timer, Timers, Turns

POLL_TURNS = 16
"""Callbacks that the answer to a long poll counts for: it reads and renders a page of its own."""


class Listener(Protocol):
    def wake(self, name: str) -> None:
        """Something may have happened to the topic; only take note of it here."""


class Changes:
    """Call it with a topic that got records, got a hole, changed its rules or is gone.

    Whoever watches the load hears of changes instead and calls `wake` in the order it sees fit.
    `withheld` names topics whose records are not to be pushed for now; who sets it also wakes
    what it lets go again.
    """

    def __init__(
        self, find: Callable[[str], Topic | None], schedule: Schedule, timers: Timers
    ) -> None:
        self.turns = Turns(schedule)
        self.withheld: Callable[[Topic], bool] = _none
        self._find = find
        self._schedule = schedule
        self._timers = timers
        self._listeners: dict[str, dict[Listener, None]] = {}
        self._changed: dict[str, None] = {}
        self._polls: dict[Poll, None] = {}
        self._closed = False

    def __call__(self, topic: Topic) -> None:
        if self.is_awaited(topic):
            self.touch(topic.name)

    def is_awaited(self, topic: Topic) -> bool:
        """Whether anybody waits for it."""
        return topic.name in self._listeners

    def touch(self, name: str) -> None:
        """Wake whoever waits for the name, on the next turn of the loop."""
        if not self._changed:
            self._schedule(self._flush)
        self._changed[name] = None

    def wake(self, name: str) -> None:
        """Wake them now. Whatever they have to do is left to `turns`, which the caller runs."""
        for listener in tuple(self._listeners.get(name, ())):
            listener.wake(name)

    def listen(self, name: str, listener: Listener) -> None:
        self._listeners.setdefault(name, {})[listener] = None

    def unlisten(self, name: str, listener: Listener) -> None:
        waiting = self._listeners.get(name)
        if waiting is not None:
            waiting.pop(listener, None)
            if not waiting:
                del self._listeners[name]

    def _flush(self) -> None:
        # Forgotten before anybody looks: what changes from here on is news again.
        changed, self._changed = self._changed, {}
        for name in changed:
            self.wake(name)
        self.turns.run()

    # Long polls

    def poll(self, name: str, wait_ms: int) -> Poll:
        """Begin to wait for an append, before the read that decides whether to wait at all."""
        poll = Poll(self, name, _mark(self._find(name)))
        self._polls[poll] = None
        self.listen(name, poll)
        if self._closed:
            poll.give_up()
        else:
            poll.timer = self._timers.call_later(wait_ms, poll.give_up)
        return poll

    def has_moved(self, name: str, mark: tuple[int, int]) -> bool:
        """Whether the topic got records since `mark`, or is another one, or none."""
        return _mark(self._find(name)) != mark

    def forget(self, poll: Poll) -> None:
        self._polls.pop(poll, None)
        self.unlisten(poll.name, poll)

    def close(self) -> None:
        """Let every poll go, and those to come: the server stops."""
        self._closed = True
        for poll in tuple(self._polls):
            poll.give_up()


class Poll:
    """One wait for an append, over at the first of: an append, the time, `cancel`."""

    def __init__(self, changes: Changes, name: str, mark: tuple[int, int]) -> None:
        self.name = name
        self.timer: Timer | None = None
        self._changes = changes
        self._mark = mark
        self._woken: bool | None = None
        self._cancelled = False
        self._callback: Callable[[bool], None] | None = None

    def then(self, callback: Callable[[bool], None]) -> None:
        """Call back once it is over, with whether something came; at once if it is over."""
        if self._cancelled:
            return
        if self._woken is None:
            self._callback = callback
        else:
            callback(self._woken)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._cancelled = True
        self._settle(woken=False)

    def wake(self, name: str) -> None:
        if self._changes.has_moved(name, self._mark):
            self._settle(woken=True)

    def give_up(self) -> None:
        """The time has passed."""
        self._settle(woken=False)

    def _settle(self, *, woken: bool) -> None:
        if self._woken is not None:
            return
        self._woken = woken
        self._changes.forget(self)
        if self.timer is not None:
            self.timer.cancel()
        if self._callback is not None and not self._cancelled:
            self._changes.turns.add(self._answer)

    def _answer(self) -> None:
        assert self._callback is not None
        assert self._woken is not None
        self._changes.turns.take(STEPS * POLL_TURNS)
        self._callback(self._woken)


def _mark(topic: Topic | None) -> tuple[int, int]:
    return (0, 0) if topic is None else (topic.epoch, topic.head)


def _none(topic: Topic) -> bool:
    """No topic is withheld."""
    return False
