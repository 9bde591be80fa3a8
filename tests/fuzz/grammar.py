"""Inputs that are nearly right: requests, frames and documents put together from good parts."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

import hpack
from tests.fuzz.mutation import NUMBERS, mutated

METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE", "get"]
NAMES = ["t", "t", "t", "q", "q", "none", "*", ".bad", "a%2Fb", "%ff", "x" * 300, "", "é", "a b"]
CALLS: list[tuple[str, str, list[str] | None]] = [
    ("GET", "/v0/topics", None),
    ("PUT", "/v0/topics/{}", []),
    ("GET", "/v0/topics/{}", None),
    ("POST", "/v0/topics/{}", ["records"]),
    ("POST", "/v0/topics/{}", ["records", "idempotency_key"]),
    ("POST", "/v0/topics/{}/diff", ["from_seq"]),
    ("POST", "/v0/topics/{}/diff", ["limit", "match"]),
    ("POST", "/v0/topics/{}/delete", ["before_seq"]),
    ("GET", "/v0/topics/{}/records", None),
    ("GET", "/v0/topics/{}/audit", None),
    ("PUT", "/v0/topics/{}/cursors/{}", ["seq"]),
    ("GET", "/v0/topics/{}/cursors/{}", None),
    ("POST", "/v0/topics/{}/holes", ["from_seq", "to_seq"]),
    ("POST", "/v0/topics/{}/plan", ["from_seq", "to_seq", "target_bytes"]),
    ("POST", "/v0/topics/{}/claim", ["node", "max"]),
    ("POST", "/v0/topics/{}/ack", ["node", "seqs"]),
    ("POST", "/v0/topics/{}/nack", ["node", "seqs"]),
    ("POST", "/v0/topics/{}/extend", ["node", "seqs", "lease_ms"]),
    ("PUT", "/v0/routers/{}", ["source", "dest"]),
    ("GET", "/v0/routers", None),
    ("DELETE", "/v0/routers/{}", None),
    ("POST", "/v0/watch", ["topics"]),
    ("GET", "/v0/watch/{}", None),
    ("GET", "/v0/ws", None),
    ("POST", "/v0/stages/{}/1/0/0", ["records"]),
    ("POST", "/v0/stages/{}/1/commit", ["parts"]),
    ("GET", "/v0/metrics", None),
    ("GET", "/v0/health", None),
    ("GET", "/{}", None),
]
"""Method, path, and the fields its body needs; None for a call without a body."""
QUERIES = ["", "", "?limit=5", "?cursor=e30", "?touch=%zz", "?token=x&token=y", "?from_ts=1&a=%"]
FIELDS: dict[str, Any] = {
    "records": [{"data": {"a": [1, None, "x"]}, "tag": "room:1", "node": "n", "meta": {"m": 1}}],
    "from_seq": 0,
    "to_seq": 5,
    "limit": 3,
    "before_seq": 2,
    "match": ["tag", "Glob", "room:*"],
    "node": "n",
    "seqs": [1, 2],
    "seq": 1,
    "lease_ms": 1000,
    "max": 2,
    "topics": {"t": {"from_seq": 0}, "q": {"tail": True}},
    "source": "t",
    "dest": "u",
    "type": "log",
    "ttl_ms": 0,
    "durability": "disk",
    "expect_head": 0,
    "idempotency_key": "k",
    "parts": [[0, 0]],
    "target_bytes": 100000,
    "include_tags": True,
    "config": {"cap_records": 10},
    "create": True,
}
COMMANDS: list[tuple[object, list[str]]] = [
    ("subscribe", ["from_seq"]),
    ("subscribe", ["topics"]),
    ("unsubscribe", []),
    ("publish", ["records"]),
    ("ping", []),
    ("nonsense", []),
    (None, []),
]


def value(random: Random, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON
    """Any JSON value, mostly small."""
    kind = random.randrange(8 if depth < 4 else 5)
    if kind == 5:
        return [value(random, depth + 1) for _ in range(random.randrange(4))]
    if kind >= 6:
        return {text(random): value(random, depth + 1) for _ in range(random.randrange(4))}
    return [None, random.random() < 0.5, random.choice(NUMBERS), random.random(), text(random)][
        kind
    ]


def text(random: Random) -> str:
    return random.choice(["", "a", "room:1", "é😀", "\n\u2028\0", "x" * 500, '"\\', "*"])


def document(random: Random, needed: Sequence[str] = (), **fixed: object) -> bytes:
    """A request body: fields of the API, some of them with values they should not have."""
    body: dict[str, Any] = {name: FIELDS[name] for name in needed} | fixed
    if random.random() < 0.4:
        for name in random.sample(list(FIELDS), random.randrange(1, 5)):
            body[name] = FIELDS[name] if random.random() < 0.6 else value(random)
    if "records" in body and random.random() < 0.5:
        body["records"] = [{"data": value(random)} for _ in range(random.randrange(1, 5))]
        body["records"][0] |= random.choice([{}, {"topic": "t"}, {"tag": text(random)}])
    raw = json.dumps(body, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    return mutated(random, [raw]) if random.random() < 0.3 else raw


def call(random: Random) -> tuple[str, str, bytes]:
    """A method, a target and a body that mostly belong together."""
    method, path, needed = random.choice(CALLS)
    target = path.format(*random.choices(NAMES, k=2)) + random.choice(QUERIES)
    if random.random() < 0.1:
        method = random.choice(METHODS)
    return method, target, b"" if needed is None else document(random, needed)


def request(random: Random) -> bytes:
    """An HTTP/1.1 request with a body that may or may not be what its headers say."""
    method, target, body = call(random)
    headers = ["Host: localhost"]
    if body:
        headers.append("Content-Type: application/json")
        if random.random() < 0.2:
            body = gzip.compress(body)
            headers.append("Content-Encoding: gzip")
    if random.random() < 0.2:
        headers.append("Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    elif body:
        off = random.choice((0, 0, 0, 0, 0, 0, -1, 1))
        headers.append(f"Content-Length: {len(body) + off}")
    extras = [
        "Accept-Encoding: gzip",
        "Expect: 100-continue",
        "Connection: close",
        "X: " + "y" * 99,
    ]
    headers += [extra for extra in extras if random.random() < 0.1]
    return head(method, target, headers) + body


def head(method: str, target: str, headers: Sequence[str]) -> bytes:
    """A request up to its body."""
    lines = [f"{method} {target} HTTP/1.1", *headers, "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogatepass")


# HTTP/2


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = struct.pack(">I", len(payload))[1:] + bytes((kind & 255, flags & 255))
    return head + struct.pack(">I", stream & 0xFFFFFFFF) + payload


def h2_session(random: Random) -> bytes:
    """A preface and some frames, mostly requests, in an order that may make no sense."""
    encoder = hpack.Encoder()
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if random.random() < 0.98 else b"PRI * HTTP/2.0\r\n"
    sent += h2_frame(4, 0, 0, b"")
    stream, usual = 1, call(random)
    for _ in range(random.randrange(1, 12)):
        if random.random() < 0.7:
            # The same one again and again: a head that was seen before takes a way of its own.
            asked = usual if random.random() < 0.6 else call(random)
            sent += _h2_request(random, encoder, stream, asked)
            stream += random.choice((2, 2, 2, 0, 1))
        else:
            sent += _h2_noise(random, stream)
    return sent


def _h2_request(
    random: Random, encoder: hpack.Encoder, stream: int, asked: tuple[str, str, bytes]
) -> bytes:
    method, target, body = asked
    headers = [
        (":method", method),
        (":path", target),
        (":scheme", "http"),
        (":authority", "localhost"),
        ("content-type", "application/json"),
    ]
    if random.random() < 0.15:
        headers.insert(random.randrange(6), random.choice([("X-Upper", "1"), (":new", "1")]))
    if random.random() < 0.1:
        headers.pop(random.randrange(len(headers)))
    if random.random() < 0.1:
        headers.append(("content-length", str(random.choice(NUMBERS))))
    block = encoder.encode([(n, v.encode("utf-8", "surrogatepass")) for n, v in headers])
    cut = random.randrange(len(block)) if random.random() < 0.15 else len(block)
    flags = (4 if cut == len(block) else 0) | (0 if body else 1)
    sent = h2_frame(1, flags, stream, block[:cut])
    if cut < len(block):
        sent += h2_frame(9, 4, stream, block[cut:])
    if body:
        padded = random.random() < 0.1
        payload = bytes((3,)) + body + b"\0\0\0" if padded else body
        sent += h2_frame(0, 1 | (8 if padded else 0), stream, payload)
    return sent


def _h2_noise(random: Random, stream: int) -> bytes:
    payload = random.choice(
        [b"", b"\0" * 4, b"\0" * 8, b"\xff" * 4, struct.pack(">HI", 4, 1), random.randbytes(9)]
    )
    return h2_frame(
        random.randrange(12), random.randrange(256), random.choice((0, stream)), payload
    )


# WebSocket


UPGRADE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % base64.b64encode(b"k" * 16)
)


def ws_session(random: Random) -> bytes:
    """A handshake and some frames, mostly commands."""
    sent = UPGRADE
    for _ in range(random.randrange(1, 8)):
        op, needed = random.choice(COMMANDS)
        command = document(random, needed, op=op, topic=random.choice(NAMES), request_id=1)
        opcode = 1 if random.random() < 0.8 else random.randrange(16)
        payload = command if opcode in (0, 1, 2) else random.randbytes(random.randrange(0, 130))
        if random.random() < 0.1 and opcode == 1:
            half = len(payload) // 2
            sent += ws_frame(random, 1, payload[:half], final=False)
            payload, opcode = payload[half:], 0
        sent += ws_frame(random, opcode, payload)
    return sent


def ws_frame(random: Random, opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    first = (
        opcode | (0x80 if final else 0) | (random.choice((0x10, 0x40)) * (random.random() < 0.03))
    )
    masked = 0x80 if random.random() < 0.97 else 0
    size = len(payload)
    if size < 126:
        head = bytes((first, masked | size))
    elif size < 65536:
        head = bytes((first, masked | 126)) + struct.pack(">H", size)
    else:
        head = bytes((first, masked | 127)) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    mask = random.randbytes(4)
    whole = (mask * (size // 4 + 1))[:size]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")
    return head + mask + mixed.to_bytes(size, "big")
