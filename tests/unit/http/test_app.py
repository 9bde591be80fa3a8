"""The gate: what is judged once for a head, and what with every request."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from topics.delivery.loop_budget import LoopBudget
from topics.engine.effects import Gate, Io
from topics.engine.engine import memory_engine
from topics.engine.settings import EngineSettings
from topics.engine.writes.gates import Publishing
from topics.errors import TopicsError
from topics.http.api.app import App
from topics.http.api.auth import Keyring, Scope
from topics.http.api.probes import described
from topics.http.api.routing import Resource, Route, Routes
from topics.http.api.service import HttpLimits, Service
from topics.http.api.unknown_keys import BURST
from topics.http.messages import Late, Request, Response
from topics.testing import ManualClock


class NoRunner:
    """Nothing is run here."""

    def start(self, op: Any, done: Callable[[Any, TopicsError | None], None]) -> None:  # noqa: ANN401 - never called
        raise AssertionError


@pytest.fixture
def service() -> Service:
    made = Service(
        version="0",
        clock=ManualClock(),
        keyring=Keyring("secret:read"),
        limits=HttpLimits(max_inflight_per_key=1),
        runner=NoRunner(),
    )
    made.attach(memory_engine(EngineSettings()))
    return made


@pytest.fixture
def app(service: Service) -> App:
    routes = Routes()
    reading = Route(lambda call: None, Scope.READ)
    writing = Route(lambda call: None, Scope.WRITE)
    routes.add("/v0/topics/*", Resource({"GET": reading, "POST": writing}, named=True))
    return App(service, routes)


def ask(method: str = "GET") -> Request:
    headers = {b"authorization": b"Bearer secret"}
    return Request(method, b"/v0/topics/t", headers, version="1.1", peer="")


def status(app: App, request: Request) -> int | None:
    refusal = app.begin(request)
    return None if refusal is None else refusal.status


def test_requests_with_one_head_share_the_verdict_but_not_the_slot(app: App) -> None:
    first = ask()
    assert status(app, first) is None
    second = first.sibling("elsewhere")
    assert second.standing is first.standing is not None
    assert status(app, second) == 429, "the first still holds the only slot"
    app.end(first, 200)
    assert status(app, second) is None


def test_a_verdict_falls_with_its_keys(app: App, service: Service) -> None:
    first = ask()
    assert status(app, first) is None
    app.end(first, 200)
    service.keyring = Keyring("another")
    assert status(app, first.sibling("")) == 401


def test_a_verdict_does_not_outlive_readiness(app: App, service: Service) -> None:
    first = ask()
    assert status(app, first) is None
    app.end(first, 200)
    service.draining = True
    assert status(app, first.sibling("")) == 503


def test_a_refusal_is_judged_each_time(app: App) -> None:
    first = ask("POST")
    for request in (first, first.sibling("")):
        assert status(app, request) == 403
        assert request.standing is None


def test_a_refused_request_is_gone_when_it_is_over(app: App) -> None:
    request = ask("POST")
    left = weakref.ref(request)
    gc.disable()
    try:
        assert status(app, request) == 403
        del request
        assert left() is None, "only a collection would free it, and all that was read with it"
    finally:
        gc.enable()


def test_only_what_writes_runs_before_its_turn(app: App, service: Service) -> None:
    service.keyring = Keyring("secret")
    for method, expected in (("GET", False), ("POST", True)):
        request = ask(method)
        assert status(app, request) is None
        assert request.may_run_ahead is expected
        app.end(request, 200)


def test_a_caller_that_guesses_keys_is_refused_late_and_one_with_a_key_is_not(app: App) -> None:
    def guess() -> Response | None:
        headers = {b"authorization": b"Bearer guessed"}
        return app.begin(Request("GET", b"/v0/topics/t", headers, version="1.1", peer="there:1"))

    refusals = [guess() for _ in range(BURST + 1)]
    assert [type(refusal) for refusal in refusals] == [Response] * BURST + [Late]
    friend = ask()
    friend.peer = "there:2"
    assert status(app, friend) is None
    assert not friend.is_stranger


@pytest.mark.parametrize(
    ("keys", "token", "is_stranger"),
    [("", "", False), ("secret", "", True), ("secret", "wrong", True), ("secret", "secret", False)],
)
def test_a_stranger_is_whoever_has_no_valid_key_where_keys_are_needed(
    app: App, service: Service, keys: str, token: str, is_stranger: bool
) -> None:
    service.keyring = Keyring(keys)
    headers = {b"authorization": b"Bearer %b" % token.encode()}
    request = Request("GET", b"/v0/topics/t", headers, version="1.1", peer="")
    app.begin(request)
    assert request.is_stranger is is_stranger


def test_the_description_of_the_api_is_made_on_a_thread_and_once(service: Service) -> None:
    op = described(service)
    effect = next(op)
    assert isinstance(effect, Io)
    assert service.description is None
    with pytest.raises(StopIteration) as done:
        op.send(effect.work())
    assert json.loads(done.value.value)["openapi"].startswith("3.")
    assert service.description == done.value.value


def test_a_request_waits_while_a_part_of_a_commit_is_shown(service: Service) -> None:
    served: list[str] = []
    routes = Routes()
    route = Route(lambda call: served.append(call.request.path.decode()))
    routes.add("/v0/topics/*", Resource({"GET": route}, named=True))
    routes.add("/v0/topics", Resource({"GET": route}))
    routes.add("/v0/health", Resource({"GET": route}, open=True, always=True))
    app = App(service, routes)
    service.limits = HttpLimits()
    reply: Any = SimpleNamespace(tick=SimpleNamespace(reads=LoopBudget(lambda _: None)))

    def ask_for(path: bytes) -> None:
        headers = {b"authorization": b"Bearer secret"}
        request = Request("GET", path, headers, version="1.1", peer="")
        assert app.begin(request) is None
        app(request, reply)

    publishing = Publishing({"t", "u"}, Gate())
    assert service.engine is not None
    service.engine.kernel.publishing.append(publishing)
    for path in (b"/v0/topics/t", b"/v0/topics", b"/v0/topics/other", b"/v0/health"):
        ask_for(path)
    assert served == ["/v0/topics/other", "/v0/health"]
    service.engine.kernel.publishing.remove(publishing)
    publishing.over.open()
    assert served[2:] == ["/v0/topics/t", "/v0/topics"]
