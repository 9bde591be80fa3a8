"""Watches: a session says what to follow, its event stream delivers."""

from __future__ import annotations

from topics.delivery.event_stream import EventStream
from topics.delivery.pages import Options
from topics.delivery.sessions import IDLE_TTL_MS, MAX_HEARTBEAT_MS
from topics.delivery.starting import Started, resolve
from topics.errors import InvalidRequest, NotAcceptable, NotFound, Unauthorized
from topics.http.api.auth import may_open
from topics.http.api.call import Call
from topics.http.api.reading import match_of
from topics.http.api.routing import Handler
from topics.http.messages import Headers
from topics.wire import requests, responses
from topics.wire.cursors import parse_stream_id
from topics.wire.rendering import Include
from topics.wire.requests import WatchBody
from topics.wire.shapes import WatchOpened

EVENT_STREAM = b"text/event-stream"
STREAM_HEADERS: Headers = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


def create(call: Call) -> None:
    sent = requests.decode_watch(call.json_body())
    _check_topics(call, sent)
    engine, live = call.engine, call.service.live
    limits = call.service.limits
    options = Options.clamped(
        limit=sent.limit,
        budget=sent.max_batch_bytes,
        max_limit=engine.kernel.settings.max_limit,
        nodes=sent.nodes,
        match=match_of(sent.predicate),
        include=Include(tags=sent.include_tags, meta=sent.include_meta, data=sent.include_data),
        strong=sent.consistency == "strong",
    )
    heartbeat_ms = min(max(sent.heartbeat_ms, limits.min_heartbeat_ms), MAX_HEARTBEAT_MS)

    def answer(started: dict[str, Started]) -> None:
        session = live.sessions.create(
            call.principal.key_id,
            places={name: start.place for name, start in started.items()},
            options=options,
            heartbeat_ms=heartbeat_ms,
        )
        shape = WatchOpened(
            wid=session.wid,
            stream_url=f"/v0/watch/{session.wid}",
            session_ttl_ms=IDLE_TTL_MS,
            topics={name: start.shown for name, start in started.items()},
        )
        call.answer(responses.present(shape, call.spent()))

    lenient = call.query.flag("lenient", default=False)
    call.run(resolve(engine, sent.starts, lenient=lenient), answer)


def _check_topics(call: Call, sent: WatchBody) -> None:
    if not sent.topics:
        raise InvalidRequest("topics: name at least one topic to watch")
    limit = call.service.limits.max_watch_topics
    if len(sent.topics) > limit:
        raise InvalidRequest(f"topics: {len(sent.topics)} given, at most {limit} are allowed")
    for name in sent.topics:
        call.principal.need_name(name)


def open_stream(call: Call) -> None:
    """Check the accepted type, the session, its key and the connection caps, in this order."""
    refuse_other_types(call)
    service, live = call.service, call.service.live
    (wid,) = call.names
    session = live.sessions.find(wid)
    if session is None:
        raise NotFound("the watch session")
    if not may_open(session.owner, call.principal):
        raise Unauthorized("this watch session opens only for the key that created it")
    service.open_stream(session.owner)
    call.stop_counting()
    try:
        came_to = parse_stream_id(call.header(b"last-event-id").decode("latin-1"))
        if came_to is not None:
            session.resume(came_to)
        stream = call.reply.stream(content_type=EVENT_STREAM, headers=STREAM_HEADERS)
    except BaseException:
        service.close_stream(session.owner)
        raise

    def ended() -> None:
        service.close_stream(session.owner)
        live.connections.pop(opened, None)

    opened = EventStream(live, session, stream, on_end=ended, on_lagged=live.count_lag)
    live.connections[opened] = None
    opened.start()
    live.sessions.sweep()


def refuse_other_types(call: Call) -> None:
    """Refuse a client whose `Accept` names types but no event stream."""
    accept = call.header(b"accept")
    if accept and EVENT_STREAM not in accept and b"*/*" not in accept:
        raise NotAcceptable(accept.decode("latin-1"), offered=EVENT_STREAM.decode())


HANDLERS: dict[str, Handler] = {"createWatch": create, "openWatch": open_stream}
