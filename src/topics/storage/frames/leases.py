"""Lease frames by the dozen: a claim of a queue with durable leases writes one for each job.

The format is that of `frames.payloads`. The frames are the same as if made one by one, with the
parts that are alike for a whole claim made once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from topics.core.facts import LeaseChanged
from topics.storage.checksum import h64
from topics.storage.frames.header import BODY, MIN_FRAME_LEN, U32, U64
from topics.storage.frames.payloads import LEASE, FrameType, check_lease

_KIND: Final = int(FrameType.LEASE)
_EVENT = struct.Struct(f"{BODY.format}{LEASE.format[1:]}I")
"""Header, numbers and the length of the node's name."""


def encode_leases(facts: Sequence[LeaseChanged]) -> bytes:
    """Events, one frame each, that need no sync of their own."""
    parts: list[bytes] = []
    pack, pack_sum = _EVENT.pack, U64.pack
    node, name, head, size = None, b"", b"", 0
    for fact in facts:
        if fact.node != node:
            node = fact.node
            name = node.encode()
            size = LEASE.size + U32.size + len(name)
            head = U32.pack(size + MIN_FRAME_LEN)
        check_lease(fact)
        body = (
            pack(
                _KIND,
                0,
                fact.topic_id,
                fact.seq,
                fact.ts,
                0,
                0,
                size,
                fact.event,
                fact.lease_id,
                fact.deadline_ms,
                fact.deliveries,
                len(name),
            )
            + name
        )
        parts += (head, body, pack_sum(h64(body)))
    return b"".join(parts)
