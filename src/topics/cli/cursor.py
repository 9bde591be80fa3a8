"""`topics cursor`: the positions that consumers leave with the log."""

from __future__ import annotations

import click

from topics.cli import _output as out
from topics.cli._completing import complete_topic
from topics.cli._exit import NO, OK
from topics.cli._groups import CommandGroup
from topics.cli._options import Where, ask, on_a_log, topic_argument, yes_option
from topics.cli._types import SEQ
from topics.errors import NotFound
from topics.values import CursorState

_name = click.argument("name")


@click.group(cls=CommandGroup)
def cursor() -> None:
    """Look at and move the named cursors of consumers."""


@cursor.command("ls")
@click.argument("topic", required=False, shell_complete=complete_topic)
@on_a_log
def list_cursors(where: Where, *, topic: str | None, as_json: bool) -> int:
    """List the cursors of TOPIC, or of all topics. Shows how far each is behind."""
    with where.reading() as log:
        names = [topic] if topic is not None else [found.topic for found in log.topics()]
        found = [state for name in names for state in log.cursors(name)]
    headings = ["topic", "cursor", "seq", "head", "lag", "lag time", "gap", "moved"]
    out.print_list("cursors", found, headings, _row, as_json=as_json)
    return OK


@cursor.command("get")
@topic_argument
@_name
@on_a_log
def get_cursor(where: Where, *, topic: str, name: str, as_json: bool) -> int:
    """Show the cursor NAME of TOPIC. Tells how far it is behind, in records and in time."""
    with where.reading() as log:
        _show(log.cursor(topic, name), as_json=as_json)
    return OK


@cursor.command("set")
@topic_argument
@_name
@click.argument("seq", type=SEQ, required=False)
@click.option(
    "--head", "at_head", is_flag=True, help="Set it to the last seq: skip everything that is there."
)
@on_a_log
def set_cursor(
    where: Where, *, topic: str, name: str, seq: int | None, at_head: bool, as_json: bool
) -> int:
    """Set the cursor NAME of TOPIC to SEQ. That is the last seq it has consumed.

    It may also go backwards: the consumer then gets records again.
    """
    if (seq is None) != at_head:
        raise click.UsageError("give a seq or --head")
    with where.writing() as log:
        if seq is None:
            seq = log.state(topic, touch=False).head_seq
        _show(log.set_cursor(topic, name, seq), as_json=as_json)
    return OK


@cursor.command("rm")
@topic_argument
@_name
@yes_option
@on_a_log
def remove_cursor(where: Where, *, topic: str, name: str, yes: bool, as_json: bool) -> int:
    """Forget the cursor NAME of TOPIC."""
    with where.writing() as log:
        at = log.cursor(topic, name).seq
        if not ask(f"Forget that {name} has consumed {topic} up to seq {at}?", yes=yes):
            return NO
        if not log.drop_cursor(topic, name):
            raise NotFound(f'cursor "{name}" of topic "{topic}"')
    out.tell(
        {"topic": topic, "cursor": name, "deleted": True},
        f"forgot {name} of {topic}",
        as_json=as_json,
    )
    return OK


def _row(state: CursorState) -> list[object]:
    return [
        state.topic,
        state.cursor,
        state.seq,
        state.head_seq,
        state.lag_records,
        out.span(state.lag_seconds),
        "lost records" if state.gap_pending else "-",
        out.moment(state.updated_ts),
    ]


def _show(state: CursorState, *, as_json: bool) -> None:
    if as_json:
        out.print_json(state.to_dict())
        return
    out.print_facts(
        {
            "topic": state.topic,
            "cursor": state.cursor,
            "seq": state.seq,
            "head": state.head_seq,
            "lag": f"{out.counted(state.lag_records, 'record')}, {out.span(state.lag_seconds)}",
            "lag in seqs": state.lag_seqs,
            "gap ahead": state.gap_pending,
            "moved": out.moment(state.updated_ts),
        }
    )
