"""One request while it is handled: the caller, the body, and the ways to answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.errors import (
    Forbidden,
    InvalidRequest,
    LogFailed,
    LogFull,
    TopicsError,
    UnsupportedMediaType,
)
from topics.http.api.auth import Principal
from topics.http.api.errors import as_told, internal, refusal
from topics.http.api.service import Service
from topics.http.messages import Headers, Reply, Request, Response
from topics.wire.query import QueryString
from topics.wire.responses import time_spent

T = TypeVar("T")
_JSON_TYPE = b"application/json"
_log = logging.getLogger("topics.http")


class Call:
    """What a handler gets. `names` are the variable parts of the path, decoded."""

    def __init__(
        self,
        service: Service,
        request: Request,
        reply: Reply,
        principal: Principal,
        names: tuple[str, ...],
    ) -> None:
        self.service = service
        self.request = request
        self.reply = reply
        self.principal = principal
        self.names = names
        self.started_ns = time.perf_counter_ns()

    @property
    def engine(self) -> Engine:
        """The engine. A request that was admitted before the server began to drain still gets it:
        running requests finish."""
        engine = self.service.engine
        return self.service.ready_engine if engine is None else engine

    @property
    def query(self) -> QueryString:
        return self.request.query

    @property
    def request_id(self) -> str:
        """What this request is called in logs and in the answer's header."""
        return self.request.echo[0][1].decode("latin-1") if self.request.echo else "-"

    def header(self, name: bytes) -> bytes:
        return self.request.headers.get(name, b"")

    def json_body(self, *, may_be_empty: bool = False) -> bytes:
        """The body, which has to be declared as JSON; an empty one only where that is allowed."""
        body = self.request.body
        if not body and may_be_empty:
            return body
        content_type = self.request.headers.get(b"content-type", b"")
        if not content_type.startswith(_JSON_TYPE):
            raise UnsupportedMediaType(content_type=content_type.decode("latin-1") or "none")
        return body

    def hold_body(self) -> None:
        """Keep a long body on the request, where it is counted, until it can be decoded.

        It is freed if the client disconnects.
        """

        def forget() -> None:
            self.request.take_body()

        self.reply.on_gone = forget

    def take_body(self) -> bytes:
        """The body that was held, off the request; raises when the client has gone meanwhile."""
        body = self.request.take_body()
        if not body:
            raise InvalidRequest("the client has gone")
        return body

    def allow_hidden_name(self, name: str) -> None:
        """Refuse if the key may not use a name that the caller did not send; the error hides it."""
        if not self.principal.allows(name):
            raise Forbidden(name=self.names[0])

    def elapsed_ms(self) -> float:
        return (time.perf_counter_ns() - self.started_ns) / 1e6

    def spent(self) -> bytes:
        """The `performance` object of a body that reports nothing but the time."""
        return time_spent(time.perf_counter_ns() - self.started_ns)

    def stop_counting(self) -> None:
        """Give back the place among requests in flight: a stream is not one of them."""
        admitted = self.request.context
        if admitted.holds_slot:
            self.service.leave(self.principal.key_id)
            admitted.holds_slot = False

    # Answers

    def answer(self, body: bytes, status: int = 200, headers: Headers = ()) -> None:
        self.reply(Response(status, body, headers=headers))

    def refuse(self, error: TopicsError) -> None:
        """Answer with an error; never raises, since further calls may wait to be answered next."""
        answer = refusal(as_told(error, is_limited=bool(self.principal.prefixes)))
        if answer.status == 401:
            now_s = self.started_ns / 1e9
            answer = self.service.unknown_keys.refuse(self.request.peer, answer, now_s=now_s)
        elif answer.status == 500 and not isinstance(error, LogFull | LogFailed):
            # A failure of the log is logged where it happens, once for all requests it refuses.
            _log.error("request %s failed: %s", self.request_id, error, exc_info=error)
        try:
            self.reply(answer)
        except Exception:  # a bug in the connection, perhaps while it sent the real answer
            _log.exception("request %s could not be answered", self.request_id)
            self.reply.abort()

    def run(self, op: Op[T], answer: Callable[[T], None]) -> None:
        """Run an operation and answer with what it returns, or refuse with what it raises."""

        def done(result: T | None, error: TopicsError | None) -> None:
            # Without an error there is a result.
            self.settle(result if error is None else error, answer)  # type: ignore[arg-type]

        self.service.runner.start(op, done)

    def within_budget(self, work: Callable[[], None]) -> None:
        """Do long work within the loop budget, now or in a later tick; a failure is answered."""
        self.reply.tick.reads.do(lambda: self.settle(None, lambda _none: work()))

    def settle(self, outcome: T | TopicsError, answer: Callable[[T], None]) -> None:
        """Answer with a result, or refuse with the error that came of it instead."""
        if isinstance(outcome, TopicsError):
            self.refuse(outcome)
            return
        try:
            answer(outcome)
        except TopicsError as failure:
            self.refuse(failure)
        except Exception as failure:
            self.refuse(internal(failure))
