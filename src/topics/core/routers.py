"""Routers: forwarding rules with a position of their own.

A router's position is that of its last pass, its creation or the snapshot. After a crash the
position comes back from the logged passes, generation by generation, as `Routers.settle` says.
"""

from __future__ import annotations

import msgspec

from topics.core.facts import Forwarded, Match, RouterCreated, RouterDropped


class Router(msgspec.Struct):
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


class Routers:
    """Every router by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Router] = {}
        self._begun: dict[str, int] = {}  # routers begun since the last settle: initial cursor

    def create(self, fact: RouterCreated) -> None:
        """A new router; or, with the same name and topic ids, new knobs for one."""
        known = self.by_name.get(fact.name)
        made = Router(
            name=fact.name,
            source=fact.source,
            dest=fact.dest,
            source_id=fact.source_id,
            dest_id=fact.dest_id,
            preserve_node=fact.preserve_node,
            preserve_tag=fact.preserve_tag,
            create_dest=fact.create_dest,
            allow_cycle=fact.allow_cycle,
            exactly_once=fact.exactly_once,
            match=fact.match,
            cursor=fact.initial_cursor,
            dest_base=fact.initial_dest_base,
        )
        if known is not None and (known.source_id, known.dest_id) == (fact.source_id, fact.dest_id):
            made.cursor = max(known.cursor, fact.initial_cursor)
            made.forwarded_total = known.forwarded_total
            made.dest_base = known.dest_base
        else:
            self._begun[fact.name] = fact.initial_cursor
        self.by_name[fact.name] = made

    def drop(self, fact: RouterDropped) -> None:
        """Ignored when the name has moved on to a router between other topics."""
        known = self.by_name.get(fact.name)
        if known is not None and (known.source_id, known.dest_id) == (fact.source_id, fact.dest_id):
            del self.by_name[fact.name]

    def into(self, dest_id: int) -> list[Router]:
        """The routers that feed a topic."""
        return [router for router in self.by_name.values() if router.dest_id == dest_id]

    def touching(self, topic_id: int) -> list[str]:
        """Names of the routers that start or end at a topic, sorted."""
        return sorted(r.name for r in self.by_name.values() if topic_id in (r.source_id, r.dest_id))

    def settle(self, passes: list[Forwarded], source_heads: dict[int, int]) -> None:
        """End of a replayed generation: move cursors to where its passes left them."""
        for fact in passes:
            router = self.by_name.get(fact.router)
            if router is None or (router.source_id, router.dest_id) != (
                fact.source_id,
                fact.topic_id,
            ):
                continue
            if fact.router in self._begun and fact.cursor <= self._begun[fact.router]:
                continue  # a pass of an earlier router of that name
            router.cursor = max(router.cursor, fact.cursor)
            router.forwarded_total = fact.forwarded_total
        for router in self.by_name.values():
            if router.source_id in source_heads:
                router.cursor = min(router.cursor, source_heads[router.source_id])
        self._begun.clear()

    def drop_orphans(self, live_ids: set[int]) -> None:
        """Forget routers that touch a topic which no longer exists."""
        for name in [
            r.name
            for r in self.by_name.values()
            if r.source_id not in live_ids or r.dest_id not in live_ids
        ]:
            del self.by_name[name]
