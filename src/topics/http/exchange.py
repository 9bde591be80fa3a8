"""The life of one request, the same on every version of HTTP.

    begin        headers are in: the gate, then coding and size of the announced body
    feed         body bytes
    complete     the body is in: the application runs
    (reply)      one response, stream or upgrade
    over         nothing more will happen; the application hears of it exactly once

An early refusal answers before the body is in; the rest of that body is read and dropped.
A subclass knows how to put an answer on its connection.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from topics.http import refusals
from topics.http.body import RequestBody, plan_body
from topics.http.budget import Charge
from topics.http.coding import accepts_gzip, compress
from topics.http.hub import Hub, log
from topics.http.messages import Headers, Late, Request, Response, Stream, Upgrade
from topics.http.tick import Tick

_CODED: Headers = ((b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))


class Exchange(ABC):
    """One request and its answer; also the `Reply` given to the application."""

    # Defaults live on the class: an exchange is born with every request, and few change them.
    on_gone: Callable[[], None] | None = None
    on_half_close: Callable[[], None] | None = None
    answered = False
    gone = False
    status: int | None = None
    _admitted = False
    _body: RequestBody | None = None
    _charge: Charge | None = None
    _reading_since: float | None = None

    def __init__(self, hub: Hub, request: Request) -> None:
        self._hub = hub
        self.request = request

    @property
    def tick(self) -> Tick:
        return self._hub.tick

    # The request comes in

    def begin(self, has_body: bool) -> None:
        """Run the gate; afterwards `answered` says whether the request was refused."""
        try:
            refusal = self._hub.app.begin(self.request)
        except Exception:
            log.exception("the gate failed")
            refusal = refusals.internal()
        else:
            self._admitted = refusal is None
        if refusal is None and has_body:
            refusal = self._expect_body()
        if refusal is not None:
            self(refusal)

    def _expect_body(self) -> Response | None:
        """Make room for the body that is announced, or say why it will not be read."""
        request, most = self.request, self._hub.limits.max_body_bytes
        if request.max_body_bytes is not None:
            most = min(most, request.max_body_bytes)
        plan = plan_body(request.headers, max_bytes=most)
        if isinstance(plan, Response):
            return plan
        budget = self._hub.budget
        refused = budget.refusal(request.holder, plan.announced_bytes)
        if refused is not None:
            return refusals.throttled(refused)
        self._body = plan
        self._charge = Charge(budget, request.holder)
        return None

    def feed(self, data: bytes) -> None:
        """Take a piece of the body, or drop it when an answer was given already."""
        if self._body is not None and not self.answered:
            refusal = self._body.feed(data) or self._count_body()
            if refusal is not None:
                self._drop_body()
                self(refusal)

    def _count_body(self) -> Response | None:
        if self._body is None or self._charge is None:
            return None
        refused = self._charge.raise_to(self._body.held_bytes)
        return None if refused is None else refusals.throttled(refused)

    def _drop_body(self) -> None:
        self._body = None
        if self._charge is not None:
            self._charge.give_back()
            self._charge = None

    def is_overdue(self, now: float) -> bool:
        """Whether the body has been on its way for too long; counts from the first time asked."""
        if self._reading_since is None:
            self._reading_since = now
        return now - self._reading_since > self._hub.limits.max_body_s

    @property
    def received(self) -> int:
        """Body bytes taken so far, as they arrived."""
        return 0 if self._body is None else self._body.received

    @property
    def is_coded(self) -> bool:
        """Whether the body being read has to be decoded."""
        return self._body is not None and self._body.is_coded

    @property
    def held_bytes(self) -> int:
        """What the body costs in memory; nothing once it was refused."""
        return 0 if self._body is None else self._body.held_bytes

    def complete(self) -> bool:
        """The body has ended; whether the request is now ready to `run`."""
        if self.answered:
            return False
        if self._body is not None:
            body = self._body.finish()
            self._body = None  # it would keep what the application lets go of
            if isinstance(body, Response):
                self(body)
                return False
            self.request.body = body
        return True

    def run(self) -> None:
        """Hand the request to the application, whose failure becomes an answer too."""
        try:
            self._hub.app(self.request, self)
        except Exception:
            log.exception("handling %s failed", self.request.method)
            if not self.answered:
                self(refusals.internal())

    # The answer goes out

    def __call__(self, response: Response) -> None:
        """Answer with a complete response."""
        assert not self.answered, "a request has one answer"
        self.answered = True
        self.status = response.status
        if self.gone:
            return
        if type(response) is Late:
            self._hub.loop.call_later(response.wait_s, self._send_late, response)
            return
        size = response.size
        if size < self._hub.limits.gzip_min_bytes or not self._may_compress(response):
            self._send_response(response)
        elif size < self._hub.limits.gzip_aside_bytes:
            self._send_response(_coded(response, compress(response.body)))
        else:
            self._compress_aside(response)

    def stream(self, status: int = 200, *, content_type: bytes, headers: Headers = ()) -> Stream:
        """Answer with a body that is written over time."""
        self._mark_answered(status)
        return self._open_stream(Response(status, content_type=content_type, headers=headers))

    def upgrade(self) -> Upgrade:
        """Answer by becoming a WebSocket."""
        assert self.request.wants_websocket, "the client asked for no WebSocket"
        self._mark_answered(101)
        return self._open_upgrade()

    def _mark_answered(self, status: int) -> None:
        assert not self.answered, "a request has one answer"
        self.answered = True
        self.status = status

    def _may_compress(self, response: Response) -> bool:
        accepted = self.request.headers.get(b"accept-encoding")
        return (
            accepted is not None
            and accepts_gzip(accepted)
            and all(name != b"content-encoding" for name, _ in response.headers)
        )

    def _send_late(self, response: Response) -> None:
        if not self.gone:
            self._send_response(response)

    def _compress_aside(self, response: Response) -> None:
        """Compress a large body on a pool thread: on the loop it would delay all requests."""

        def send(done: asyncio.Future[bytes]) -> None:
            if self.gone or done.cancelled():
                return
            try:
                self._send_response(_coded(response, done.result()))
            except Exception:
                log.exception("%s could not be answered", self.request.method)
                self.abort()

        self._hub.loop.run_in_executor(None, compress, response.body).add_done_callback(send)

    @abstractmethod
    def _send_response(self, response: Response) -> None: ...

    @abstractmethod
    def _open_stream(self, head: Response) -> Stream: ...

    @abstractmethod
    def _open_upgrade(self) -> Upgrade: ...

    # The end

    @abstractmethod
    def abort(self) -> None:
        """Close the connection now, unsent bytes included."""

    def leave(self) -> None:
        """The client has disconnected: tell the application, if it still works on an answer."""
        if self.gone:
            return
        self.gone = True
        if self.on_gone is not None and not self.answered:
            call_safely(self.on_gone)
        self.over()

    def over(self) -> None:
        """Report the end to the application, once."""
        self.on_gone = None  # it refers to this object: a cycle
        if self._charge is not None:
            self._drop_body()
        if self._admitted:
            self._admitted = False
            try:
                self._hub.app.end(self.request, self.status)
            except Exception:
                log.exception("ending a request failed")


def _coded(response: Response, body: bytes) -> Response:
    return Response(
        response.status,
        body,
        content_type=response.content_type,
        headers=response.headers + _CODED,
    )


def call_safely(callback: Callable[[], None]) -> None:
    """Run an application's callback; its bug ends in the log, not in the connection."""
    try:
        callback()
    except Exception:
        log.exception("a callback of the application failed")


def drain_stream(stream: Stream) -> None:
    """Say that a stream whose peer was behind has nothing left to send."""
    if stream.behind:
        stream.behind = False
        if stream.on_drain is not None:
            call_safely(stream.on_drain)


def close_stream(stream: Stream) -> None:
    """Mark a stream closed by its peer and say so, once."""
    if not stream.closed:
        stream.closed = True
        callback = stream.on_close
        if callback is not None:
            call_safely(callback)
