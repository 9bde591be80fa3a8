"""`GET …/records`: pages that caches may keep, as JSON or as one Arrow stream; and read plans.

An entity tag is the page's version (`engine.reads.versioned_pages`) and one letter for its form:

    a   Arrow
    s   JSON too small to be compressed, whatever the client accepts
    j   JSON, not compressed
    z   JSON, compressed

With the letter a tag can be checked before the body exists: whether it would be compressed is
known from the tag itself and from what this request accepts.
"""

from __future__ import annotations

from typing import Final

from topics.engine.effects import Io, Op
from topics.engine.reads.reading import DEFAULT_BUDGET, DEFAULT_LIMIT, MAX_BUDGET, Query
from topics.engine.reads.versioned_pages import Unchanged, VersionedBulk, VersionedPage
from topics.errors import InvalidRequest
from topics.http.api import arrow_import
from topics.http.api.call import Call
from topics.http.api.reading import match_of
from topics.http.api.routing import Handler
from topics.http.coding import accepts_gzip
from topics.http.limits import Limits
from topics.http.messages import Headers, Response
from topics.values import BackPage
from topics.wire import requests, responses
from topics.wire.predicates import parse_match
from topics.wire.rendering import Include, render_records, rows_of

ARROW_STREAM: Final = b"application/vnd.apache.arrow.stream"
ARROW_MAX_LIMIT: Final = 1_000_000
ARROW_BUDGET: Final = 16 << 20
ARROW_MAX_BUDGET: Final = 64 << 20
MAX_TAGS: Final = 16
"""Entity tags of a request that are looked at."""

_COMPRESSED_FROM: Final = Limits().gzip_min_bytes


def records(call: Call) -> None:
    order = call.query.text("order")
    if order == "desc":
        _back(call)
    elif order not in (None, "asc"):
        raise InvalidRequest("order is asc or desc")
    elif ARROW_STREAM in call.header(b"accept"):
        _arrow(call)
    else:
        _json(call)


# JSON


def _json(call: Call) -> None:
    sent = call.query
    query = _query(
        call,
        limit=_clamped(sent.u32("limit"), DEFAULT_LIMIT, call.engine.kernel.settings.max_limit),
        budget=_clamped(sent.u64("max_batch_bytes"), DEFAULT_BUDGET, MAX_BUDGET),
    )
    include = _include(call, tags=False)
    known = _HeldTags(call, "sz" if _gzip(call) else "sj")

    def answer(found: VersionedPage | Unchanged) -> None:
        if isinstance(found, Unchanged):
            _not_modified(call, known.tag_of(found.version), found)
            return
        rendered = render_records(rows_of(found.page.records), include)
        body = responses.records_page(found.page, rendered)
        form = "s" if len(body) < _COMPRESSED_FROM else known.forms[1]
        tag = f"{found.version}-{form}"
        if known.has(tag):
            _not_modified(call, tag, found)
        else:
            # Where the transport compresses, it says so itself.
            call.answer(body, headers=_headers(tag, found, "s" if form == "z" else form))

    key, pages = b"json%d%d" % (include.tags, include.meta), call.engine.pages
    call.within_budget(
        lambda: call.run(pages.read(call.names[0], query, key, known.versions), answer)
    )


def _back(call: Call) -> None:
    """Newest first. What comes next is where this page ends, so it is not for caches."""
    sent = call.query
    for name in ("from_seq", "from_ts", "to_seq"):
        if name in sent:
            raise InvalidRequest(f"{name} does not go with order=desc; use before_seq")
    query = _query(
        call,
        limit=_clamped(sent.u32("limit"), DEFAULT_LIMIT, call.engine.kernel.settings.max_limit),
        budget=_clamped(sent.u64("max_batch_bytes"), DEFAULT_BUDGET, MAX_BUDGET),
    )
    include = _include(call, tags=False)

    def answer(found: BackPage) -> None:
        rendered = render_records(rows_of(found.records), include)
        call.answer(
            responses.back_page(found, rendered), headers=((b"cache-control", b"no-store"),)
        )

    op = call.engine.read_back(call.names[0], query, before=sent.u64("before_seq"))
    call.within_budget(lambda: call.run(op, answer))


def _include(call: Call, *, tags: bool) -> Include:
    sent = call.query
    return Include(
        tags=sent.flag("include_tags", default=tags), meta=sent.flag("include_meta", default=True)
    )


def _gzip(call: Call) -> bool:
    accepted = call.header(b"accept-encoding")
    return bool(accepted) and accepts_gzip(accepted)


# Arrow


def _arrow(call: Call) -> None:
    def loaded() -> Op[None]:
        if not call.service.has_arrow:
            yield Io(arrow_import.load)
            call.service.has_arrow = True

    call.run(loaded(), lambda _none: _arrow_page(call))


def _arrow_page(call: Call) -> None:
    from topics.http.api import arrow  # noqa: PLC0415 - brings in numpy

    arrow.require()
    sent = call.query
    query = _query(
        call,
        limit=_clamped(sent.u32("limit"), DEFAULT_LIMIT, ARROW_MAX_LIMIT),
        budget=_clamped(sent.u64("max_batch_bytes"), ARROW_BUDGET, ARROW_MAX_BUDGET),
    )
    include = _include(call, tags=True)
    known = _HeldTags(call, "a")

    def answer(found: VersionedBulk | Unchanged) -> None:
        if isinstance(found, Unchanged):
            _not_modified(call, known.tag_of(found.version), found)
            return
        tag = f"{found.version}-a"
        if known.has(tag):
            _not_modified(call, tag, found)
        else:
            arrow.ArrowAnswer(call, found, include).begin(call, _headers(tag, found, "a"))

    key = b"arrow%d%d" % (include.tags, include.meta)
    call.run(call.engine.pages.plan(call.names[0], query, key, known.versions), answer)


# Both


def _query(call: Call, *, limit: int, budget: int) -> Query:
    sent = call.query
    from_seq, from_ts, match = sent.u64("from_seq"), sent.u64("from_ts"), sent.text("match")
    if from_seq is not None and from_ts is not None:
        raise InvalidRequest("from_ts and from_seq exclude each other; send one of them")
    return Query(
        after=from_seq or 0,
        limit=limit,
        budget=budget,
        nodes=frozenset(sent.every("node")),
        match=None if match is None else match_of(parse_match(match)),
        from_ts=from_ts,
        to_seq=sent.u64("to_seq"),
    )


def _clamped(sent: int | None, default: int, most: int) -> int:
    return min(sent or default, most)


class _HeldTags:
    """The entity tags a client has, as far as they could be those of an answer in our form."""

    def __init__(self, call: Call, forms: str) -> None:
        self.forms = forms
        self._any = False
        self._tags: dict[str, str] = {}  # by version
        header = call.header(b"if-none-match")
        if header:
            self._read(header.decode("latin-1"))

    def _read(self, header: str) -> None:
        for item in header.split(",")[:MAX_TAGS]:
            tag = item.strip().removeprefix("W/")
            if tag == "*":
                self._any = True
            version, dash, form = tag.strip('"').rpartition("-")
            if dash and form and form in self.forms:
                self._tags[version] = f"{version}-{form}"

    @property
    def versions(self) -> list[str]:
        return list(self._tags)

    def tag_of(self, version: str) -> str:
        return self._tags[version]

    def has(self, tag: str) -> bool:
        return self._any or tag in self._tags.values()


def _headers(tag: str, found: VersionedPage | VersionedBulk | Unchanged, form: str) -> Headers:
    """A cache keeps what these say for the page it has, so a 304 repeats all of them."""
    return (
        (b"etag", b'"%b"' % tag.encode()),
        (b"cache-control", b"no-cache"),
        (b"vary", b"Accept, Accept-Encoding" if form in "jz" else b"Accept"),
        (b"topics-head-seq", b"%d" % found.head),
        (b"topics-earliest-seq", b"%d" % found.earliest),
    )


def _not_modified(call: Call, tag: str, found: VersionedPage | VersionedBulk | Unchanged) -> None:
    call.reply(Response(304, content_type=None, headers=_headers(tag, found, tag[-1])))


# Plans


def plan(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_plan(call.json_body())
    call.run(
        call.engine.plan(
            name, from_seq=sent.from_seq, to_seq=sent.to_seq, target_bytes=sent.target_bytes
        ),
        lambda found: call.answer(responses.shown(found, call.spent())),
    )


HANDLERS: dict[str, Handler] = {"readRecords": records, "planRanges": plan}
