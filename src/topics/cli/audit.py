"""`topics audit`: the ledger, where every seq of a topic went."""

from __future__ import annotations

import click

from topics.cli import _output as out
from topics.cli._completing import complete_topic
from topics.cli._exit import NO, OK
from topics.cli._options import Where, on_a_log
from topics.values import Audit

_HEADINGS = [
    "topic",
    "written",
    "live",
    "deleted",
    "lost cap",
    "lost ttl",
    "lost crash",
    "skipped",
    "source trim",
    "adds up",
]


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.option("--strict", is_flag=True, help="Exit with 1 for losses in a crash, too.")
@on_a_log
def audit(where: Where, *, topic: str | None, strict: bool, as_json: bool) -> int:
    """Show the ledger of TOPIC, or of all topics: where every seq went.

    Exits with 1 when it does not add up; written is live + deleted + lost. Gaps inside a topic
    follow below the table.
    """
    with where.reading() as log:
        names = [topic] if topic is not None else [found.topic for found in log.topics()]
        ledgers = [log.audit(name) for name in names]
    if as_json:
        out.print_json({"ledgers": [{**a.to_dict(), "adds_up": a.adds_up} for a in ledgers]})
    elif ledgers:
        _print(ledgers)
    else:
        click.echo("no topics", err=True)
    return OK if all(_is_good(ledger, strict=strict) for ledger in ledgers) else NO


def _is_good(ledger: Audit, *, strict: bool) -> bool:
    return ledger.adds_up and not (strict and ledger.lost_crash)


def _print(ledgers: list[Audit]) -> None:
    out.print_table(
        _HEADINGS,
        (
            [
                a.topic,
                a.written,
                a.live,
                a.deleted,
                a.lost_cap,
                a.lost_ttl,
                a.lost_crash,
                a.skipped,
                a.source_trim,
                "yes" if a.adds_up else "NO",
            ]
            for a in ledgers
        ),
    )
    gaps = [[a.topic, g.gap_from, g.gap_to, g.cause] for a in ledgers for g in a.gaps]
    if gaps:
        print()
        out.print_table(["topic", "gap from", "gap to", "cause"], gaps)
