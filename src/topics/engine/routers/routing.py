"""Routers come, change and go. A refused router leaves nothing behind, no topic either."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from topics.core.config import ROUTER_NAME, check_topic_name, parse
from topics.core.facts import Fact, Match, RouterCreated, RouterDeleted
from topics.core.routers import Router
from topics.engine.effects import Gate, Op
from topics.engine.kernel import CONTROL_BYTES, Kernel
from topics.engine.routers.forwarding import Forwarder
from topics.engine.writes.lifecycle import Lifecycle
from topics.errors import (
    InvalidRequest,
    RouterCycle,
    RouterNotFound,
    Throttled,
    TopicExistsIncompatible,
    TopicNotFound,
)
from topics.values import RouterState

T = TypeVar("T")


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


def _triple(match: Match) -> tuple[str, str, str]:
    return ("tag", "Glob", match.value + "*") if match.is_prefix else ("tag", "Eq", match.value)


class Routing:
    def __init__(self, kernel: Kernel, lifecycle: Lifecycle, forwarder: Forwarder) -> None:
        self._kernel = kernel
        self._lifecycle = lifecycle
        self._forwarder = forwarder
        self._changing: Gate | None = None

    def put(self, name: str, spec: RouterSpec) -> Op[tuple[bool, Router]]:
        """Create a router that starts at the source's head, or replace the knobs of one."""
        return (yield from self._one_at_a_time(self._put(name, spec)))

    def drop(self, name: str) -> Op[bool]:
        """Stop a router at once; copies it made stay. False when there was none."""
        return (yield from self._one_at_a_time(self._drop(name)))

    def _one_at_a_time(self, change: Op[T]) -> Op[T]:
        """One change at a time: two that come together must not close a cycle, feed one topic
        from two, or give a router that is being dropped its old place back."""
        while self._changing is not None:
            yield self._changing
        gate = self._changing = Gate()
        try:
            return (yield from change)
        finally:
            self._changing = None
            gate.open()

    def _put(self, name: str, spec: RouterSpec) -> Op[tuple[bool, Router]]:
        self._check(name, spec)
        kernel, routers = self._kernel, self._kernel.catalog.routers
        kernel.require_room(0, CONTROL_BYTES)
        for end in (spec.source, spec.dest):
            if end not in kernel.catalog.by_name:
                yield from self._lifecycle.create(end, parse({}, topic=end))
        source, dest = kernel.topic(spec.source), kernel.topic(spec.dest)
        # A drop of either topic comes before this or after it, not in between.
        bar = yield from kernel.gates.close([source.id, dest.id])
        try:
            for topic in (source, dest):
                if topic.id not in kernel.catalog.by_id:
                    raise TopicNotFound(topic.name)
            created = name not in routers.by_name
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
                source.head if created else routers.by_name[name].cursor,
                dest.head,
            )
            yield from self._commit(fact)
            return created, routers.by_name[name]
        finally:
            kernel.gates.open(bar)

    def _commit(self, fact: Fact) -> Op[None]:
        if self._kernel.in_memory:
            self._kernel.apply([fact])
        else:
            yield from self._kernel.commit([fact], topic_id=0, durable=True)

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
        for other in routers:
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
            path = routers.path(spec.dest, spec.source, leaving_out=name)
            if path is not None:
                raise RouterCycle([spec.source, *path])
        self._check_topic_cap(spec)

    def _check_topic_cap(self, spec: RouterSpec) -> None:
        """Judged for both topics before either is made."""
        catalog, limit = self._kernel.catalog, self._kernel.settings.max_topics
        missing = sum(topic not in catalog.by_name for topic in (spec.source, spec.dest))
        if limit and missing and len(catalog.by_id) + missing > limit:
            raise Throttled("max_topics", maximum=limit)

    def state(self, router: Router) -> RouterState:
        """What a router looks like from outside, as it is now."""
        source = self._kernel.catalog.by_id.get(router.source_id)
        match = router.match
        return RouterState(
            router=router.name,
            source=router.source,
            dest=router.dest,
            preserve_node=router.preserve_node,
            preserve_tag=router.preserve_tag,
            filter=None if match is None else _triple(match),
            allow_cycle=router.allow_cycle,
            guarantee="exactly_once" if router.exactly_once else "at_least_once",
            forwarded_total=router.forwarded_total,
            lag=0 if source is None else max(0, source.head - router.cursor),
        )

    def all(self, *, prefix: str = "") -> Op[list[RouterState]]:
        """Every router, sorted by name."""
        yield from ()
        routers = self._kernel.catalog.routers.by_name
        return [self.state(routers[name]) for name in sorted(routers) if name.startswith(prefix)]

    def get(self, name: str) -> Op[Router]:
        """A router, brought up to date first."""
        router = self._kernel.catalog.routers.by_name.get(name)
        if router is None:
            raise RouterNotFound(name)
        yield from self._forwarder.catch_up_router(router)
        return router

    def _drop(self, name: str) -> Op[bool]:
        router = self._kernel.catalog.routers.by_name.get(name)
        if router is None:
            return False
        now_ms = self._kernel.clock.now_ms()
        yield from self._commit(RouterDeleted(now_ms, name, router.source_id, router.dest_id))
        self._forwarder.forget(router)
        return True
