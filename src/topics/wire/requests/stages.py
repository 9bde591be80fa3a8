"""Staged writes: records kept aside, and the commit that makes them visible together."""

from __future__ import annotations

import msgspec

from topics.batch import RecordBatch
from topics.wire.decoding import BodyDecoder
from topics.wire.numbers import U64, Body
from topics.wire.requests.writing import RecordBody, drafts_of


class StagedRecordBody(RecordBody, kw_only=True):
    """A record and the topic it is for."""

    topic: str


class StageBody(Body):
    """The records of one part, as sent; none is fine."""

    records: list[StagedRecordBody]


class CommitBody(Body):
    """Which attempt of each part counts."""

    parts: list[tuple[U64, U64]]


class StageRequest(msgspec.Struct, frozen=True):
    """The records of one part in their order: a topic for each, and the rest as columns."""

    topics: list[str]
    drafts: RecordBatch


_stage = BodyDecoder(StageBody)
_commit = BodyDecoder(CommitBody)


def decode_stage(body: bytes) -> StageRequest:
    records = _stage.decode(body).records
    return StageRequest([record.topic for record in records], drafts_of(records))


def decode_commit(body: bytes) -> CommitBody:
    return _commit.decode(body)
