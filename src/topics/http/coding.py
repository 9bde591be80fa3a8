"""gzip in both directions: bounded decoding of requests, compression of responses."""

import zlib
from functools import lru_cache

_GZIP_WINDOW = 31
"""zlib's way to say: gzip framing with its checksum, and nothing else."""

_STEP_BYTES = 4 * 1024
"""Decoded at a time: whatever follows the end of a member is copied, and members can be tiny."""

_FAST = 1
"""Compression runs on the server's time; the higher levels cost several times more of it."""


class BadGzip(Exception):
    """The bytes are not whole, intact gzip members."""


class TooMuch(Exception):
    """Decoding would give more bytes than allowed."""


class Inflater:
    """Decodes gzip members as they arrive and never holds more than `max_bytes` of output."""

    __slots__ = ("_decoder", "_fresh", "_left")

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._decoder = zlib.decompressobj(_GZIP_WINDOW)
        self._fresh = True  # the current member has had no byte yet

    def feed(self, data: bytes) -> bytes:
        """The output `data` yields; raises BadGzip, or TooMuch at the first byte beyond."""
        if len(data) <= _STEP_BYTES:
            return self._step(data)
        starts = range(0, len(data), _STEP_BYTES)
        return b"".join([self._step(data[start : start + _STEP_BYTES]) for start in starts])

    def _step(self, data: bytes) -> bytes:
        pieces = []
        while data:
            if self._decoder.eof:
                self._decoder = zlib.decompressobj(_GZIP_WINDOW)
            try:
                # One byte more than allowed is enough to know that there is too much.
                piece = self._decoder.decompress(data, self._left + 1)
            except zlib.error as error:
                raise BadGzip(str(error)) from error
            self._left -= len(piece)
            if self._left < 0:
                raise TooMuch
            pieces.append(piece)
            self._fresh = False
            data = self._decoder.unused_data
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def finish(self) -> None:
        """Raise BadGzip when the last member was cut short; no member at all is fine."""
        if not self._fresh and not self._decoder.eof:
            raise BadGzip("the last gzip member is cut short")


def compress(body: bytes) -> bytes:
    """`body` as one gzip member, the same bytes every time."""
    encoder = zlib.compressobj(_FAST, zlib.DEFLATED, _GZIP_WINDOW)
    return encoder.compress(body) + encoder.flush()


@lru_cache(maxsize=256)
def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether the header allows gzip: named, or covered by `*`, with a weight above zero."""
    allowed = {}
    for item in accept_encoding.lower().split(b","):
        coding, _, parameters = item.partition(b";")
        allowed[coding.strip()] = _weight(parameters) > 0
    return allowed.get(b"gzip", allowed.get(b"*", False))


def _weight(parameters: bytes) -> float:
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
