"""Subscriber groups: feeds that follow one topic alike, served together.

Theory of operation. A publish to a topic with five hundred watchers concerns feeds that nearly all
have read up to the same seq, are idle, and want the same bytes. Waking each of them and finding out
anew what it gets costs more than sending it. Feeds with one topic and equal options therefore form
a group, and the group is woken in their stead. It walks along its members: for the idle members at
one place it looks the page up once, frames it once and writes the same bytes to each of them. A
member that is elsewhere, is behind or has other work is served by its feed when the walk reaches
it, so that the order of records is the same for every member.

A walk takes no more than one budget of a tick. News that arrive during a walk cause another walk
after it; feeds that join later read for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from topics.core.topic import Topic
from topics.delivery.changes import Changes
from topics.delivery.loop_budget import log_failure
from topics.delivery.pages import Options, PageCache, PageFrames
from topics.delivery.subscriptions import Sink, Subscription

NOWHERE = -1
"""The cursor of no member."""

CHUNK = 64
"""Members served between two looks at the clock."""


class GroupedFeed(Protocol):
    """A feed, as its group sees it."""

    def serve(self, sub: Subscription) -> None:
        """Bring the news of this topic now, or as soon as nothing is in the way."""


class Member:
    """A feed as part of a group."""

    __slots__ = ("feed", "is_idle", "place", "sink", "sub")

    def __init__(self, feed: GroupedFeed, sub: Subscription, sink: Sink) -> None:
        self.feed = feed
        self.sub = sub
        self.place = sub.place
        self.sink = sink
        self.is_idle = False
        """Whether the reader was told that it has caught up, and its feed has no other work."""


class SubscriberGroup:
    """The feeds of one topic that want the same of it in the same shape, in order of arrival."""

    def __init__(self, groups: SubscriberGroups, name: str, options: Options) -> None:
        self.members: dict[Member, None] = {}
        self._groups = groups
        self._budget = groups.changes.budget
        self._name = name
        self._options = options
        self._walked: list[Member] = []  # the members of the walk under way
        self._reached = 0  # how many of them were served
        self._has_news = False  # for members that were served

    def wake(self, name: str) -> None:
        if not self._walked:
            self._begin()
        elif self._reached:
            self._has_news = True

    def _begin(self) -> None:
        self._reached = 0
        self._has_news = False
        self._walked = list(self.members)
        if self._walked:
            self._budget.add(self._walk)

    def _walk(self) -> None:
        """Go on for as long as the budget of this tick allows."""
        members = self._walked
        while True:
            start = self._reached
            end = self._reached = min(start + CHUNK, len(members))
            self._serve(members[start:end])
            if end == len(members):
                break
            if not self._budget.has_time():
                self._budget.add(self._walk)
                return
        self._walked = []
        if self._has_news:
            self._begin()

    def _serve(self, members: Sequence[Member]) -> None:
        topic = self._groups.topics.get(self._name)
        now = self._groups.monotonic()
        after, epoch, upto = NOWHERE, 0, 0
        frames: PageFrames | None = None
        for member in members:
            place = member.place
            try:
                if member.is_idle and topic is not None:
                    if place.cursor != after or place.epoch != epoch:
                        after, epoch = place.cursor, place.epoch
                        upto, frames = self._share(topic, member)
                    if frames is not None and member.sink.repeat(frames, now):
                        place.cursor = upto
                        continue
                member.feed.serve(member.sub)
            except Exception:  # the bug of one stream must not silence the others
                log_failure()
            after = NOWHERE  # serving may have changed the topic: look the page up again

    def _share(self, topic: Topic, member: Member) -> tuple[int, PageFrames | None]:
        """What every idle member at this place is sent, and the cursor behind it.

        No frames when more is due than the newest records, such as a tombstone: then each feed
        reads for itself.
        """
        options, place, groups = self._options, member.place, self._groups
        if options.strong or place.epoch != topic.epoch or groups.changes.withheld(topic):
            return 0, None
        page = groups.pages.find(topic, place.cursor, options, None)
        if page is None or page.is_silent or not page.caught_up:
            return 0, None
        return page.next, member.sink.frames_of(member.sub, page, caught_up=True)


class SubscriberGroups:
    """All groups of a server."""

    def __init__(
        self,
        topics: Mapping[str, Topic],
        changes: Changes,
        pages: PageCache,
        monotonic: Callable[[], float],
    ) -> None:
        self.topics = topics
        self.changes = changes
        self.pages = pages
        self.monotonic = monotonic
        self._groups: dict[tuple[str, Options, str], SubscriberGroup] = {}

    def enter(self, member: Member) -> None:
        """From now on its feed is served with the others like it."""
        key = _key(member)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = SubscriberGroup(self, *key[:2])
            self.changes.listen(key[0], group)
        group.members[member] = None

    def leave(self, member: Member) -> None:
        """Serve it no more, not even on a walk under way."""
        member.is_idle = False
        key = _key(member)
        group = self._groups[key]
        del group.members[member]
        if not group.members:
            del self._groups[key]
            self.changes.unlisten(key[0], group)


def _key(member: Member) -> tuple[str, Options, str]:
    return (member.sub.name, member.sub.options, member.sink.kind)
