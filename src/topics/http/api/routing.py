"""Which path and method reach which handler, and what they need of a key.

The table in `wire.endpoints` declares all of it except the handlers, which are found by the names
in that table. The name prefix of a key is checked here for names in a path, after decoding. Names
in a body are checked by the handler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from topics.http.api.auth import NO_SCOPE, Principal, Scope, scope_of
from topics.http.api.call import Call
from topics.http.api.service import Service
from topics.http.target import segments_of
from topics.wire.endpoints import ENDPOINTS, OTHER_METHODS
from topics.wire.endpoints.parts import LITTLE_BYTES

Handler = Callable[[Call], None]
Admit = Callable[[Service, Principal, tuple[str, ...]], None]
"""What else is judged before the body is read, by the variable parts of the path."""

RECENT_PATHS = 4096
RECENT_BYTES = 512
"""How many paths are remembered, and how long they may be."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    handler: Handler
    scope: Scope = NO_SCOPE
    takes_stream_token: bool = False
    """Whether `?token=` counts: only where a browser opens a stream."""
    own_auth: bool = False
    """The handler judges the key itself; a missing one is not refused before."""
    max_body_bytes: int | None = LITTLE_BYTES
    """The limit of the call's body; None is the limit of the server."""
    admit: Admit | None = None
    query: frozenset[str] = frozenset()
    """The names of the query parameters."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One path. `named` says whether its first variable part is a topic or router name."""

    methods: Mapping[str, Route]
    named: bool = False
    other_scope: Scope = NO_SCOPE
    """The scope for methods that the path does not have: a key without it gets 403, not 405."""
    open: bool = False
    """Answered without a key and at any time: probes and the API description."""
    always: bool = False
    """Whether it is answered while the server recovers or drains, too."""
    is_probe: bool = False
    """Whether `Host` and `Origin` are not checked: the answer reveals nothing and does nothing."""


@dataclass
class Routes:
    """Paths by their fixed parts; `*` stands for one variable part.

    Paths without one are kept apart: a client may send a literal `*`, which is only a name.
    """

    _fixed: dict[tuple[str, ...], Resource] = field(default_factory=dict)
    _by_shape: dict[tuple[str, ...], Resource] = field(default_factory=dict)
    _below: dict[bytes, Resource] = field(default_factory=dict)
    """Resources of every path that begins with something; asked last."""
    _recent: dict[bytes, tuple[Resource | None, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, path: str, resource: Resource) -> None:
        shape = tuple(path.strip("/").split("/"))
        (self._by_shape if "*" in shape else self._fixed)[shape] = resource

    def add_below(self, prefix: bytes, resource: Resource) -> None:
        """Take every path that begins with `prefix` and has no resource of its own."""
        self._below[prefix] = resource

    def find_path(self, path: bytes) -> tuple[Resource | None, tuple[str, ...]]:
        """The resource of a path as it came; clients ask for the same few over and over."""
        found = self._recent.get(path)
        if found is None:
            found = self.find(segments_of(path)) or (self._find_below(path), ())
            if len(path) <= RECENT_BYTES:
                if len(self._recent) >= RECENT_PATHS:
                    self._recent.clear()
                self._recent[path] = found
        return found

    def _find_below(self, path: bytes) -> Resource | None:
        found = (resource for prefix, resource in self._below.items() if path.startswith(prefix))
        return next(found, None)

    def find(self, segments: tuple[str, ...]) -> tuple[Resource, tuple[str, ...]] | None:
        """The resource of a path and its variable parts; None when there is no such path."""
        exact = self._fixed.get(segments)
        if exact is not None:
            return exact, ()
        for shape, variable in _SHAPES.get(len(segments), ()):
            candidate = tuple("*" if at in variable else part for at, part in enumerate(segments))
            found = self._by_shape.get(candidate)
            if found is not None:
                names = tuple(segments[at] for at in shape)
                return (found, names) if all(names) else None
        return None


def routes_of(
    handlers: Mapping[str, Handler], admits: Mapping[str, Admit], *, probe_auth: bool
) -> Routes:
    """The routes of the table, with the handlers by the names of their endpoints."""
    methods: dict[str, dict[str, Route]] = {}
    resources: dict[str, Resource] = {}
    for endpoint in ENDPOINTS:
        path = endpoint.path
        methods.setdefault(path, {})[endpoint.method] = Route(
            handlers[endpoint.name],
            scope_of(endpoint.scopes or ()),
            takes_stream_token=endpoint.stream_token,
            own_auth=endpoint.own_auth,
            max_body_bytes=endpoint.max_body_bytes,
            admit=admits.get(endpoint.name),
            query=frozenset(parameter.name for parameter in endpoint.query),
        )
        resources[path] = Resource(
            methods[path],
            named="{topic}" in path or "{router}" in path,
            other_scope=scope_of(
                [scope for begin, scope in OTHER_METHODS if path.startswith(begin)]
            ),
            open=endpoint.scopes is None and not (endpoint.is_probe and probe_auth),
            always=endpoint.is_always,
            is_probe=endpoint.is_probe,
        )
    routes = Routes()
    for path, resource in resources.items():
        routes.add(_VARIABLE.sub("*", path), resource)
    return routes


_VARIABLE = re.compile(r"\{[a-z]+\}")
_SHAPES: dict[int, tuple[tuple[tuple[int, ...], frozenset[int]], ...]] = {
    3: (((2,), frozenset({2})),),
    4: (((2,), frozenset({2})),),
    5: (((2, 4), frozenset({2, 4})), ((2, 3), frozenset({2, 3}))),
    6: (((2, 3, 4, 5), frozenset({2, 3, 4, 5})),),
}
"""Per number of segments: which of them may be variable."""
