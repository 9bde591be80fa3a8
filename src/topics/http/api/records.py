"""Records: write, read after a cursor, read for caches, delete."""

from __future__ import annotations

from functools import partial

import msgspec

from topics.batch import RecordBatch
from topics.core.facts import Match
from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.reads.reading import Query as ReadQuery
from topics.engine.writes.append import Timing
from topics.engine.writes.drafts import check_batch
from topics.errors import Forbidden, TopicsError
from topics.http.api.auth import Scope
from topics.http.api.call import Call
from topics.http.api.known_pages import KnownPage
from topics.http.api.routing import Handler
from topics.http.api.write_turns import Writer, WriteTurns, answer_write, append_sent
from topics.http.messages import Spliced
from topics.storage.frames.prepared import PreparedAppend
from topics.values import Ack, DeleteResult, Page
from topics.wire import requests, responses
from topics.wire.predicates import Predicate
from topics.wire.rendering import Include, render_records, rows_of
from topics.wire.requests import WriteRequest

MAX_WAIT_MS = 30_000


def match_of(predicate: Predicate | None) -> Match | None:
    """A selector of the wire as the engine's."""
    return predicate and Match(predicate.literal, is_prefix=predicate.is_prefix)


# Writing


def write(together: WriteTurns, call: Call) -> None:
    """Write with the others of this turn, unless there are conditions."""
    (name,) = call.names
    body = call.json_body()
    if len(body) > requests.LONG_BODY_BYTES:
        together.write_before(name)
        _write_long(call, name)
        return
    sent = requests.decode_write(body)
    if sent.config is not None:
        sent = _may_configure(call, name, sent, sent.config)
    batch = sent.drafts
    key = _key_of(call, sent)
    engine = call.engine
    check_batch(batch, engine.kernel.settings, key=key, at_most=len(body))
    return_seqs = call.query.flag("return_seqs", default=True) if call.request.raw_query else True
    if sent.expect_head is None and not sent.disable_backpressure:
        together.write(Writer(call, sent, batch, key, return_seqs))
        return
    together.write_before(name)
    timing = Timing()
    call.run(
        append_sent(engine, name, sent, batch, key=key, timing=timing),
        partial(answer_write, timing, return_seqs, call),
    )


def _write_long(call: Call, name: str) -> None:
    """Write what takes so long to decode that others have to have their turn meanwhile."""
    call.request.may_run_ahead = False  # what comes behind it on its connection stays there
    timing = Timing()
    return_seqs = call.query.flag("return_seqs", default=True)

    def understood() -> Op[tuple[WriteRequest, RecordBatch, str | None, PreparedAppend]]:
        lane, body = call.service.lane, call.take_body()
        sent = yield from lane.decoded(body, requests.decode_write_in_steps, requests.decode_write)
        if sent.config is not None:
            sent = _may_configure(call, name, sent, sent.config)
        batch, key = sent.drafts, _key_of(call, sent)
        limits = call.engine.kernel.settings
        return sent, batch, key, (yield from lane.prepared(batch, limits, key=key))

    def written() -> Op[Ack]:
        sent, batch, key, prepared = yield from call.service.lane.alone(understood())
        engine = call.engine
        return (
            yield from append_sent(
                engine, name, sent, batch, key=key, timing=timing, prepared=prepared
            )
        )

    call.hold_body()
    call.run(written(), partial(answer_write, timing, return_seqs, call))


def _key_of(call: Call, sent: WriteRequest) -> str | None:
    key = sent.idempotency_key
    if key is None and b"idempotency-key" in call.request.headers:
        key = _text_of(call.header(b"idempotency-key"))
    return key


def _text_of(header: bytes) -> str:
    """A header as text: UTF-8, or else the old Latin-1, which has a letter for every byte."""
    try:
        return header.decode()
    except UnicodeDecodeError:
        return header.decode("latin-1")


def _may_configure(
    call: Call, name: str, sent: WriteRequest, config: requests.ConfigBody
) -> WriteRequest:
    """The write, if its key may configure a topic like this.

    The config counts for a new topic only. Where there is one it is let go of, unjudged, so that it
    cannot count after all if the topic is dropped in the meantime.
    """
    if name in call.engine.kernel.catalog.by_name:
        return msgspec.structs.replace(sent, config=None)
    if not call.principal.may(Scope.ADMIN):
        raise Forbidden(scope="admin", topic=name)
    if config.dead_letter is not None:
        call.allow_body_name(config.dead_letter)
    return sent


# Reading


def diff(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_diff(call.json_body(may_be_empty=True))
    pages, rations = call.service.pages, call.reply.turns.rations
    found = None if rations.is_used_up else pages.find(name, sent)
    if found is not None:
        rations.take(partial(_answer_known, call, *found))
        return
    engine = call.engine
    query = ReadQuery(
        after=sent.cursor,
        limit=sent.limit,
        budget=sent.max_batch_bytes,
        nodes=frozenset(sent.nodes),
        match=match_of(sent.predicate),
        from_ts=sent.from_ts,
    )
    include = Include(tags=sent.include_tags, meta=sent.include_meta)

    def answer(page: Page) -> None:
        rendered = render_records(rows_of(page.records), include)
        pages.keep(name, sent, page, rendered)
        spent = responses.performance(
            call.elapsed_ms(),
            records_scanned=page.records_scanned,
            cold_segments_read=page.cold_segments_read,
        )
        call.reply(Spliced(responses.diff_page(page, rendered, spent)))

    def is_known_now() -> bool:
        """Whether somebody before in line had the page rendered; then it is the answer."""
        found = pages.find(name, sent)
        if found is not None:
            _answer_known(call, *found)
        return found is not None

    def read() -> None:
        if not is_known_now():
            call.run(engine.read(name, query), answer)

    wait_ms = min(sent.wait_ms, MAX_WAIT_MS)
    if not wait_ms:
        call.ration(read)
        return
    poll = call.service.changes.poll(name, wait_ms)

    def first(page: Page) -> None:
        if page.records or page.tombstone is not None or not page.caught_up:
            poll.cancel()
            answer(page)
            return
        # A start by time is settled by the first read: the second continues from its place.
        again = msgspec.structs.replace(query, after=page.next_from_seq, from_ts=None)
        restart = query if query.from_ts is None else again
        poll.then(
            lambda woken: call.run(engine.read(name, restart), answer) if woken else answer(page)
        )

    def begin() -> Op[Page]:
        try:
            return (yield from engine.read(name, query))
        except TopicsError:
            poll.cancel()
            raise

    def look() -> None:
        if is_known_now():
            poll.cancel()
        else:
            call.run(begin(), first)

    call.reply.on_gone = poll.cancel
    call.reply.on_half_close = poll.give_up
    call.ration(look)


def _answer_known(call: Call, topic: Topic, known: KnownPage) -> None:
    spent = responses.performance(call.elapsed_ms(), records_scanned=known.records_scanned)
    head, reached = topic.head, known.next_from_seq
    page = Page(
        topic.name, (), reached, head, topic.earliest, reached == head, None, head - reached
    )
    call.reply(Spliced(responses.diff_page(page, known.records, spent)))


def delete(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_delete(call.json_body())

    def answer(done: DeleteResult) -> None:
        call.answer(responses.present(done, call.spent()))

    call.run(
        call.engine.delete(name, before=sent.before_seq, match=match_of(sent.predicate)), answer
    )


def handlers() -> dict[str, Handler]:
    """The calls on records; writes that arrive together share their work."""
    return {
        "appendRecords": partial(write, WriteTurns()),
        "readAfterCursor": diff,
        "deleteRecords": delete,
    }
