"""Damage to bytes: what a hostile or broken client might do to something that was once right."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from random import Random

TOKENS = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"%",
    b"%00",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b'"',
    b"\\",
    b"\\ud800",
    b"{",
    b"}",
    b"[" * 200,
    b"null",
    b"NaN",
    b"1e999",
    b"-0",
    b"chunked",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: -1\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"HTTP/1.1",
    b"HTTP/2.0",
    b"A" * 3000,
]
NUMBERS = [0, 1, -1, 127, 128, 255, 256, 65535, 65536, 2**31, 2**32, 2**63, 2**64, 10**30]
_DIGITS = re.compile(rb"\d+")


def mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds after a few mishaps."""
    data = random.choice(seeds)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        data = random.choice(_MISHAPS)(random, data)
        if random.random() < 0.05:
            data += random.choice(seeds)
    return data[:200_000]


def pieces(random: Random, data: bytes) -> list[bytes]:
    """The same bytes as they might arrive: at once, in two parts, or in crumbs."""
    style = random.random()
    if style < 0.7 or len(data) < 2:
        return [data]
    cuts = 1 if style < 0.9 else min(12, len(data) - 1)
    edges = [0, *sorted(random.sample(range(1, len(data)), cuts)), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _byte(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes([random.randrange(256)]) + data[at + random.randrange(2) :]


def _cut(random: Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + data[start + random.randrange(1, 40) :]


def _end(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _repeat(random: Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    part = data[start : start + random.randrange(1, 60)]
    return data[:start] + part * random.randrange(2, 6) + data[start + len(part) :]


def _insert(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(TOKENS) + data[at:]


def _number(random: Random, data: bytes) -> bytes:
    found = list(_DIGITS.finditer(data))
    if not found:
        return data
    spot = random.choice(found)
    return data[: spot.start()] + b"%d" % random.choice(NUMBERS) + data[spot.end() :]


_MISHAPS: list[Callable[[Random, bytes], bytes]] = [
    _flip,
    _byte,
    _cut,
    _end,
    _repeat,
    _insert,
    _insert,
    _number,
    _number,
]
