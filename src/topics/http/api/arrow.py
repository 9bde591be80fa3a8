"""Records as Arrow streams, in both directions.

A page goes out as one IPC stream: its schema carries what the JSON body would say besides the
records, so all of that is known before the first batch. Batches are made on pool threads from
stored frames, one slice at a time and only as fast as the client reads, or more slowly while other
clients write.

A reader takes the end of a connection for the end of the stream, whether or not that was meant. A
stream that cannot be completed therefore ends in bytes that no reader accepts.

pyarrow is an extra: nothing here needs it until Arrow is asked for. `arrow_import` imports this
module, and all that it needs.
"""

from __future__ import annotations

import importlib.util
import logging
import struct
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topics.batch import RecordBatch
from topics.delivery.loop_budget import PacedRead
from topics.engine.reads.bulk import slices
from topics.engine.reads.versioned_pages import VersionedBulk
from topics.errors import InvalidRequest, NotAcceptable, PayloadTooLarge, TopicsError
from topics.http.api.arrow_sizes import decoded_bytes, expanded_bytes
from topics.http.api.call import Call
from topics.http.api.pages import ARROW_STREAM
from topics.http.messages import Headers, Stream
from topics.storage.frames.columns import Frames, Positions
from topics.wire.jsonbytes import compact_all
from topics.wire.rendering import Include
from topics.wire.requests import StageRequest

if TYPE_CHECKING:
    import pyarrow as pa

INSTALL: Final = "pip install 'topics[arrow]'"
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_BROKEN: Final = b"\xff\xff\xff\xff\xff\xff\xff\xff"
"""The start of a message of impossible size."""

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("topics.http")


@cache
def is_available() -> bool:
    """Whether this server can speak Arrow."""
    return importlib.util.find_spec("pyarrow") is not None


def require() -> None:
    """Refuse a request for Arrow that cannot be served here."""
    if not is_available():
        raise NotAcceptable(
            ARROW_STREAM.decode(),
            offered=f"application/json, or install Arrow on the server: {INSTALL}",
        )


# Pages


def metadata(found: VersionedBulk) -> dict[bytes, bytes]:
    """What the schema says of the page; every value but the topic's name is JSON."""
    plan = found.bulk.plan
    tombstone = found.tombstone
    coverage = {
        "from": plan.first,
        "to": plan.last,
        "records": plan.records,
        "filtered": found.bulk.filtered,
        "runs": plan.holes,
    }
    return {
        b"topic": plan.topic.name.encode(),
        b"epoch": b"%d" % plan.epoch,
        b"next_from_seq": b"%d" % plan.last,
        b"caught_up": b"true" if found.caught_up else b"false",
        b"tombstone": _encode(None if tombstone is None else tombstone.to_dict()),
        b"coverage": _encode(coverage),
    }


class ArrowAnswer:
    """Sends one page, a slice at a time. Nothing is read ahead of the client."""

    def __init__(self, call: Call, found: VersionedBulk, include: Include) -> None:
        self._runner = call.service.runner
        self._reader = call.engine.pages.bulk
        self._pace = PacedRead(
            call.engine.kernel.committer, call.service.clock, shards=call.service.shards
        )
        self._found = found
        self._include = include
        self._slices: Iterator[Positions] = slices(found.bulk.plan.runs)
        self._left: Positions | None = next(self._slices, None)
        self._busy = False
        self._stream: Stream | None = None

    def begin(self, call: Call, headers: Headers) -> None:
        """Send the head and the schema; the rest follows by itself."""
        from topics.storage.frames.arrow import SCHEMA  # noqa: PLC0415 - needs pyarrow

        stream = call.reply.stream(content_type=ARROW_STREAM, headers=headers)
        if stream.closed or call.request.method == "HEAD":
            return
        self._stream = stream
        stream.on_drain = self._continue
        stream.write(SCHEMA.with_metadata(metadata(self._found)).serialize().to_pybytes())
        self._continue()

    def _continue(self) -> None:
        stream = self._stream
        if stream is None or self._busy or stream.closed:
            return
        if self._left is None:
            self._stream = None
            stream.write(_END)
            stream.close()
            return
        self._busy = True
        topic = self._found.bulk.plan.topic
        step = self._reader.step(topic, self._left, self._batch)
        self._runner.start(self._pace.step(step), self._send)

    def _batch(self, frames: Frames) -> tuple[int, bytes]:
        """On a pool thread: one message, and how many records it holds."""
        from topics.storage.frames.arrow import record_batch  # noqa: PLC0415

        include = self._include
        batch = record_batch(frames, with_tags=include.tags, with_meta=include.meta)
        return frames.size, batch.serialize().to_pybytes()

    def _send(self, made: tuple[int, bytes] | None, error: TopicsError | None) -> None:
        self._busy = False
        stream, left = self._stream, self._left
        assert stream is not None
        assert left is not None
        if made is None:
            _log.error(
                "an Arrow stream of %s breaks off: %s", self._found.bulk.plan.topic.name, error
            )
            self._stream = None
            stream.write(_BROKEN)
            stream.close()
            return
        count, message = made
        self._left = left[count:] if count < len(left) else next(self._slices, None)
        if stream.write(message):
            self._continue()


# Stages


def stage_bytes(body: bytes, *, max_bytes: int) -> int:
    """What the records of a stream come to, known before any of them is made."""
    import pyarrow as pa  # noqa: PLC0415

    total = 0
    try:
        for total in accumulate(decoded_bytes(body)):
            if total > max_bytes:
                raise PayloadTooLarge(max_bytes=max_bytes)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise InvalidRequest(f"the body is not a usable Arrow stream: {error}") from error
    return total


def decode_stage(body: bytes, *, max_bytes: int) -> StageRequest:
    """Records to stage from one IPC stream: `topic`, `data`, and `node`, `tag`, `meta` if given.

    `max_bytes` limits the decoded size, compressed or not. Rows become records a few at a time, so
    that other threads get the interpreter in between.
    """
    import pyarrow as pa  # noqa: PLC0415

    stage_bytes(body, max_bytes=max_bytes)
    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
        rows = _Rows(table, max_bytes)
        for batch in table.to_batches(max_chunksize=STEP_ROWS):
            rows.add(batch)
    except (pa.ArrowException, OSError, KeyError, ValueError, struct.error) as error:
        raise InvalidRequest(f"the body is not a usable Arrow stream: {error}") from error
    return rows.staged()


_DEPTH: Final = 124
"""Levels a payload may nest: those of a body less the three around it in JSON."""
STEP_ROWS: Final = 512


class _Rows:
    """Rows of a table as columns of records, together no larger than a body may be."""

    def __init__(self, table: pa.Table, max_bytes: int) -> None:
        names = table.schema.names
        if "topic" not in names or "data" not in names:
            raise InvalidRequest("the Arrow stream needs the columns topic and data")
        self._columns: dict[str, list[Any]] = {"topic": [], "data": []}
        for name in ("meta", "tag", "node"):
            if name in names and table.column(name).null_count < table.num_rows:
                self._columns[name] = []
        left = max_bytes
        for chunk in chain.from_iterable(table.column(name).chunks for name in self._columns):
            left -= expanded_bytes(chunk)
            if left < 0:
                raise PayloadTooLarge(max_bytes=max_bytes)

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa  # noqa: PLC0415

        for name, made in self._columns.items():
            texts: list[str | None] = batch.column(name).cast(pa.string()).to_pylist()
            made.extend(_MAKE[name](texts))

    def staged(self) -> StageRequest:
        columns = self._columns
        drafts = RecordBatch(
            columns["data"], columns.get("meta"), columns.get("tag"), columns.get("node")
        )
        return StageRequest(columns["topic"], drafts)


def _topics(texts: list[str | None]) -> list[Any]:
    if None in texts:
        raise InvalidRequest("every record needs a topic")
    return texts


def _datas(texts: list[str | None]) -> list[Any]:
    return compact_all([b"null" if text is None else text.encode() for text in texts], _DEPTH)


def _metas(texts: list[str | None]) -> list[Any]:
    present: list[Any] = [text.encode() for text in texts if text is not None]
    stored = iter(compact_all(present, _DEPTH))
    return [b"" if text is None or (meta := next(stored)) == b"null" else meta for text in texts]


def _names(texts: list[str | None]) -> list[Any]:
    return texts


_MAKE: Final = {"topic": _topics, "data": _datas, "meta": _metas, "tag": _names, "node": _names}
