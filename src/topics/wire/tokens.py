"""Names the server makes up: lease ids and watch ids."""

import re
from base64 import urlsafe_b64encode

from topics.errors import InvalidRequest

WID_ENTROPY_BYTES = 16

_lease = re.compile(r"lease_([0-9a-f]{1,16})", re.ASCII)


LEASE_TOKEN = b"lease_%x"
"""A lease as workers see it."""


def lease_token(lease_id: int) -> str:
    """The same as text."""
    return (LEASE_TOKEN % lease_id).decode()


def parse_lease(token: str) -> int | None:
    """The lease behind a token; None for the empty token, which stands for any lease."""
    if not token:
        return None
    found = _lease.fullmatch(token)
    if found is None:
        raise InvalidRequest(
            f'lease_ids: "{token[:80]}" is no lease id; send them as a claim returned them, '
            "or an empty string for none"
        )
    return int(found[1], 16)


def watch_id(entropy: bytes) -> str:
    """A watch session's name from random bytes: a client that knows it may open the stream."""
    assert len(entropy) == WID_ENTROPY_BYTES, "a shorter name could be guessed"
    return "wid_" + urlsafe_b64encode(entropy).decode().rstrip("=")
