"""Limits that every write is checked against, over HTTP and in this process alike."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from topics.batch import RecordBatch
from topics.engine.settings import EngineSettings
from topics.errors import BatchTooLarge, InvalidRequest, RecordTooLarge

MAX_META_MEMBERS = 64
MAX_KEY_BYTES = 256
ANY_SIZE = 1 << 64
STEP_RECORDS = 64
"""Looked at between two pauses."""


def check_batch(
    batch: RecordBatch,
    limits: EngineSettings,
    *,
    key: str | None = None,
    at_most: int = ANY_SIZE,
) -> None:
    """Refuse a write that breaks a limit, naming the first record that does.

    No record has more bytes than `at_most`: with the size of the whole batch, short batches need
    no look at each record.
    """
    _check_whole(batch, limits, key)
    # A short write of data alone can break no other limit; `check_records` would find the same.
    has_more = batch.metas is not None or batch.tags is not None or batch.nodes is not None
    if has_more or at_most > limits.max_record_bytes:
        check_records(batch, limits, at_most=at_most)


def check_batch_in_steps(
    batch: RecordBatch, limits: EngineSettings, *, key: str | None
) -> Generator[None, None, None]:
    """The same for a long batch, with pauses."""
    _check_whole(batch, limits, key)
    for first in range(0, len(batch), STEP_RECORDS):
        check_records(batch.part(first, first + STEP_RECORDS), limits, first=first)
        yield


def _check_whole(batch: RecordBatch, limits: EngineSettings, key: str | None) -> None:
    count = len(batch.datas)
    if not count:
        raise InvalidRequest("a write needs at least one record")
    if count > limits.max_batch_records:
        raise BatchTooLarge(records=count, maximum=limits.max_batch_records)
    if key is not None and len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidRequest(f"an idempotency key has at most {MAX_KEY_BYTES} bytes")


def check_records(
    batch: RecordBatch, limits: EngineSettings, *, at_most: int = ANY_SIZE, first: int = 0
) -> None:
    """The limits of each record alone, however many there are; at least one.

    `first` is what the first of them is counted as.
    """
    if _are_within(batch, limits, at_most):
        return
    absent = [None] * len(batch)
    metas = batch.metas or [b""] * len(batch)
    columns = zip(batch.tags or absent, batch.nodes or absent, metas, batch.datas, strict=True)
    for index, (tag, node, meta, data) in enumerate(columns, first):
        _check_name(tag, "tag", index, limits.max_tag_bytes)
        _check_name(node, "node", index, limits.max_node_bytes)
        _check_meta(meta, index, limits.max_meta_bytes)
        size = len(data) + len(meta)
        if size > limits.max_record_bytes:
            raise RecordTooLarge(size_bytes=size, max_bytes=limits.max_record_bytes, index=index)


def _are_within(batch: RecordBatch, limits: EngineSettings, at_most: int) -> bool:
    """Whether a look at whole columns shows that no record can break a limit."""
    if batch.metas is None and batch.tags is None and batch.nodes is None:
        limit = limits.max_record_bytes
        return at_most <= limit or max(map(len, batch.datas)) <= limit
    largest_meta = 0
    if batch.metas is not None:
        largest_meta = max(map(len, batch.metas))
        # Every member needs a colon, so few of them settle it without a parser.
        if largest_meta > limits.max_meta_bytes or any(
            meta.count(b":") > MAX_META_MEMBERS for meta in batch.metas
        ):
            return False
    return (
        max(map(len, batch.datas)) + largest_meta <= limits.max_record_bytes
        and _are_short(batch.tags, limits.max_tag_bytes)
        and _are_short(batch.nodes, limits.max_node_bytes)
    )


def _are_short(names: Iterable[str | None] | None, limit: int) -> bool:
    # A character takes at most four bytes: only long names are measured exactly.
    return names is None or all(name is None or len(name) * 4 <= limit for name in names)


def _check_name(name: str | None, what: str, index: int, limit: int) -> None:
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
    if meta and has_more_members(meta, MAX_META_MEMBERS):
        raise InvalidRequest(f"the meta of record {index} has more than {MAX_META_MEMBERS} members")
