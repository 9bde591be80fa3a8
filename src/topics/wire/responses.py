"""Response bodies as bytes, compact.

`present` sends any shape. What holds records or jobs is spliced from stored bytes instead, and
what the Python API returns in another form than the wire is turned over here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from topics.errors import Internal, TopicsError
from topics.values import Ack, BackPage, Created, Holes, JobRow, Page, Tombstone, TopicState, Value
from topics.wire.shapes import Health, Ready
from topics.wire.tokens import LEASE_TOKEN

_encode = msgspec.json.Encoder().encode
FIRST_CHARS, LAST_CHARS = 1500, 500
"""Of the text of an error, when it is longer than that: it may repeat what a client sent."""


def performance(
    server_total_ms: float,
    *,
    fsync_ms: float | None = None,
    records_scanned: int | None = None,
    cold_segments_read: int = 0,
) -> bytes:
    """The closing object of a body. Times have three decimals; nothing waited is exactly 0.0."""
    spent = b'{"server_total_ms":%b' % _milliseconds(round(server_total_ms * 1000))
    if fsync_ms is not None:
        spent += b',"fsync_ms":%b' % _milliseconds(round(fsync_ms * 1000))
    if records_scanned is not None:
        spent += b',"records_scanned":%d' % records_scanned
    if cold_segments_read > 0:
        spent += b',"cold_segments_read":%d' % cold_segments_read
    return spent + b"}"


def write_time_spent(total_ns: int, wrote_ns: int, synced_ns: int, throttled_ns: int) -> bytes:
    """`performance` of a write: in all, in the log's write, in its sync, and held back before."""
    spent = b'{"server_total_ms":%b,"wal_append_ms":%b,"fsync_ms":%b' % (
        _milliseconds((total_ns + 500) // 1000),
        _milliseconds((wrote_ns + 500) // 1000),
        _milliseconds((synced_ns + 500) // 1000),
    )
    if throttled_ns:
        spent += b',"throttle_wait_ms":%b' % _milliseconds((throttled_ns + 500) // 1000)
    return spent + b"}"


def time_spent(ns: int) -> bytes:
    """`performance` of a body that reports nothing but the time; spelled once a microsecond."""
    us = (ns + 500) // 1000
    known = _times.get(us)
    if known is None:
        known = performance(us / 1000)
        if us < _REMEMBERED_US:
            _times[us] = known
    return known


_REMEMBERED_US = 10_000
_times: dict[int, bytes] = {}


@lru_cache(maxsize=4096)
def _milliseconds(whole_us: int) -> bytes:
    """A time as JSON has it; most requests take about as long as one before them."""
    # A float's own spelling is the shortest.
    return b"%a" % (whole_us / 1000)


def present(shape: msgspec.Struct, spent: bytes) -> bytes:
    """A body in the order of its shape's fields, closed by `spent` (see `performance`)."""
    return closed(_encode(shape), spent)


def shown(value: Value, spent: bytes) -> bytes:
    """A result of the Python API as it names its own fields."""
    return closed(_encode(value.to_dict()), spent)


def closed(body: bytes, spent: bytes) -> bytes:
    """An object with `performance` as its last member."""
    return b'%b,"performance":%b}' % (body[:-1], spent)


def error_body(error: TopicsError) -> bytes:
    """A refusal in its envelope."""
    return envelope(error.code, message_of(error), error.detail)


def envelope(code: str, message: str, detail: Mapping[str, object] | None = None) -> bytes:
    """The envelope of every refusal; without `detail` when there is none."""
    facts: dict[str, object] = {"code": code, "message": message}
    if detail is not None:
        facts["detail"] = detail
    return _encode({"error": facts})


def _cut(text: str) -> str:
    """A text short enough to be told. Its end stays: it says what helps."""
    if len(text) <= FIRST_CHARS + LAST_CHARS:
        return text
    return f"{text[:FIRST_CHARS]}...{text[-LAST_CHARS:]}"


def message_of(error: TopicsError) -> str:
    """The text of an error, never empty; file names in it need not be valid Unicode.

    Of a path in the text of a failure only the last part is told: where a server keeps its files is
    not for its clients. The server's log has the text as it is.
    """
    text = _cut(str(error)).encode(errors="replace").decode()
    if isinstance(error, Internal):
        text = _BARE_PATH.sub("", _QUOTED_PATH.sub(r"\1\2\1", text))
    return text or error.code


_QUOTED_PATH = re.compile(r"""(['"])/(?:(?!\1).)*/((?:(?!\1)[^/])*)\1""")
_BARE_PATH = re.compile(r"""(?<![^\s('"=:,])/(?:[^/\s'"]+/)+""")


# Topics


def topic_configured(done: Created, spent: bytes) -> bytes:
    return closed(_encode(done.to_dict()), spent)


def topic_state(state: TopicState, spent: bytes) -> bytes:
    shown = {
        "topic": state.topic,
        "type": state.type,
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
        "next_seq": state.next_seq,
        "count": state.count,
        "bytes": state.bytes,
        "config": dict(state.config),
        "effective_priority": state.effective_priority,
        "last_write_ts": state.last_write_ts,
        "last_read_ts": state.last_read_ts,
        "epoch": state.epoch,
        "delete_version": state.delete_version,
    }
    if state.queue is not None:
        shown["queue"] = state.queue
    return closed(_encode(shown), spent)


def holes(found: Holes, spent: bytes) -> bytes:
    return closed(_encode(found.to_dict()), spent)


# Records. Rendered records come from `rendering.render_records`.


def write_ack(ack: Ack, spent: bytes, *, return_seqs: bool = True) -> bytes:
    """An acknowledged write; without `seqs` when the caller declined them."""
    return b"{%b}" % ack_members(ack, spent, return_seqs=return_seqs, declined=b"")


def ack_members(ack: Ack, spent: bytes, *, return_seqs: bool, declined: bytes) -> bytes:
    """The members of an acknowledged write; `declined` replaces `seqs` if they are not wanted."""
    if not return_seqs:
        seqs = declined
    elif ack.count == 1:
        seqs = b'"seqs":[%d],' % ack.first_seq
    else:
        seqs = b'"seqs":%b,' % _encode(list(ack.seqs))
    return (
        b'"topic":%b,"first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,%b,"performance":%b'
    ) % (
        _encode(ack.topic),
        ack.first_seq,
        ack.last_seq,
        seqs,
        ack.head_seq,
        ack.count,
        _FLAGS[ack.created, ack.deduped],
        spent,
    )


_FLAGS = {
    (created, deduped): b'"created":%b,"deduped":%b' % (_encode(created), _encode(deduped))
    for created in (False, True)
    for deduped in (False, True)
}


def diff_page(page: Page, rendered: bytes, spent: bytes) -> tuple[bytes, bytes, bytes]:
    """One read, in pieces: its records are as they were rendered, not a copy.

    `tombstone` is null when nothing was lost, never absent.
    """
    rest = (
        b',"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,'
        b'"caught_up":%b,"tombstone":%b,"lag":%d,"performance":%b}'
    ) % (
        page.next_from_seq,
        page.head_seq,
        page.earliest_seq,
        _encode(page.caught_up),
        _tombstone(page.tombstone),
        page.lag,
        spent,
    )
    return b'{"topic":%b,"records":' % _encode(page.topic), rendered, rest


def records_page(page: Page, rendered: bytes) -> bytes:
    """A read for caches: nothing in it moves unless the page itself changes."""
    return (b'{"topic":%b,"records":%b,"next_from_seq":%d,"caught_up":%b,"tombstone":%b}') % (
        _encode(page.topic),
        rendered,
        page.next_from_seq,
        _encode(page.caught_up),
        _tombstone(page.tombstone),
    )


def back_page(page: BackPage, rendered: bytes) -> bytes:
    """A read that goes back."""
    before = page.next_before_seq
    return b'{"topic":%b,"records":%b,"next_from_seq":%d,"caught_up":%b,"tombstone":null%b%b}' % (
        _encode(page.topic),
        rendered,
        page.next_from_seq,
        _encode(page.next_from_seq >= page.head_seq),
        b',"gaps":%b' % _encode([gap.to_dict() for gap in page.gaps]),
        b"" if before is None else b',"next_before_seq":%d' % before,
    )


def _tombstone(tombstone: Tombstone | None) -> bytes:
    return b"null" if tombstone is None else _encode(tombstone.to_dict())


# Jobs


JOB_TEXT = b'"$seq":%d,"lease_id":"' + LEASE_TOKEN + b"%b%b"
"""The members of a job without tag and meta: seq, lease, `job_middle`, data."""


def job_middle(deadline_ms: int, ts: int, deliveries: int) -> bytes:
    """What jobs of one claim that were written together have in common."""
    return b'","deadline":%d,"$ts":%d,"deliveries":%d,"data":' % (deadline_ms, ts, deliveries)


def job_members(job: JobRow) -> bytes:
    """The members of a job between its braces. Who wrote it stays hidden."""
    seq, lease_id, deadline_ms, ts, deliveries, raw, tag, meta = job
    return b'"$seq":%d,"lease_id":"%b","deadline":%d,"$ts":%d,%b"deliveries":%d,"data":%b%b' % (
        seq,
        LEASE_TOKEN % lease_id,
        deadline_ms,
        ts,
        b"" if tag is None else b'"$tag":%b,' % _encode(tag),
        deliveries,
        raw,
        b"" if meta is None else b',"meta":%b' % meta,
    )


def claimed(topic: str, jobs: Sequence[bytes], spent: bytes, *, ready: int) -> bytes:
    """Jobs handed to a worker, perhaps none; each as `job_members` has it."""
    return b'{"topic":%b,"claimed":[%b],"count":%d,"ready":%d,"performance":%b}' % (
        _encode(topic),
        b"{%b}" % b"},{".join(jobs) if jobs else b"",
        len(jobs),
        ready,
        spent,
    )


# Probes, which say nothing of performance


def health(*, version: str, uptime_ms: int) -> bytes:
    return _encode(Health(version=version, uptime_ms=uptime_ms))


def ready(*, topics: int) -> bytes:
    return _encode(Ready(topics=topics))
