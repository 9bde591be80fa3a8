"""Limits every write is judged by, whichever door it came through."""

from __future__ import annotations

from collections.abc import Iterable

from topics.core.batch import RecordBatch
from topics.engine.settings import EngineSettings
from topics.errors import BatchTooLarge, InvalidRequest, RecordTooLarge

MAX_META_MEMBERS = 64


def check_batch(batch: RecordBatch, limits: EngineSettings) -> None:
    """Refuse a write that breaks a limit, naming the first record that does."""
    count = len(batch)
    if not count:
        raise InvalidRequest("a write needs at least one record")
    if count > limits.max_batch_records:
        raise BatchTooLarge(records=count, maximum=limits.max_batch_records)
    check_records(batch, limits)


def check_records(batch: RecordBatch, limits: EngineSettings) -> None:
    """The limits of each record alone, however many there are; at least one."""
    if batch.tags is not None:
        _check_names(batch.tags, "tag", limits.max_tag_bytes)
    if batch.nodes is not None:
        _check_names(batch.nodes, "node", limits.max_node_bytes)
    metas = batch.metas
    if metas is not None:
        for index, meta in enumerate(metas):
            if meta:
                _check_meta(meta, index, limits.max_meta_bytes)
    largest = max(map(len, batch.datas)) + (max(map(len, metas)) if metas else 0)
    if largest > limits.max_record_bytes:
        _refuse_largest(batch, limits.max_record_bytes)


def _check_names(names: Iterable[str | None], what: str, limit: int) -> None:
    for index, name in enumerate(names):
        # A character takes at most four bytes: only long names are measured exactly.
        if name is not None and len(name) * 4 > limit and len(name.encode()) > limit:
            raise InvalidRequest(
                f"the {what} of record {index} has {len(name.encode())} bytes, "
                f"at most {limit} are allowed"
            )


def _check_meta(meta: bytes, index: int, limit: int) -> None:
    from topics.wire.jsonbytes import has_more_members  # noqa: PLC0415 - rarely needed

    if len(meta) > limit:
        raise InvalidRequest(
            f"the meta of record {index} has {len(meta)} bytes, at most {limit} are allowed"
        )
    if has_more_members(meta, MAX_META_MEMBERS):
        raise InvalidRequest(f"the meta of record {index} has more than {MAX_META_MEMBERS} members")


def _refuse_largest(batch: RecordBatch, limit: int) -> None:
    metas = batch.metas or [b""] * len(batch)
    for index, (data, meta) in enumerate(zip(batch.datas, metas, strict=True)):
        size = len(data) + len(meta)
        if size > limit:
            raise RecordTooLarge(size_bytes=size, max_bytes=limit, index=index)
