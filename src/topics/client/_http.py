"""HTTP/1.1 as a client speaks it, without any I/O.

A `ServerAddress` turns a call into the bytes to send; a `ResponseParser` is fed the bytes that come
back. Both shells share them, so blocking and asyncio clients cannot differ in what they say or
understand. One request is in flight on a connection at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

import httptools
import msgspec

from topics.client._address import split_address
from topics.errors import InvalidRequest, TopicsError, Unauthorized, from_wire

DEFAULT_PORTS = {"http": 80, "https": 443}
JSON = "application/json"
MAX_ERROR_BYTES = 1 << 20
"""How much of a refusal's body a stream reads before it raises."""
TALKS_TO_ITSELF = "nobody listens there"
"""A free port of this machine may become the source port of the connection that is made to it. The
connection would then answer itself, and keep a server that restarts from its port."""


class Answer(NamedTuple):
    """A whole response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BrokenResponse(Exception):
    """What came back is not HTTP."""


class ServerAddress:
    """A server's address, and everything that its requests have in common."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = split_address(url)
        if parts is None:
            raise InvalidRequest(
                f"a server's address looks like http://host:4000 or https://host, not {url!r}"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise InvalidRequest(
                "the address takes no user, query or fragment; give token= instead"
            )
        self.is_tls = parts.scheme == "https"
        self.host: str = parts.hostname or ""
        self.port: int = parts.port or DEFAULT_PORTS[parts.scheme]
        self.authority: str = parts.netloc
        self.prefix: str = parts.path.rstrip("/")
        self.url: str = f"{parts.scheme}://{parts.netloc}{self.prefix}"
        common = {"Host": parts.netloc}
        if token is not None:
            common["Authorization"] = f"Bearer {token}"
        self.authorization = common.get("Authorization")
        self._common = _header_lines(common)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        query: Mapping[str, str] | None,
    ) -> bytes:
        """The head of a request. `path` is already percent-encoded; the body follows as it is."""
        asked = (
            f"{path}?{urlencode(query, errors='backslashreplace', quote_via=quote)}"
            if query
            else path
        )
        line = f"{method} {self.prefix}{asked} HTTP/1.1\r\n"
        if not asked.startswith("/") or not _is_plain(line[:-2]) or line.count(" ") != 2:
            raise InvalidRequest(f"{path!r} is no path; percent-encode names in it")
        head = line.encode() + self._common
        if headers:
            head += _header_lines(headers)
        if body is not None:
            if not headers or not any(name.lower() == "content-type" for name in headers):
                head += b"Content-Type: application/json\r\n"
            head += b"Content-Length: %d\r\n" % len(body)
        elif method not in ("GET", "HEAD"):
            head += b"Content-Length: 0\r\n"
        return head + b"\r\n"


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _header_lines(headers: Mapping[str, str]) -> bytes:
    lines = ""
    for name, value in headers.items():
        if not value.isprintable() or not _is_plain(name):
            raise InvalidRequest(f"the header {name!r} holds characters that no header may hold")
        lines += f"{name}: {value}\r\n"
    try:
        return lines.encode("latin-1")
    except UnicodeEncodeError as error:
        raise InvalidRequest("a header or token holds characters beyond Latin-1") from error


class ResponseParser:
    """One response as it comes in. Feed it until it is `done`; take body parts as you like."""

    def __init__(self, *, method: str = "GET") -> None:
        self.headers: dict[str, str] = {}
        self.status = 0
        self.has_head = False
        self.done = False
        self.keep_alive = False
        self._no_body = method == "HEAD"
        self._parts: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take bytes of the connection. Raises `BrokenResponse` for what is not HTTP."""
        if self.done:
            self.keep_alive = False  # bytes that no request asked for: what follows is unknown
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._stumble(error)

    def _stumble(self, error: Exception) -> None:
        if not self.done:
            raise BrokenResponse(str(error)) from error
        self.keep_alive = False  # the answer is whole; what follows it is not ours

    def end(self) -> bool:
        """The connection ended; whether that completes the response."""
        if self.has_head and not self.done and not self._is_sized():
            self.done = True
        self.keep_alive = False
        return self.done

    def take(self) -> bytes:
        """The body bytes that came since the last time."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def retry_after(self) -> float | None:
        return retry_after(self.headers)

    def _is_sized(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    # What the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return  # an interim notice; the response proper follows
        self.has_head = True
        self.keep_alive = self._parser.should_keep_alive()
        if self._no_body:
            self.done = True

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self.has_head:
            self.done = True
        else:
            self.headers.clear()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait; None when it says nothing in numbers."""
    text = headers.get("retry-after", "")
    return float(text) if text.isdecimal() and text.isascii() else None


# Refusals


class _Facts(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, object] | None = None


class _Envelope(msgspec.Struct):
    error: _Facts


_envelope = msgspec.json.Decoder(_Envelope).decode


def refusal(answer: Answer) -> TopicsError:
    """The error that a status of 400 or more stands for.

    Something between us and the server may answer in its own words; those keep their status as
    `code`, and 401 stays what it is.
    """
    try:
        facts = _envelope(answer.body).error
    except ValueError:
        if answer.status == 401:
            return Unauthorized()
        said = answer.body[:200].decode("utf-8", "replace").strip()
        return from_wire(
            f"http_{answer.status}",
            f"status {answer.status}, but not from a topics server: {said or 'no body'}; "
            "check the address, and what stands between",
        )
    return from_wire(facts.code, facts.message, facts.detail)


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class StreamedResponse(Generic[C]):
    """A response on a connection, before its body is read."""

    def __init__(self, connection: C, response: ResponseParser, patience: float) -> None:
        self._connection = connection
        self._response = response
        self._patience = patience

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    def close(self) -> None:
        self._connection.close()
