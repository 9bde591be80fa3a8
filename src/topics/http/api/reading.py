"""Reading records after a cursor: a page that was rendered before, a read, or a wait for news.

A read may be long, so it is done within the loop budget for long work, now or in a later tick. A
read that had to wait for that looks for a known page again: an earlier read may have rendered it.
"""

from __future__ import annotations

from functools import partial

import msgspec

from topics.core.facts import Match
from topics.core.topic import Topic
from topics.delivery.changes import Poll
from topics.delivery.pages import Options, Rendered
from topics.engine.reads.reading import Query as ReadQuery
from topics.errors import TopicsError
from topics.http.api.call import Call
from topics.http.messages import Spliced
from topics.values import Page
from topics.wire import responses
from topics.wire.predicates import Predicate
from topics.wire.rendering import Include
from topics.wire.requests import DiffBody, decode_diff

MAX_WAIT_MS = 30_000


def match_of(predicate: Predicate | None) -> Match | None:
    """A selector of the wire as the engine's."""
    return predicate and Match(predicate.literal, is_prefix=predicate.is_prefix)


def diff(call: Call) -> None:
    (topic,) = call.names
    sent = decode_diff(call.json_body(may_be_empty=True))
    budget = call.reply.tick.reads
    known = None if budget.is_spent else _known(call, topic, sent)
    if known is not None:
        budget.do(partial(_answer_known, call, *known))
    else:
        _Diff(call, topic, sent).begin()


def _cacheable(call: Call, name: str, asked: DiffBody) -> Topic | None:
    """The topic of a read whose page others may ask for; None for any other read.

    A filter is one reader's own. A read of a topic that routers copy into waits for the copies.
    """
    if asked.node is not None or asked.match is not None or asked.from_ts is not None:
        return None
    catalog = call.engine.kernel.catalog
    topic = catalog.by_name.get(name)
    if topic is None or (catalog.routers.by_name and catalog.routers.into(topic.id)):
        return None
    return topic


def _options(call: Call, asked: DiffBody) -> Options:
    return Options.clamped(
        limit=asked.limit,
        budget=asked.max_batch_bytes,
        max_limit=call.engine.kernel.settings.max_limit,
        include=Include(tags=asked.include_tags, meta=asked.include_meta),
    )


def _known(call: Call, name: str, asked: DiffBody) -> tuple[Topic, Rendered] | None:
    """The page of this read, if the page cache has it; it counts as a read of the topic."""
    topic = _cacheable(call, name, asked)
    if topic is None:
        return None
    page = call.service.pages.known(topic, asked.cursor, _options(call, asked))
    if page is None:
        return None
    topic.last_read_ts = topic.last_consumed = call.engine.kernel.clock.now_ms()
    return topic, page


class _Diff:
    """One read that found no known page at once."""

    __slots__ = ("_asked", "_call", "_poll", "_query", "_topic")

    def __init__(self, call: Call, topic: str, asked: DiffBody) -> None:
        self._call = call
        self._topic = topic
        self._asked = asked
        self._query = ReadQuery(
            after=asked.cursor,
            limit=asked.limit,
            budget=asked.max_batch_bytes,
            nodes=frozenset(asked.nodes),
            match=match_of(asked.predicate),
            from_ts=asked.from_ts,
        )
        self._poll: Poll | None = None

    def begin(self) -> None:
        """Read within the loop budget; a poll begins before, so that no append is missed."""
        call, wait_ms = self._call, min(self._asked.wait_ms, MAX_WAIT_MS)
        if wait_ms:
            self._poll = call.service.changes.poll(self._topic, wait_ms)
            call.reply.on_gone = self._poll.cancel
            call.reply.on_half_close = self._poll.give_up
        call.within_budget(self._read)

    def _read(self) -> None:
        call = self._call
        known = _known(call, self._topic, self._asked)
        if known is not None:
            self._end_poll()
            _answer_known(call, *known)
        else:
            call.service.runner.start(call.engine.read(self._topic, self._query), self._found)

    def _found(self, page: Page | None, error: TopicsError | None) -> None:
        """The first read is done: answer, or wait for an append if there was nothing to tell."""
        if page is None or page.records or page.tombstone is not None or not page.caught_up:
            self._end_poll()
        if self._poll is None:
            # Without an error there is a page.
            self._call.settle(page if error is None else error, self._answer)  # type: ignore[arg-type]
            return
        assert page is not None
        self._poll.then(partial(self._over, page))

    def _over(self, first: Page, woken: bool) -> None:
        """The wait is over: read once more if something came, else answer with the first page."""
        call, query = self._call, self._query
        if not woken:
            call.settle(first, self._answer)
            return
        if query.from_ts is not None:
            # The first read settled where the time begins: the second continues from there.
            query = msgspec.structs.replace(query, after=first.next_from_seq, from_ts=None)
        call.run(call.engine.read(self._topic, query), self._answer)

    def _end_poll(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def _answer(self, page: Page) -> None:
        call, asked = self._call, self._asked
        options = _options(call, asked)
        rendered = Rendered(page, options.include, options.limit)
        topic = _cacheable(call, self._topic, asked)
        if topic is not None and not page.cold_segments_read and page.head_seq == topic.head:
            call.service.pages.keep(topic, asked.cursor, options, rendered)
        spent = responses.performance(
            call.elapsed_ms(),
            records_scanned=page.records_scanned,
            cold_segments_read=page.cold_segments_read,
        )
        call.reply(Spliced(responses.diff_page(page, rendered.records, spent)))


def _answer_known(call: Call, topic: Topic, known: Rendered) -> None:
    spent = responses.performance(call.elapsed_ms(), records_scanned=known.scanned)
    head, reached = topic.head, known.next
    page = Page(
        topic.name, (), reached, head, topic.earliest, reached == head, None, head - reached
    )
    call.reply(Spliced(responses.diff_page(page, known.records, spent)))
