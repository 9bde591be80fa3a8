"""Working on a queue: claim, ack, nack, extend, redrive.

Only shapes and token formats are judged here. Whether a node name is fit and a list short
enough comes after the topic was looked up, or depends on settings.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from msgspec import UNSET, UnsetType, field

from topics.wire.decoding import BodyDecoder
from topics.wire.letters import MAX_MESSAGE_CHARS, MAX_TYPE_CHARS, clipped
from topics.wire.numbers import U32, U64, Body
from topics.wire.tokens import parse_lease


class ClaimBody(Body):
    """A worker asks for jobs; without `lease_ms` it holds them as long as the queue says."""

    node: str
    max: U32 = 1
    lease_ms: U64 | None = None


class AckBody(Body):
    """Jobs a worker has finished. Lease ids, if sent, go with the seqs one by one."""

    node: str
    seqs: list[U64]
    lease_ids: list[str] = field(default_factory=list)

    @property
    def leases(self) -> list[int | None]:
        """The lease each seq must still have; None where any will do."""
        return [parse_lease(token) for token in self.lease_ids]


class JobError(Body):
    """What went wrong with jobs that are given back; too long a text is cut."""

    type: str = ""
    message: str = ""


class NackBody(AckBody):
    """Jobs a worker gives back, for now or for later, and what went wrong with them."""

    delay_ms: U64 = 0
    error: JobError | None = None

    @property
    def failure(self) -> tuple[str, str] | None:
        """Type and message of the error, cut to what is kept."""
        if self.error is None:
            return None
        return (
            clipped(self.error.type, MAX_TYPE_CHARS),
            clipped(self.error.message, MAX_MESSAGE_CHARS),
        )


class ExtendBody(AckBody, kw_only=True):
    """Jobs a worker needs longer for."""

    lease_ms: U64


class RedriveBody(Body):
    """Dead letters to put back into the queue; `source` is the queue's own unless named.

    With `seqs` exactly those letters, and `max` is not looked at.
    """

    source: str | UnsetType = field(default=UNSET, name="from")
    max: U32 = 100
    seqs: list[U64] | None = None


B = TypeVar("B", bound=AckBody)

_claim = BodyDecoder(ClaimBody)
_ack = BodyDecoder(AckBody)
_nack = BodyDecoder(NackBody)
_extend = BodyDecoder(ExtendBody)
_redrive = BodyDecoder(RedriveBody)


_SHORT_BYTES = 256


def decode_claim(body: bytes) -> ClaimBody:
    """A worker claims in the same words again and again, so short ones are remembered."""
    return _decode_short_claim(body) if len(body) <= _SHORT_BYTES else _claim.decode(body)


@lru_cache(maxsize=1024)
def _decode_short_claim(body: bytes) -> ClaimBody:
    return _claim.decode(body)


def decode_ack(body: bytes) -> AckBody:
    return _with_sound_tokens(_ack.decode(body))


def decode_nack(body: bytes) -> NackBody:
    return _with_sound_tokens(_nack.decode(body))


def decode_extend(body: bytes) -> ExtendBody:
    return _with_sound_tokens(_extend.decode(body))


def decode_redrive(body: bytes) -> RedriveBody:
    return _redrive.decode(body)


def _with_sound_tokens(sent: B) -> B:
    for token in sent.lease_ids:
        parse_lease(token)
    return sent
