"""`topics watch`: many topics at once, live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from topics.cli._completing import complete_topic
from topics.cli._exit import OK
from topics.cli._options import Where, match_option, not_node_option, on_a_log
from topics.cli._types import time_option
from topics.errors import NotFound
from topics.events import Arrived, Event, Lost

if TYPE_CHECKING:
    from topics.cli._records import Lines
    from topics.client.interface import AnyLog


@click.command()
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topic
)
@click.option(
    "--all", "from_start", is_flag=True, help="Print the records that exist already, too."
)
@match_option
@not_node_option
@time_option("--for", "patience_ms", help="Stop after this time without a new record.")
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

    A name that ends in * stands for all topics that begin with it, as of now. If the connection
    is lost, the command connects again, continues after the last record and says so.
    """
    from topics.cli._records import Lines  # noqa: PLC0415 - help does without

    lines = Lines(as_json=as_json, several=True)
    wait = None if patience_ms is None else patience_ms / 1000
    with where.reading() as log:
        starts = dict.fromkeys(_named(log, topics), 0 if from_start else None)
        for event in log.watch(starts, match=match, node=not_node, wait=wait):
            _print(log, lines, event)
            lines.flush()
    return OK


def _named(log: AnyLog, names: tuple[str, ...]) -> Iterator[str]:
    """Topics by their names; one that ends in * is a prefix."""
    for name in names:
        if not name.endswith("*"):
            yield name
            continue
        found = log.topics(prefix=name[:-1])
        if not found:
            raise NotFound(f"a topic whose name begins with {name[:-1]!r}")
        yield from (topic.topic for topic in found)


def _print(log: AnyLog, lines: Lines, event: Event) -> None:
    if isinstance(event, Arrived):
        lines.records(event.topic, [event.record])
    elif isinstance(event, Lost):
        lines.tombstone(log, event.topic, event.tombstone)
    else:
        lines.event(event)
