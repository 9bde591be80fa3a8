"""The readers that wait for news of a topic (waiters), and how they are woken.

Writers only signal: a publish notes the topic's name, and the waiters are woken later in the tick
or in the next one, once, however many publishes came together. Waiters are kept by the name and
not by the topic, so that a topic that is dropped and created again has the same waiters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.core.topic import Topic
from topics.delivery.loop_budget import LoopBudget, Schedule, TimerHandle, Timers


class Waiter(Protocol):
    def wake(self, name: str) -> None:
        """Something may have happened to the topic; only queue the work here."""


class Changes:
    """Call it with a topic that got records, got a hole, changed its rules or is gone.

    Where the load is watched (`server.pump`), the pump hears of changes instead and calls `wake` by
    priority. `withheld` says which topics' records must not be pushed for now; the pump wakes their
    waiters again later.
    """

    def __init__(
        self,
        find: Callable[[str], Topic | None],
        schedule: Schedule,
        timers: Timers,
        budget: LoopBudget,
    ) -> None:
        self.budget = budget
        self.withheld: Callable[[Topic], bool] = nothing_withheld
        self._find = find
        self._schedule = schedule
        self._timers = timers
        self._waiters: dict[str, dict[Waiter, None]] = {}
        self._changed: dict[str, None] = {}
        self._polls: dict[Poll, None] = {}
        self._closed = False

    def __call__(self, topic: Topic) -> None:
        if self.is_awaited(topic):
            self.touch(topic.name)

    def is_awaited(self, topic: Topic) -> bool:
        """Whether the topic has waiters."""
        return topic.name in self._waiters

    def touch(self, name: str) -> None:
        """Wake the waiters of the name in the next tick."""
        if not self._changed:
            self._schedule(self._flush)
        self._changed[name] = None

    def wake(self, name: str) -> None:
        """Wake them now. Their work is queued in the budget, which the caller runs."""
        for waiter in tuple(self._waiters.get(name, ())):
            waiter.wake(name)

    def listen(self, name: str, waiter: Waiter) -> None:
        self._waiters.setdefault(name, {})[waiter] = None

    def unlisten(self, name: str, waiter: Waiter) -> None:
        waiting = self._waiters.get(name)
        if waiting is not None:
            waiting.pop(waiter, None)
            if not waiting:
                del self._waiters[name]

    def _flush(self) -> None:
        # Cleared before the waiters look: a change from here on is news again.
        changed, self._changed = self._changed, {}
        for name in changed:
            self.wake(name)
        self.budget.run()

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
        """End every poll, and each later one at once: the server stops."""
        self._closed = True
        for poll in tuple(self._polls):
            poll.give_up()


class Poll:
    """One wait for an append, over at the first of: an append, the time, `cancel`."""

    def __init__(self, changes: Changes, name: str, mark: tuple[int, int]) -> None:
        self.name = name
        self.timer: TimerHandle | None = None
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
        """The caller no longer waits."""
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
            self._changes.budget.add(self._answer)

    def _answer(self) -> None:
        assert self._callback is not None
        assert self._woken is not None
        self._callback(self._woken)


def _mark(topic: Topic | None) -> tuple[int, int]:
    return (0, 0) if topic is None else (topic.epoch, topic.head)


def nothing_withheld(topic: Topic) -> bool:
    """The records of every topic may be pushed."""
    return False
