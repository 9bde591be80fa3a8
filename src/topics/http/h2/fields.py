"""Header blocks of HTTP/2: those we receive are remembered, those we send are put together.

Most requests of a connection have the same head, and so the same few bytes of it on the wire. What
they mean depends on those bytes and on the compression table alone, which such a head leaves as it
is; decoding and checking them again would be a third of what the library costs. So a connection
remembers the heads it has checked until its table changes, and no longer than until the next sweep:
a head may hold a key.

What we send stays out of the table: most answers differ in their date, length and request id, and
each would push another entry into it. A field is then the same bytes on every connection, and all
of them but the value are known beforehand.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from h2.exceptions import ProtocolError
from h2.utilities import HeaderValidationFlags, validate_headers
from hpack import Decoder, Encoder, HeaderTuple, HPACKError, NeverIndexedHeaderTuple

from topics.http.messages import Request

Fields = list[tuple[bytes, bytes]]

_MAX_HEADS = 64
_MAX_HEAD_BYTES = 512
_MAX_STARTS = 1024
_LENGTH_DIGITS = 20
_SPECIAL = (b"expect", b"content-encoding")

_REQUEST = HeaderValidationFlags(
    is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False
)
_TRAILERS = _REQUEST._replace(is_trailer=True)


def request_of(fields: Iterable[tuple[str | bytes, str | bytes]], peer: str) -> Request:
    """The request a block of header fields describes; its form has been checked."""
    pseudo = {b":method": b"", b":path": b"/", b":authority": b""}
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        assert isinstance(name, bytes)
        assert isinstance(value, bytes)
        if name.startswith(b":"):
            pseudo[name] = value
        elif name in headers:
            headers[name] += b", " + value
        else:
            headers[name] = value
    headers.setdefault(b"host", pseudo[b":authority"])
    method = pseudo[b":method"].decode("latin-1")
    return Request(method, pseudo[b":path"], headers, version="2", peer=peer)


_DECODING_ERRORS = (HPACKError, ProtocolError, IndexError, TypeError, UnicodeDecodeError)


class PlainHead(NamedTuple):
    """A head that makes reading its request no more than taking the bytes that follow."""

    request: Request  # to copy
    length: int | None  # of the body, if announced


class FieldCache(Decoder):
    """Decodes blocks of headers and sees that they are well-formed.

    A block with pseudo-headers is judged as a request, one without as trailers. Whether it came
    where such a block belongs is for the connection to say.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, list[HeaderTuple]] = {}
        self._plain: dict[bytes, PlainHead | None] = {}  # of those that are known
        self._ahead: tuple[bytes, list[HeaderTuple] | Exception] | None = None

    def plain(self, data: bytes) -> PlainHead | None:
        """What a block says if it is the head of a plain request.

        If it is not, `decode` has to be called with it next. Nothing is decoded twice, since that
        changes the table: what was found, or what was wrong, is kept for that call.
        """
        if data in self._plain:
            return self._plain[data]
        headers = self._known.get(data)
        if headers is None:
            try:
                headers = self._read(data)
            except _DECODING_ERRORS as error:
                self._ahead = data, error
                return None
        plain = _plain_head(headers)
        if data in self._known:
            self._plain[data] = plain
        elif plain is None:
            self._ahead = data, headers
        return plain

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        """The headers of a block, checked; raises as the library does."""
        assert raw, "headers are bytes here"
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return self._known.get(data) or self._read(data)
        assert ahead[0] == data, "a block was read ahead and then left out"
        if isinstance(ahead[1], Exception):
            raise ahead[1]
        return ahead[1]

    def _read(self, data: bytes) -> list[HeaderTuple]:
        count, newest, size = self._table_state()
        headers = list(super().decode(data, raw=True))
        is_request = any(header[0][:1] == b":" for header in headers)
        for _ in validate_headers(headers, _REQUEST if is_request else _TRAILERS):
            pass  # it raises for the first that is wrong
        count_now, newest_now, size_now = self._table_state()
        if newest_now is not newest or (count_now, size_now) != (count, size):
            self.forget()
        elif len(data) <= _MAX_HEAD_BYTES:
            if len(self._known) >= _MAX_HEADS:
                self.forget()
            self._known[data] = headers
        return headers

    def _table_state(self) -> tuple[int, object, int]:
        """Another one after every change of the table: entries come in at the front.

        The newest entry itself and not its id, which another may have once this one is gone.
        """
        entries = self.header_table.dynamic_entries
        return len(entries), entries[0] if entries else None, self.header_table_size

    def forget(self) -> None:
        """Remember no head: what they mean has changed, or they were kept long enough."""
        self._known.clear()
        self._plain.clear()


def _plain_head(headers: Sequence[HeaderTuple]) -> PlainHead | None:
    if not headers or not headers[0][0].startswith(b":"):
        return None
    if any(name in _SPECIAL for name, _ in headers):
        return None
    lengths = {value for name, value in headers if name == b"content-length"}
    if len(lengths) > 1 or not all(_is_number(value) for value in lengths):
        return None
    return PlainHead(request_of(headers, ""), int(lengths.pop()) if lengths else None)


def _is_number(value: bytes) -> bool:
    return value.isdigit() and len(value) <= _LENGTH_DIGITS


class PlainFields(Encoder):
    """Encodes the headers of answers without the compression table."""

    def encode(self, headers: Any, huffman: bool = False) -> bytes:  # noqa: ANN401  # as the library
        """A block of these headers; names and values are bytes."""
        start = b""
        if self.table_size_changes:  # by the peer's settings: it waits for our word on them
            self.header_table.resized = True
            start = super().encode(())
        return start + b"".join([_start_of(name, len(value)) + value for name, value in headers])


@lru_cache(maxsize=_MAX_STARTS)
def _start_of(name: bytes, size: int) -> bytes:
    """What stands before a value of so many bytes that is sent as it is."""
    field = NeverIndexedHeaderTuple(name, b"?" * size)
    encoded = Encoder().encode([field], huffman=False)
    return encoded[: len(encoded) - size]
