"""`topics delete`: remove records for good."""

from __future__ import annotations

import click

from topics.cli import _output as out
from topics.cli._exit import NO, OK
from topics.cli._options import Where, ask, on_a_log, topic_argument, yes_option
from topics.cli._types import SEQ, seqs_option

LAKE_CURSORS = "lake."


@click.command()
@topic_argument
@click.option("--before", type=SEQ, help="Records with a seq below this one.")
@click.option(
    "--match", metavar="TAG", help="Records with this tag; a tag that ends in * is a prefix."
)
@seqs_option(help="Exactly these records, at most 1000.")
@yes_option
@on_a_log
def delete(
    where: Where,
    *,
    topic: str,
    before: int | None,
    match: str | None,
    seqs: list[int] | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete records of TOPIC by seq, by tag, or by several of these at once.

    The records are gone at once and for good, and readers are not told. Records that are
    appended later are not deleted.
    """
    if before is None and match is None and seqs is None:
        raise click.UsageError("say which records: --before SEQ, --match TAG or --seqs SEQ,...")
    with where.writing() as log:
        state = log.state(topic, touch=False)
        lakes = [c.cursor for c in log.cursors(topic) if c.cursor.startswith(LAKE_CURSORS)]
        if lakes:
            click.echo(_lake_hint(topic, lakes), err=True)
        question = f"Delete {_which(before, match, seqs)} from the {state.count} in {topic}?"
        if not ask(f"{question} This cannot be undone.", yes=yes):
            return NO
        gone = log.delete(topic, before_seq=before, match=match, seqs=seqs)
    words = f"deleted {out.counted(gone.deleted, 'record')} of {topic}, "
    words += f"{gone.count} {'is' if gone.count == 1 else 'are'} left"
    out.tell({**gone.to_dict(), "lake_cursors": lakes}, words, as_json=as_json)
    return OK


def _which(before: int | None, match: str | None, seqs: list[int] | None) -> str:
    parts = ["records" if seqs is None else out.counted(len(set(seqs)), "named record")]
    if before is not None:
        parts.append(f"below seq {before}")
    if match is not None:
        parts.append(f"with a tag like {match}" if match.endswith("*") else f"with tag {match}")
    return " ".join(parts)


def _lake_hint(topic: str, cursors: list[str]) -> str:
    return (
        f"{topic} is copied to a lake ({', '.join(cursors)}). This delete reaches the table with "
        "its next sync, but not the rows of records that the topic itself has let go before; "
        "`topics lake delete TABLE --match TAG` removes those, too"
    )
