"""The application: authenticate, judge, dispatch. Every request passes the same checks in order:

origin, authentication, readiness, in-flight cap, path, scope, name prefix, names of query
parameters. Then the transport reads the body within its limits, and the handler checks the content
type and the rest.
"""

from __future__ import annotations

import time

from topics.engine.engine import Engine
from topics.errors import (
    Forbidden,
    MethodNotAllowed,
    NotFound,
    TopicsError,
    Unauthorized,
)
from topics.http.access_log import ID_HEADER, RequestIds
from topics.http.api.auth import (
    ANYONE,
    KeyId,
    Keyring,
    Principal,
    Scope,
    bearer_token,
    stream_token,
)
from topics.http.api.call import Call
from topics.http.api.console import TO_CONSOLE, is_browser_at_root
from topics.http.api.errors import internal, refusal
from topics.http.api.routing import Resource, Route, Routes
from topics.http.api.service import Service
from topics.http.host_check import PREFLIGHT, is_preflight, refusal_of
from topics.http.messages import Headers, Reply, Request, Response
from topics.wire.near_misses import refuse_misspelt_parameter


class _Standing:
    """What the head of a request decides; kept for further requests with the same head."""

    __slots__ = (
        "endpoint",
        "headers",
        "holder",
        "is_always",
        "is_stranger",
        "keyring",
        "names",
        "principal",
    )

    def __init__(
        self,
        endpoint: Route | TopicsError,
        principal: Principal,
        names: tuple[str, ...],
        keyring: Keyring,
        *,
        headers: Headers,
        is_always: bool,
    ) -> None:
        self.endpoint = endpoint
        """The route of the request, or the error that refuses it."""
        self.principal = principal
        self.names = names
        self.keyring = keyring
        """The keys that this was judged by; with other keys it is judged again."""
        self.headers = headers
        """What every answer carries because of the origin."""
        self.holder = principal.key_id if keyring.is_shared else None
        """Whose share of the server's memory its body takes."""
        self.is_stranger = keyring.enabled and not principal.key_id
        """Whether it came without a valid key, where keys are needed."""
        self.is_always = is_always
        """Whether it is answered while the server recovers or drains, too."""


class _Admitted:
    """What `begin` found out, kept for the call."""

    __slots__ = ("endpoint", "holds_slot", "names", "principal", "started_ns")

    def __init__(
        self, endpoint: Route, principal: Principal, names: tuple[str, ...], started_ns: int
    ) -> None:
        self.endpoint = endpoint
        self.principal = principal
        self.names = names
        self.holds_slot = True
        self.started_ns = started_ns


class App:
    """Serves `/v0`. One object for all connections of a server."""

    def __init__(self, service: Service, routes: Routes) -> None:
        self._service = service
        self._routes = routes
        self._ids = RequestIds()

    def begin(self, request: Request) -> Response | None:
        request.echo = ((ID_HEADER, self._ids.id_of(request)),)
        started_ns = time.perf_counter_ns()
        key_id: KeyId | None = None
        try:
            standing, keyring = request.standing, self._service.keyring
            if standing is None or standing.keyring is not keyring:
                request.is_stranger = keyring.enabled
                standing = self._judge(request)
            elif standing.headers:
                request.echo += standing.headers
            request.is_stranger = standing.is_stranger
            key_id = standing.principal.key_id
            request.context = self._admit(request, standing, started_ns)
        except TopicsError as error:
            answer = self._refuse(request, error, started_ns)
            if self._service.access_log is not None:
                self._service.access_log.add(request, answer.status, started_ns, key_id)
            return answer
        return None

    def _refuse(self, request: Request, error: TopicsError, started_ns: int) -> Response:
        service, answer = self._service, refusal(error)
        # The traceback refers to this frame and so to the error itself and to all parsed input:
        # a cycle that would keep the memory until the garbage collector runs.
        error.__traceback__ = None
        if error.code == "throttled":
            service.throttled_total += 1
        elif isinstance(error, Unauthorized):
            return service.unknown_keys.refuse(request.peer, answer, now_s=started_ns / 1e9)
        return answer

    def __call__(self, request: Request, reply: Reply) -> None:
        engine = self._service.engine
        if (
            engine is not None
            and engine.kernel.publishing
            and self._waits_for_commit(engine, request, reply)
        ):
            return
        admitted: _Admitted = request.context
        call = Call(self._service, request, reply, admitted.principal, admitted.names)
        try:
            admitted.endpoint.handler(call)
        except TopicsError as error:
            call.refuse(error)
        except Exception as error:
            call.refuse(internal(error))

    def _waits_for_commit(self, engine: Engine, request: Request, reply: Reply) -> bool:
        """A request that might see a part of a commit is served when all of the commit is there."""
        admitted: _Admitted = request.context
        reads = reply.tick.reads  # a budget: many requests may have waited
        for publishing in engine.kernel.publishing:
            if not request.standing.is_always and publishing.concerns(admitted.names[:1]):
                publishing.over.when_open(lambda: reads.do(lambda: self(request, reply)))
                return True
        return False

    def end(self, request: Request, status: int | None) -> None:
        admitted: _Admitted | None = request.context
        if admitted is None:
            return
        key_id = admitted.principal.key_id
        if status == _THROTTLED:
            self._service.throttled_total += 1
        if admitted.holds_slot:
            self._service.leave(key_id)
            admitted.holds_slot = False
        if self._service.access_log is not None:
            self._service.access_log.add(request, status, admitted.started_ns, key_id)

    def _admit(self, request: Request, standing: _Standing, started_ns: int) -> _Admitted:
        service = self._service
        if (service.engine is None or service.draining) and not standing.is_always:
            _ = service.ready_engine  # raises the reason why there is no engine
        endpoint, principal = standing.endpoint, standing.principal
        service.enter(principal.key_id)
        try:
            if isinstance(endpoint, TopicsError):
                raise endpoint
            if endpoint.admit is not None:
                endpoint.admit(service, principal, standing.names)
        except TopicsError:
            service.leave(principal.key_id)
            raise
        request.standing = standing
        request.max_body_bytes = endpoint.max_body_bytes
        request.holder = standing.holder
        # Answers to writes are short. Pages that were read ahead would take memory until sent.
        request.may_run_ahead = endpoint.scope is Scope.WRITE
        return _Admitted(endpoint, principal, standing.names, started_ns)

    def _judge(self, request: Request) -> _Standing:
        """What the head alone decides; a foreign page or an unknown key is refused here."""
        resource: Resource | None = None
        names: tuple[str, ...] = ()
        flaw: TopicsError | None = None
        try:
            resource, names = self._routes.find_path(request.path)
        except TopicsError as error:
            flaw = error  # raised later, for a caller with a valid key
        keyring = self._service.keyring
        verdict = self._service.host_check.judge(request, has_keys=keyring.enabled)
        headers = verdict.headers
        request.echo += headers
        if verdict.foreign is not None and not (resource is not None and resource.is_probe):
            raise refusal_of(request, verdict.foreign)
        if verdict.is_listed and is_preflight(request):
            # Browsers ask this without a key, and cannot go on without an answer.
            return _Standing(_ON_PREFLIGHT, ANYONE, (), keyring, headers=headers, is_always=True)
        if is_browser_at_root(request):
            return _Standing(_ON_ROOT, ANYONE, (), keyring, headers=headers, is_always=True)
        principal = self._authenticate(request, resource)
        endpoint: Route | TopicsError
        try:
            endpoint = flaw or self._authorise(request, resource, principal, names)
        except TopicsError as error:
            endpoint = error
        return _Standing(
            endpoint,
            principal,
            names,
            keyring,
            headers=headers,
            is_always=resource is not None and resource.always,
        )

    def _authenticate(self, request: Request, resource: Resource | None) -> Principal:
        service = self._service
        if not service.keyring.enabled or (resource is not None and resource.open):
            return ANYONE
        endpoint = resource.methods.get(_method(request)) if resource is not None else None
        header = request.headers.get(b"authorization")
        if endpoint is not None and endpoint.takes_stream_token:
            token = stream_token(header, request.query)
        else:
            token = bearer_token(header)
        if endpoint is not None and endpoint.own_auth:
            return service.keyring.find(token) or NOBODY
        return service.keyring.authenticate(token)

    def _authorise(
        self,
        request: Request,
        resource: Resource | None,
        principal: Principal,
        names: tuple[str, ...],
    ) -> Route:
        if resource is None:
            raise NotFound(f"the path {request.path.decode('latin-1')}")
        endpoint = resource.methods.get(_method(request))
        scope = resource.other_scope if endpoint is None else endpoint.scope
        principal.need(scope)
        if resource.named and not principal.allows(names[0]):
            raise Forbidden(name=names[0])
        if endpoint is None:
            path = request.path.decode("latin-1")
            raise MethodNotAllowed(request.method, path=path, allowed=tuple(resource.methods))
        if request.raw_query:
            refuse_misspelt_parameter(request.query.names, endpoint.query)
        return endpoint


_ON_PREFLIGHT = Route(lambda call: call.reply(PREFLIGHT))
_ON_ROOT = Route(lambda call: call.reply(TO_CONSOLE))


NOBODY = Principal(key_id=0, scopes=Scope(0))
"""A caller without a valid key, where the handler has to tell 404 from 401."""


_THROTTLED = 429


def _method(request: Request) -> str:
    return "GET" if request.method == "HEAD" else request.method
