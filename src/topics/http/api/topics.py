"""Topics: configure, look at, list, drop; and what the ledger says of them."""

from __future__ import annotations

import msgspec

from topics.engine.reads.explaining import explain
from topics.errors import InvalidRequest
from topics.http.api.call import Call
from topics.http.api.routing import Handler
from topics.values import Config, Created, Dropped, TopicState, TopicSummary
from topics.wire import requests, responses
from topics.wire.cursors import list_cursor, parse_list_cursor
from topics.wire.shapes import FindingShape, StoryShape, TopicEntry, TopicList
from topics.wire.stories import Story

MAX_PAGE = 1000
DEFAULT_PAGE = 100


def configure(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_config(call.json_body(may_be_empty=True))
    if sent.dead_letter is not None:
        call.principal.need_name(sent.dead_letter)
    fields = sent.fields()
    known = call.engine.kernel.catalog.by_name.get(name)
    if known is not None and fields.get("dead_letter") is None:
        kept = known.config.dead_letter
        if kept is not None and not call.principal.allows(kept):
            # The key does not see the present name. It must not remove it by leaving it out.
            fields["dead_letter"] = kept

    def answer(done: Created) -> None:
        done = msgspec.structs.replace(done, config=_shown_config(call, done.config))
        status = 201 if done.created else 200
        call.answer(responses.topic_configured(done, call.spent()), status)

    query = call.query
    dry_run = query.flag("dry_run", default=False)
    if not dry_run and (query.text("dry_run") or "false") not in ("false", "0"):
        raise InvalidRequest("dry_run is true or false")  # a misspelt one must change nothing
    call.run(call.engine.put(name, fields, dry_run=dry_run), answer)


def _shown_config(call: Call, config: Config) -> Config:
    """A configuration without a name that the key may not use."""
    named = config["dead_letter"]
    if named is None or call.principal.allows(named):
        return config
    return {**config, "dead_letter": None}


def state(call: Call) -> None:
    (name,) = call.names
    touch = call.query.flag("touch", default=True)

    def answer(found: TopicState) -> None:
        if call.principal.prefixes:
            found = msgspec.structs.replace(found, config=_shown_config(call, found.config))
        call.answer(responses.topic_state(found, call.spent()))

    call.run(
        call.engine.views.state(name, touch=touch),
        answer,
    )


def listing(call: Call) -> None:
    query = call.query
    after = parse_list_cursor(query.text("cursor") or "")
    size = page_size(query.u64("page_size"))
    touch = query.flag("touch", default=False)
    details = query.flag("details", default=False)
    prefix = query.text("prefix") or ""

    def allowed(name: str) -> bool:
        return call.principal.allows(name)

    def answer(page: tuple[list[TopicSummary], bool]) -> None:
        found, more = page
        shape = TopicList([_entry(line) for line in found])
        if more:
            shape.next_cursor = list_cursor(found[-1].topic)
        call.answer(responses.present(shape, call.spent()))

    op = call.engine.views.page(
        prefix=prefix, after=after, size=size, allowed=allowed, touch=touch, details=details
    )
    call.run(op, answer)


def _entry(line: TopicSummary) -> TopicEntry:
    """A line as it is sent: what is None was not asked for, or is no part of a log."""
    fields = msgspec.structs.asdict(line)
    return TopicEntry(**{name: item for name, item in fields.items() if item is not None})


def page_size(sent: int | None) -> int:
    """The size of a list's page, clamped."""
    return DEFAULT_PAGE if sent is None else min(max(sent, 1), MAX_PAGE)


def drop(call: Call) -> None:
    (name,) = call.names
    if_empty = call.query.flag("if_empty", default=False)
    visible = _visible_routers(call, name) if call.principal.prefixes else None

    def answer(done: Dropped) -> None:
        if visible is not None:
            told = [router for router in done.routers_removed if router in visible]
            done = msgspec.structs.replace(done, routers_removed=told)
        call.answer(responses.present(done, call.spent()))

    call.run(call.engine.drop(name, if_empty=if_empty), answer)


def _visible_routers(call: Call, name: str) -> set[str]:
    """The routers of a topic that the key may know; looked up before the topic is dropped."""
    catalog = call.engine.kernel.catalog
    topic = catalog.by_name.get(name)
    if topic is None:
        return set()
    touching = [*catalog.routers.out_of(topic.id), *catalog.routers.into(topic.id)]
    allows = call.principal.allows_all
    return {r.name for r in touching if allows(r.name, r.source, r.dest)}


def audit(call: Call) -> None:
    (name,) = call.names
    call.run(
        call.engine.views.audit(name),
        lambda found: call.answer(responses.present(found, call.spent())),
    )


def holes(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_holes(call.json_body())
    call.run(
        call.engine.views.holes(name, from_seq=sent.from_seq, to_seq=sent.to_seq),
        lambda found: call.answer(responses.holes(found, call.spent())),
    )


def story(call: Call) -> None:
    (name,) = call.names

    def answer(found: Story) -> None:
        ordered = sorted(found.findings, key=lambda finding: -finding.weight)
        sentences = [
            FindingShape(
                finding.weight, finding.what, finding.since_ms, finding.word, finding.command
            )
            for finding in ordered
        ]
        shape = StoryShape(name, found.opening, sentences)
        call.answer(responses.present(shape, call.spent()))

    call.run(explain(call.engine, name, allows=call.principal.allows), answer)


HANDLERS: dict[str, Handler] = {
    "listTopics": listing,
    "explainTopic": story,
    "configureTopic": configure,
    "getTopic": state,
    "dropTopic": drop,
    "auditTopic": audit,
    "listHoles": holes,
}
