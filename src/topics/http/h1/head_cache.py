"""Heads of requests that were read before, by their bytes.

A client says the same with every request: path, key, type, and often even the length of the body.
Where a whole request arrives in one piece and its head is known to the byte, parsing it again
could only give the same, so it is not parsed again. What is known came out of the parser, and
only from a request that arrived in the same way: alone, whole, on a connection between two
requests.

A head may hold a key. Nothing is therefore kept for longer than until the next sweep, and the
number of heads is bounded.
"""

from __future__ import annotations

from topics.http.messages import Request

END = b"\r\n\r\n"
MAX_HEADS = 1024
MAX_BYTES = 2048
MAX_BODY_BYTES = 64 * 1024
"""A longer body counts against the budget, and is read as every body is."""

_SPECIAL = frozenset(
    (b"connection", b"transfer-encoding", b"content-encoding", b"expect", b"upgrade")
)
"""Headers that make reading a request more than taking so many bytes."""


class HeadCache(dict[bytes, tuple[int, Request]]):
    """Per head, blank line included: the size of the body, and a request to copy."""

    __slots__ = ()

    def learn(self, data: bytes, request: Request, length: int | None) -> None:
        """Remember the head of a request that was all of `data`, if it is of the plain kind."""
        end = data.find(END) + len(END)
        if not len(END) <= end <= MAX_BYTES or length is None or length != len(data) - end:
            return
        if length > MAX_BODY_BYTES or request.version != "1.1":
            return
        if not _SPECIAL.isdisjoint(request.headers):
            return
        if len(self) >= MAX_HEADS:
            self.clear()
        self[data[:end]] = (length, request.sibling(""))
