"""What the transport and the application say to each other.

The application is one object. The transport calls it on the loop thread and never awaits it:

    refusal = app.begin(request)     headers are in, the body is not: refuse now, or None
    app(request, reply)              the body is in too: answer now or later through `reply`
    app.end(request, status)         it is over; once for every request `begin` let through

Bytes stay bytes here. Header names are lower-case on both sides, so a plain dict is a
case-insensitive one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from topics.http.target import segments_of, split_target
from topics.http.tick import Tick
from topics.wire.query import NO_QUERY, QueryString, parse_query

JSON = b"application/json"

Headers = tuple[tuple[bytes, bytes], ...]


class Request:
    """One request. `body` is empty until the whole body has arrived and been decoded."""

    # Defaults live on the class: most requests never set them, and each request is short-lived.
    body: bytes = b""
    taken_bytes: int = 0  # of a body that was taken off it
    context: Any = None  # of the application; the transport does not use it
    standing: Any = None  # of the application, too: what the head alone decides
    echo: Headers = ()  # set by the application: what every answer to it carries
    wants_websocket: bool = False
    is_stranger: bool = False  # set by the application: keys are needed, and this one had none
    holder: Hashable = None  # set by the application: the key whose share the body counts against
    max_body_bytes: int | None = None  # set by the application: where a call needs less than most
    may_run_ahead: bool = True  # set by the application: beside equal ones, before or behind it
    _query: QueryString | None = None

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: dict[bytes, bytes],
        *,
        version: str,
        peer: str,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.version = version
        self.peer = peer
        self.path, self.raw_query = split_target(target)

    def sibling(self, peer: str) -> "Request":
        """Another request with the very same head; only what the head says is taken over."""
        request = Request.__new__(Request)
        request.method = self.method
        request.target = self.target
        request.headers = self.headers
        request.version = self.version
        request.peer = peer
        request.path = self.path
        request.raw_query = self.raw_query
        request.standing = self.standing
        request._query = self._query
        return request

    def take_body(self) -> bytes:
        """The body, of which the request keeps only the size: it may take much memory."""
        body, self.body = self.body, b""
        self.taken_bytes += len(body)
        return body

    @property
    def segments(self) -> tuple[str, ...]:
        """Decoded path segments; raises InvalidRequest when they are not UTF-8."""
        return segments_of(self.path)

    @property
    def query(self) -> QueryString:
        """What stands behind the question mark, read when it is first asked for."""
        if self._query is None:
            self._query = parse_query(self.raw_query) if self.raw_query else NO_QUERY
        return self._query


class Response:
    """A complete answer. The transport adds length, date, coding and connection headers."""

    __slots__ = ("body", "content_type", "headers", "size", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: bytes | None = JSON,
        headers: Headers = (),
    ) -> None:
        self.status = status
        self.body = body
        self.size = len(body)
        self.content_type = content_type
        self.headers = headers

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The body as it lies in memory."""
        return (self.body,)


class Late(Response):
    """A complete answer that is held back for some seconds."""

    __slots__ = ("wait_s",)

    def __init__(self, answer: Response, wait_s: float) -> None:
        super().__init__(
            answer.status, answer.body, content_type=answer.content_type, headers=answer.headers
        )
        self.wait_s = wait_s


class Spliced(Response):
    """A complete answer in pieces, so that stored bytes are sent without being copied first."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        self.status = 200
        self.content_type = JSON
        self.headers = ()
        self.size = sum(map(len, parts))
        self._parts = parts

    @property
    def parts(self) -> tuple[bytes, ...]:
        return self._parts

    @property
    def body(self) -> bytes:  # type: ignore[override]  # nobody sets the body of an answer
        """The pieces joined."""
        return b"".join(self._parts)


class Stream(ABC):
    """An answer whose bytes are written over time, such as server-sent events.

    `on_drain` is called when everything queued has left after a `write` said False.
    `on_close` is called once, when the peer has gone or stopped listening; not after `close`.
    """

    __slots__ = ("behind", "closed", "on_close", "on_drain")

    def __init__(self) -> None:
        self.on_drain: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.closed = False
        self.behind = False  # a write said False, and the drain has not come yet

    @abstractmethod
    def write(self, data: bytes) -> bool:
        """Queue `data`; False when the peer is behind and the caller should wait for a drain.

        Nothing is refused: the caller owns the bound, with `queued_bytes` to judge by. On a
        closed stream the data is dropped.
        """

    @property
    @abstractmethod
    def queued_bytes(self) -> int:
        """Bytes accepted but not yet given to the kernel."""

    @abstractmethod
    def close(self) -> None:
        """End the answer after what is queued; harmless when it has already ended."""


class Upgrade(ABC):
    """An open WebSocket. Messages arrive and leave whole; text is UTF-8 bytes, checked.

    `on_drain` is called when everything queued has left after `send_text` said False.
    `on_close` is called once, with the close code, however the socket ended.
    """

    __slots__ = ("closed", "on_binary", "on_close", "on_drain", "on_text")

    def __init__(self) -> None:
        self.on_text: Callable[[bytes], None] | None = None
        self.on_binary: Callable[[bytes], None] | None = None
        self.on_drain: Callable[[], None] | None = None
        self.on_close: Callable[[int], None] | None = None
        self.closed = False

    @abstractmethod
    def send_text(self, data: bytes) -> bool:
        """Queue one message of UTF-8 bytes; False when it could not leave at once."""

    @property
    @abstractmethod
    def queued_messages(self) -> int:
        """Messages not yet wholly given to the kernel."""

    @property
    @abstractmethod
    def queued_bytes(self) -> int:
        """Their bytes."""

    @abstractmethod
    def pause_reading(self) -> None:
        """Deliver no more messages until `resume_reading`; at once, even those already read."""

    @abstractmethod
    def resume_reading(self) -> None:
        """Deliver again, what was held back first."""

    @abstractmethod
    def close(self, code: int = 1000, reason: str = "") -> None:
        """Start the closing handshake; `on_close` follows when the peer has answered or gone."""


class Reply(Protocol):
    """The answer to one request: exactly one of these is used, at once or later.

    `on_gone`, when set, is called if the client leaves before an answer was given; answering
    after that is harmless and does nothing. `on_half_close` is called when the client ends its
    side of the connection first: it may have gone or still be listening, only an answer tells.
    """

    on_gone: Callable[[], None] | None
    on_half_close: Callable[[], None] | None

    @property
    def tick(self) -> Tick:
        """The tick of the loop in which the request came."""

    def __call__(self, response: Response) -> None:
        """Answer with a complete response."""

    def stream(self, status: int = 200, *, content_type: bytes, headers: Headers = ()) -> Stream:
        """Send the headers now and the body piece by piece.

        For HEAD, or a client that has left, the stream is closed already and its `on_close`
        runs in the next tick.
        """

    def upgrade(self) -> Upgrade:
        """Become a WebSocket; only for a request whose `wants_websocket` is true."""

    def abort(self) -> None:
        """Close the connection now: it failed to take an answer, and its client waits for one."""


class Application(Protocol):
    """What the transport serves. See the module docstring for the order of calls."""

    def begin(self, request: Request) -> Response | None: ...

    def __call__(self, request: Request, reply: Reply) -> None: ...

    def end(self, request: Request, status: int | None) -> None:
        """Everything about the request is over; status None: the client left unanswered."""
