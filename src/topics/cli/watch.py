"""`topics watch`: many topics at once, live."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import click

from topics.cli._exit import OK
from topics.cli._options import Where, as_json_option, on_a_log
from topics.cli._types import time_option
from topics.errors import TopicNotFound
from topics.events import Arrived, Event, Lost, TopicDropped

if TYPE_CHECKING:
    from topics.cli._options import AnyLog
    from topics.cli._records import Lines

Starts: TypeAlias = Mapping[str, int | None]
POLL_SECONDS = 0.2


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--all", "from_start", is_flag=True, help="Begin with what is there already.")
@click.option("--match", metavar="TAG", help="Only this tag; one that ends in * is a prefix.")
@click.option("--not-node", metavar="NODE", multiple=True, help="Leave this node's out.")
@time_option("--for", "patience_ms", help="End after so long without a record.")
@as_json_option
@on_a_log
def watch(
    where: Where,
    *,
    topics: tuple[str, ...],
    from_start: bool,
    match: str | None,
    not_node: tuple[str, ...],
    patience_ms: int | None,
    as_json: bool,
) -> int:
    """Print what is appended to any TOPIC, until Ctrl-C or until all of them are dropped.

    A lost connection is made again; reading goes on where it stopped and says so.
    """
    from topics.cli._records import Lines  # noqa: PLC0415 - help does without

    lines = Lines(as_json=as_json, several=True)
    starts = dict.fromkeys(topics, 0 if from_start else None)
    wait = None if patience_ms is None else patience_ms / 1000
    with where.reading() as log:
        for event in _events(log, starts, match=match, not_node=not_node, wait=wait):
            _print(lines, event)
            lines.flush()
    return OK


def _events(
    log: AnyLog, starts: Starts, *, match: str | None, not_node: tuple[str, ...], wait: float | None
) -> Iterator[Event]:
    """What happens in the topics. Nobody tells a reader of files, so a directory is polled."""
    from topics.client.sync import RemoteLog  # noqa: PLC0415 - help does without

    if isinstance(log, RemoteLog):
        yield from log.watch(starts, match=match, node=not_node, wait=wait)
        return
    heads = {topic: log.state(topic, touch=False).head_seq for topic in starts}
    cursors = {topic: heads[topic] if after is None else after for topic, after in starts.items()}
    quiet_since = time.monotonic()
    while cursors and (wait is None or time.monotonic() - quiet_since < wait):
        for topic, after in list(cursors.items()):
            try:
                page = log.read(
                    topic,
                    after=after,
                    match=match,
                    node=not_node,
                    wait=POLL_SECONDS / len(cursors),
                )
            except TopicNotFound:
                del cursors[topic]
                yield TopicDropped(topic)
                continue
            if page.tombstone is not None:
                yield Lost(topic, page.tombstone)
            for record in page.records:
                yield Arrived(topic, record)
            cursors[topic] = page.next_from_seq
            if page.tombstone is not None or page.records:
                quiet_since = time.monotonic()


def _print(lines: Lines, event: Event) -> None:
    if isinstance(event, Arrived):
        lines.records(event.topic, [event.record])
    elif isinstance(event, Lost):
        lines.tombstone(event.topic, event.tombstone)
    else:
        lines.event(event)
