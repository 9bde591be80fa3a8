"""Routers: forwarding rules with a position of their own.

A router's position is that of its last pass, its creation or the snapshot. After a crash the
position comes back from the logged passes, generation by generation, as `Routers.settle` says.

A router keeps its identity when its knobs change: a pass that is still on its way through the log
moves the cursor of that very object, whatever was configured meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from topics.core.facts import Forwarded, Match, RouterCreated, RouterDeleted


class Router(msgspec.Struct, eq=False):
    name: str
    source: str
    dest: str
    source_id: int
    dest_id: int
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    allow_cycle: bool = False
    exactly_once: bool = False
    match: Match | None = None
    cursor: int = 0
    forwarded_total: int = 0
    dest_base: int = 0

    def joins(self, source_id: int, dest_id: int) -> bool:
        return self.source_id == source_id and self.dest_id == dest_id


class Routers:
    """Every router by name, and by the topics it joins."""

    def __init__(self) -> None:
        self.by_name: dict[str, Router] = {}
        self._leaving: dict[int, dict[str, Router]] = {}
        self._entering: dict[int, dict[str, Router]] = {}
        self._begun: dict[str, int] = {}  # routers begun since the last settle: initial cursor

    def __iter__(self) -> Iterator[Router]:
        return iter(self.by_name.values())

    def add(self, router: Router) -> None:
        """Take in a router, new or restored; an earlier router of the same name is replaced."""
        self.remove(router.name)
        self.by_name[router.name] = router
        self._leaving.setdefault(router.source_id, {})[router.name] = router
        self._entering.setdefault(router.dest_id, {})[router.name] = router

    def remove(self, name: str) -> None:
        router = self.by_name.pop(name, None)
        if router is None:
            return
        for index, topic_id in (
            (self._leaving, router.source_id),
            (self._entering, router.dest_id),
        ):
            del index[topic_id][name]
            if not index[topic_id]:
                del index[topic_id]

    def create(self, fact: RouterCreated) -> None:
        """A new router; or, with the same name and topic ids, new knobs for one."""
        known = self.by_name.get(fact.name)
        if known is None or not known.joins(fact.source_id, fact.dest_id):
            known = Router(
                fact.name,
                fact.source,
                fact.dest,
                fact.source_id,
                fact.dest_id,
                dest_base=fact.initial_dest_base,
            )
            self.add(known)
            self._begun[fact.name] = fact.initial_cursor
        known.preserve_node = fact.preserve_node
        known.preserve_tag = fact.preserve_tag
        known.create_dest = fact.create_dest
        known.allow_cycle = fact.allow_cycle
        known.exactly_once = fact.exactly_once
        known.match = fact.match
        known.cursor = max(known.cursor, fact.initial_cursor)

    def drop(self, fact: RouterDeleted) -> None:
        """Ignored when the name has moved on to a router between other topics."""
        known = self.by_name.get(fact.name)
        if known is not None and known.joins(fact.source_id, fact.dest_id):
            self.remove(fact.name)

    def out_of(self, source_id: int) -> list[Router]:
        return list(self._leaving.get(source_id, {}).values())

    def into(self, dest_id: int) -> list[Router]:
        return list(self._entering.get(dest_id, {}).values())

    def touching(self, topic_id: int) -> list[str]:
        """Names of the routers that start or end at a topic, sorted."""
        return sorted(
            {*self._leaving.get(topic_id, {}), *self._entering.get(topic_id, {})},
        )

    def path(self, start: str, end: str, *, leaving_out: str) -> list[str] | None:
        """Topics from `start` to `end` along routers, both included; None when there is no way."""
        came_from: dict[str, str | None] = {start: None}
        ahead: list[str] = [start]
        onward: dict[str, list[str]] = {}
        for router in self:
            if router.name != leaving_out:
                onward.setdefault(router.source, []).append(router.dest)
        for here in ahead:  # grows while it is walked: breadth first
            if here == end:
                return _walk_back(came_from, end)
            for following in onward.get(here, ()):
                if following not in came_from:
                    came_from[following] = here
                    ahead.append(following)
        return None

    def settle(self, passes: list[Forwarded], source_heads: dict[int, int]) -> None:
        """End of a replayed generation: move cursors to where its passes left them.

        `source_heads` are the heads this generation reached; a pass may outlive, in a power cut,
        records it had copied, and then what comes in their place has to be copied too.
        """
        for fact in passes:
            router = self.by_name.get(fact.router)
            if router is None or not router.joins(fact.source_id, fact.topic_id):
                continue
            if fact.router in self._begun and fact.cursor <= self._begun[fact.router]:
                continue  # a pass of an earlier router of that name
            router.cursor = max(router.cursor, fact.cursor)
            router.forwarded_total = fact.forwarded_total
        for router in self:
            if router.source_id in source_heads:
                router.cursor = min(router.cursor, source_heads[router.source_id])
        self._begun.clear()

    def drop_orphans(self, live_ids: Collection[int]) -> None:
        """Forget routers that touch a topic which no longer exists."""
        for router in list(self):
            if router.source_id not in live_ids or router.dest_id not in live_ids:
                self.remove(router.name)


def _walk_back(came_from: dict[str, str | None], end: str) -> list[str]:
    path: list[str] = []
    at: str | None = end
    while at is not None:
        path.append(at)
        at = came_from[at]
    return path[::-1]
