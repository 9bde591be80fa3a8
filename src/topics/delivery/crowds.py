"""Feeds that follow one topic alike, served together.

Theory of operation. A publish to a topic with five hundred watchers concerns feeds that nearly all
stand at the same place, at rest, and want the same bytes. Waking each of them, giving it a turn and
finding out anew what it should get costs more than sending it. So feeds with one topic and equal
options sit in a crowd, and the crowd is woken in their stead. It walks along its seats: the first
feed is served as any feed is, with every check there is, and those at rest at the same place are
sent what that one was sent. Whoever stands elsewhere, is behind or has other things to do is served
the ordinary way when the walk comes to it, so that nobody's order changes.

A walk does no more than a slice of turns at once. News that come while it is under way make another
walk when it has come to its end; feeds that join later look for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from topics.core.topic import Topic
from topics.delivery.changes import Changes
from topics.delivery.pages import Options, Passing, SharedPages
from topics.delivery.subscriptions import Sink, Subscription
from topics.delivery.turns import log_failure

NOWHERE = -1
"""The cursor of nobody."""


class Member(Protocol):
    """A feed, as its crowd sees it."""

    def serve(self, sub: Subscription) -> None:
        """Bring the news of this topic now, or as soon as nothing is in the way."""


class Seat:
    """A feed's place in a crowd."""

    __slots__ = ("feed", "place", "rests", "sink", "sub")

    def __init__(self, feed: Member, sub: Subscription, sink: Sink) -> None:
        self.feed = feed
        self.sub = sub
        self.place = sub.place
        self.sink = sink
        self.rests = False
        """Whether the reader knows that it has caught up, and nothing else is to be done for it."""


class Crowd:
    """The feeds of one topic that want the same of it in the same shape, as they came."""

    def __init__(self, crowds: Crowds, name: str, options: Options) -> None:
        self.seats: dict[Seat, None] = {}
        self._crowds = crowds
        self._turns = crowds.changes.turns
        self._name = name
        self._options = options
        self._walked: list[Seat] = []  # the seats of the walk under way
        self._reached = 0  # how many of them it has come to
        self._has_news = False  # for those

    def wake(self, name: str) -> None:
        if not self._walked:
            self._begin()
        elif self._reached:
            self._has_news = True

    def _begin(self) -> None:
        self._reached = 0
        self._has_news = False
        self._walked = list(self.seats)
        if self._walked:
            self._turns.add(self._walk)

    def _walk(self) -> None:
        """Go on for as long as this slice of turns allows."""
        seats, start = self._walked, self._reached
        end = self._reached = start + self._turns.take(len(seats) - start)
        self._serve(seats[start:end])
        if end < len(seats):
            self._turns.add(self._walk)
            return
        self._walked = []
        if self._has_news:
            self._begin()

    def _serve(self, seats: Sequence[Seat]) -> None:
        after, epoch, upto = NOWHERE, 0, 0
        passing, frames = None, None
        now = self._crowds.monotonic()
        for seat in seats:
            place = seat.place
            try:
                if place.cursor == after and place.epoch == epoch and seat.rests:
                    if frames is None:
                        assert passing is not None
                        frames = seat.sink.spell(seat.sub, passing.page, caught_up=True)
                    if seat.sink.repeat(frames, now):
                        place.cursor = upto
                        continue
                seat.feed.serve(seat.sub)
            except Exception:  # one stream's bug must not silence the others
                log_failure()
            passing, frames = self._crowds.passing(self._name, self._options), None
            if passing is None:
                after = NOWHERE
            else:
                after, epoch, upto = passing.after, passing.epoch, passing.page.next


class Crowds:
    """Every crowd there is."""

    def __init__(
        self,
        topics: Mapping[str, Topic],
        changes: Changes,
        pages: SharedPages,
        monotonic: Callable[[], float],
    ) -> None:
        self.changes = changes
        self.monotonic = monotonic
        self._topics = topics
        self._pages = pages
        self._crowds: dict[tuple[str, Options, str], Crowd] = {}

    def enter(self, seat: Seat) -> None:
        """From now on its feed is served with the others like it."""
        key = _key(seat)
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = Crowd(self, *key[:2])
            self.changes.listen(key[0], crowd)
        crowd.seats[seat] = None

    def leave(self, seat: Seat) -> None:
        """Serve it no more, not even on a walk under way."""
        seat.rests = False
        key = _key(seat)
        crowd = self._crowds[key]
        del crowd.seats[seat]
        if not crowd.seats:
            del self._crowds[key]
            self.changes.unlisten(key[0], crowd)

    def passing(self, name: str, options: Options) -> Passing | None:
        """What a feed of this topic was sent a moment ago, if others may have it too."""
        topic = self._topics.get(name)
        return None if topic is None else self._pages.passing(topic, options)


def _key(seat: Seat) -> tuple[str, Options, str]:
    return (seat.sub.name, seat.sub.options, seat.sink.kind)
