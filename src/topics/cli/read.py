"""`topics read` and `topics tail`: the records of one topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topics.cli._exit import OK
from topics.cli._options import Where, match_option, not_node_option, on_a_log, topic_argument
from topics.cli._types import SEQ, moment_option, time_option
from topics.events import Resumed, item_of
from topics.values import Record, Tombstone

if TYPE_CHECKING:
    from topics.cli._records import Lines
    from topics.client.interface import AnyLog

PAGE_RECORDS = 1000


@click.command()
@topic_argument
@click.option("--after", type=SEQ, help="Start after this seq.")
@moment_option(
    "--since", help="Start at a time: 2026-01-31T12:00:00Z, 2h (ago), today or yesterday."
)
@click.option("--limit", "-n", type=click.IntRange(min=0), help="Largest number of records.")
@match_option
@not_node_option
@on_a_log
def read(
    where: Where,
    *,
    topic: str,
    after: int | None,
    since: int | None,
    limit: int | None,
    match: str | None,
    not_node: tuple[str, ...],
    as_json: bool,
) -> int:
    """Print the records of TOPIC, up to its end as it is now.

    A loss is printed where it happened, as LOST or as {"tombstone": ...}. With --json a record is
    one line as the API spells it, its data byte for byte.
    """
    if after is not None and since is not None:
        raise click.UsageError("start behind a seq or at a time, not both")
    from topics.cli._records import Lines  # noqa: PLC0415 - help does without

    lines = Lines(as_json=as_json)
    with where.reading() as log:
        end = log.state(topic, touch=False).head_seq
        cursor, left = after or 0, limit
        while left is None or left > 0:
            page = log.read(
                topic,
                after=cursor,
                limit=PAGE_RECORDS if left is None else min(left, PAGE_RECORDS),
                node=not_node,
                match=match,
                from_ts=since,
            )
            since = None
            if page.tombstone is not None:
                lines.tombstone(log, topic, page.tombstone)
            lines.records(topic, page.records)
            cursor = page.next_from_seq
            left = None if left is None else left - len(page.records)
            if page.caught_up or cursor >= end:
                break
        lines.flush()
    return OK


@click.command()
@topic_argument
@click.option(
    "--follow", "-f", is_flag=True, help="Print new records as they are appended, until Ctrl-C."
)
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of records.",
)
@match_option
@not_node_option
@time_option(
    "--for", "patience_ms", help="With --follow: stop after this time without a new record."
)
@on_a_log
def tail(
    where: Where,
    *,
    topic: str,
    follow: bool,
    lines: int,
    match: str | None,
    not_node: tuple[str, ...],
    patience_ms: int | None,
    as_json: bool,
) -> int:
    """Print the newest records of TOPIC, and with -f those that come.

    A loss is printed where it happened, as LOST or as {"tombstone": ...}.
    """
    from topics.cli._records import Lines  # noqa: PLC0415 - help does without

    printer = Lines(as_json=as_json)
    with where.reading() as log:
        cursor = _print_newest(log, topic, printer, most=lines, match=match, not_node=not_node)
        if follow:
            wait = None if patience_ms is None else patience_ms / 1000
            _follow(log, topic, printer, cursor, match=match, not_node=not_node, wait=wait)
    return OK


def _print_newest(
    log: AnyLog,
    topic: str,
    printer: Lines,
    *,
    most: int,
    match: str | None,
    not_node: tuple[str, ...],
) -> int:
    """Print the last records that fit, looking back further while there are too few.

    Returns the seq up to which everything was seen.
    """
    state = log.state(topic, touch=False)
    floor, head = state.earliest_seq - 1, state.head_seq
    newest: list[Record | Tombstone] = []
    start, span, found = head, max(most, 1), 0
    while start > floor and found < most:
        start, end = max(floor, start - span), start
        newest = _between(log, topic, start, end, match=match, not_node=not_node) + newest
        found = sum(isinstance(item, Record) for item in newest)
        span *= 2
    for item in _last(newest, too_many=found - most):
        _print(log, printer, topic, item)
    printer.flush()
    return head


def _between(
    log: AnyLog, topic: str, after: int, end: int, *, match: str | None, not_node: tuple[str, ...]
) -> list[Record | Tombstone]:
    """Records and losses behind `after`, up to `end`."""
    found: list[Record | Tombstone] = []
    while after < end:
        limit = min(end - after, PAGE_RECORDS)
        page = log.read(topic, after=after, limit=limit, node=not_node, match=match)
        if page.tombstone is not None and page.tombstone.gap_from <= end:
            found.append(page.tombstone)
        found += [record for record in page.records if record.seq <= end]
        after = page.next_from_seq
        if page.caught_up:
            break
    return found


def _last(items: list[Record | Tombstone], *, too_many: int) -> list[Record | Tombstone]:
    """Without the first records that are too many, and what stands among those."""
    for index, item in enumerate(items):
        if too_many <= 0:
            return items[index:]
        too_many -= isinstance(item, Record)
    return []


def _print(log: AnyLog, printer: Lines, topic: str, item: Record | Tombstone) -> None:
    if isinstance(item, Record):
        printer.records(topic, [item])
    else:
        printer.tombstone(log, topic, item)


def _follow(
    log: AnyLog,
    topic: str,
    printer: Lines,
    after: int,
    *,
    match: str | None,
    not_node: tuple[str, ...],
    wait: float | None,
) -> None:
    for event in log.watch({topic: after}, node=not_node, match=match, wait=wait):
        item = item_of(event)
        if item is not None:
            _print(log, printer, topic, item)
        elif isinstance(event, Resumed):
            printer.event(event)
        printer.flush()
