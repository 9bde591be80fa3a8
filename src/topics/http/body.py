"""Collecting one request body within its limits, however it arrives."""

from io import BytesIO

from topics.http import refusals
from topics.http.coding import BadGzip, Inflater, TooMuch
from topics.http.messages import Response

_GZIP = frozenset((b"gzip", b"x-gzip"))

_LENGTH_DIGITS = 20
"""Of the largest 64-bit number; more digits are too large whatever they say."""


class RequestBody:
    """The body of one request, growing.

    Size is checked before coding: a damaged gzip body is still counted to its end, so that a body
    that is also too large is refused for its size.
    """

    __slots__ = (
        "_damage",
        "_first",
        "_inflater",
        "_kept",
        "_max_bytes",
        "_rest",
        "announced_bytes",
        "received",
    )

    def __init__(self, max_bytes: int, *, gzipped: bool, announced_bytes: int = 0) -> None:
        self.announced_bytes = announced_bytes  # 0 when unknown
        self.received = 0  # bytes as they came over the wire
        self._kept = 0
        self._max_bytes = max_bytes
        self._inflater = Inflater(max_bytes) if gzipped else None
        self._damage: str | None = None
        # A body in one piece is never copied. Later pieces go into one buffer, which becomes the
        # body as it is: a list of very small chunks would cost many times their size.
        self._first = b""
        self._rest: BytesIO | None = None

    def feed(self, data: bytes) -> Response | None:
        """Take one piece; a refusal means the rest is not wanted."""
        self.received += len(data)
        if self.received > self._max_bytes:
            return refusals.body_too_large(self._max_bytes)
        if self._inflater is not None:
            try:
                data = b"" if self._damage else self._inflater.feed(data)
            except TooMuch:
                return refusals.body_too_large(self._max_bytes)
            except BadGzip as error:
                self._damage = str(error)
                return None
        self._keep(data)
        return None

    @property
    def is_coded(self) -> bool:
        """Whether a few bytes can become many."""
        return self._inflater is not None

    @property
    def held_bytes(self) -> int:
        """What this body costs in memory, or cost the peer to send, whichever is more."""
        return max(self.received, self._kept)

    def _keep(self, data: bytes) -> None:
        self._kept += len(data)
        if self._rest is not None:
            self._rest.write(data)
        elif self._first:
            self._rest = BytesIO()
            self._rest.write(self._first)
            self._rest.write(data)
            self._first = b""
        else:
            self._first = data

    def finish(self) -> bytes | Response:
        """The whole decoded body, or the refusal that only its end could tell."""
        if self._inflater is not None:
            try:
                self._inflater.finish()
            except BadGzip as error:
                self._damage = self._damage or str(error)
        if self._damage is not None:
            return refusals.malformed(f"the body is not valid gzip: {self._damage}")
        return self._first if self._rest is None else self._rest.getvalue()


def plan_body(headers: dict[bytes, bytes], *, max_bytes: int) -> RequestBody | Response:
    """A place for the body these headers announce, or why it will not be read."""
    coding = headers.get(b"content-encoding")
    if headers.get(b"content-length") == b"0":
        coding = None  # there is nothing to decode
    if coding is not None:
        coding = coding.strip().lower()
        if coding not in _GZIP and coding != b"identity" and coding:
            return refusals.unknown_coding(coding)
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        return refusals.malformed("Content-Length is not one number")
    if len(length) > _LENGTH_DIGITS or int(length) > max_bytes:
        return refusals.body_too_large(max_bytes)
    return RequestBody(max_bytes, gzipped=coding in _GZIP, announced_bytes=int(length))
