"""Routers come, change and go. A refused router leaves nothing behind, no topic either."""

from __future__ import annotations

import msgspec

from topics.core.config import ROUTER_NAME, check_topic_name, parse
from topics.core.facts import Match, RouterCreated, RouterDropped
from topics.core.routers import Router
from topics.engine.effects import Gate, Op
from topics.engine.forwarding import Forwarder
from topics.engine.kernel import Kernel
from topics.engine.lifecycle import Lifecycle
from topics.errors import (
    InvalidRequest,
    RouterCycle,
    RouterNotFound,
    Throttled,
    TopicExistsIncompatible,
    TopicNotFound,
)


class RouterSpec(msgspec.Struct, frozen=True):
    """A router as asked for: a full replacement of its knobs."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    match: Match | None = None
    allow_cycle: bool = False
    exactly_once: bool = False


class Routing:
    def __init__(self, kernel: Kernel, lifecycle: Lifecycle, forwarder: Forwarder) -> None:
        self._kernel = kernel
        self._lifecycle = lifecycle
        self._forwarder = forwarder
        self._changing: Gate | None = None
        kernel.catch_up = forwarder.catch_up

    def put(self, name: str, spec: RouterSpec) -> Op[tuple[bool, Router]]:
        """Create a router that starts at the source's head, or replace the knobs of one."""
        while self._changing is not None:
            yield self._changing
        gate = self._changing = Gate()
        try:
            return (yield from self._put(name, spec))
        finally:
            self._changing = None
            gate.open()

    def _put(self, name: str, spec: RouterSpec) -> Op[tuple[bool, Router]]:
        self._check(name, spec)
        kernel, routers = self._kernel, self._kernel.catalog.routers
        for topic in (spec.source, spec.dest):
            if topic not in kernel.catalog.by_name:
                yield from self._lifecycle.create(topic, parse({}, topic=topic))
        source, dest = kernel.topic(spec.source), kernel.topic(spec.dest)
        known = routers.by_name.get(name)
        created = known is None or (known.source_id, known.dest_id) != (source.id, dest.id)
        fact = RouterCreated(
            kernel.clock.now_ms(),
            name,
            spec.source,
            spec.dest,
            source.id,
            dest.id,
            spec.preserve_node,
            spec.preserve_tag,
            spec.create_dest,
            spec.allow_cycle,
            spec.exactly_once,
            spec.match,
            source.head if created or known is None else known.cursor,
            dest.head,
        )
        if kernel.in_memory:
            kernel.apply([fact])
        else:
            yield from kernel.commit([fact], topic_id=0, durable=True)
        return created, routers.by_name[name]

    def _check(self, name: str, spec: RouterSpec) -> None:
        kernel, routers = self._kernel, self._kernel.catalog.routers
        if not ROUTER_NAME.match(name):
            raise InvalidRequest(f"{name!r} is not a valid router name")
        if spec.source == spec.dest:
            raise InvalidRequest("source and dest must be two topics")
        check_topic_name(spec.source)
        check_topic_name(spec.dest)
        if not spec.create_dest and spec.dest not in kernel.catalog.by_name:
            raise TopicNotFound(spec.dest)
        for other in routers.by_name.values():
            if other.name != name and other.dest == spec.dest and other.source != spec.source:
                raise TopicExistsIncompatible.fan_in(spec.dest)
        known = routers.by_name.get(name)
        if known is not None and (known.source, known.dest) != (spec.source, spec.dest):
            raise TopicExistsIncompatible.repoint(
                name, existing_source=known.source, existing_dest=known.dest
            )
        limit = kernel.settings.max_routers
        if known is None and limit and len(routers.by_name) >= limit:
            raise Throttled("max_routers", maximum=limit)
        if not spec.allow_cycle:
            path = self._path(spec.dest, spec.source, leaving_out=name)
            if path is not None:
                raise RouterCycle([spec.source, *path])

    def _path(self, start: str, end: str, *, leaving_out: str) -> list[str] | None:
        """Topics from `start` to `end` along routers, both included; None when there is no way."""
        came_from: dict[str, str | None] = {start: None}
        ahead = [start]
        while ahead:
            here = ahead.pop(0)
            if here == end:
                return _walk_back(came_from, end)
            for router in self._kernel.catalog.routers.by_name.values():
                follows = router.source == here and router.name != leaving_out
                if follows and router.dest not in came_from:
                    came_from[router.dest] = here
                    ahead.append(router.dest)
        return None

    def get(self, name: str) -> Op[Router]:
        """A router, brought up to date first."""
        router = self._kernel.catalog.routers.by_name.get(name)
        if router is None:
            raise RouterNotFound(name)
        while (yield from self._forwarder.advance(router)):
            pass
        return router

    def drop(self, name: str) -> Op[bool]:
        """Stop a router at once; copies it made stay. False when there was none."""
        kernel = self._kernel
        router = kernel.catalog.routers.by_name.get(name)
        if router is None:
            return False
        fact = RouterDropped(kernel.clock.now_ms(), name, router.source_id, router.dest_id)
        if kernel.in_memory:
            kernel.apply([fact])
        else:
            yield from kernel.commit([fact], topic_id=0, durable=True)
        return True


def _walk_back(came_from: dict[str, str | None], end: str) -> list[str]:
    path: list[str] = []
    at: str | None = end
    while at is not None:
        path.append(at)
        at = came_from[at]
    return path[::-1]
