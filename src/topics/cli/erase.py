"""`topics erase` and `topics erasures`: deletes whose bytes go, too, and their receipts."""

from __future__ import annotations

import sys
import time

import click

from topics.cli import _output as out
from topics.cli._exit import NO, OK
from topics.cli._options import Where, ask, on_a_log, topic_argument, yes_option
from topics.cli._types import SEQ
from topics.client.interface import AnyLog
from topics.errors import NotFound
from topics.values import ErasureState

LOOK_S = 0.2


@click.command()
@topic_argument
@click.option("--before-seq", "before", type=SEQ, help="Records with a seq below this one.")
@click.option(
    "--match", metavar="TAG", help="Records with this tag; a tag that ends in * is a prefix."
)
@click.option("--wait", is_flag=True, help="Wait for the receipt, and show how far it is.")
@yes_option
@on_a_log
def erase(
    where: Where,
    *,
    topic: str,
    before: int | None,
    match: str | None,
    wait: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete records of TOPIC and remove their bytes from every file of the log.

    Every earlier delete of TOPIC becomes physical, too. A server goes on after the command ends,
    and after a restart; `topics erasures TOPIC` shows how far it is, and the receipt. Exits with 1
    if the search at the end found erased bytes somewhere.
    """
    if before is None and match is None:
        raise click.UsageError("say which records: --before-seq SEQ, --match TAG, or both")
    with where.writing() as log:
        state = log.state(topic, touch=False)
        question = f"Erase {_which(before, match)} from the {state.count} in {topic}?"
        if not ask(f"{question} This cannot be undone.", yes=yes):
            return NO
        found = log.erase(topic, before_seq=before, match=match)
        if wait:
            found = _wait(log, found)
    if as_json:
        out.print_json(found.to_dict())
    else:
        print(_sentence(found))
    return OK if _is_clean(found) else NO


@click.command()
@topic_argument
@click.argument("erasure", type=click.IntRange(min=1), required=False)
@on_a_log
def erasures(where: Where, *, topic: str, erasure: int | None, as_json: bool) -> int:
    """List the erasures of TOPIC, or show the receipt of the one with the number ERASURE.

    The receipts are a chain: a receipt that was changed or taken away makes this command fail.
    """
    with where.reading() as log:
        found = log.erasures(topic)
    if erasure is None:
        headings = ["erasure", "state", "phase", "deleted", "segments", "begun", "ended", "found"]
        out.print_list("erasures", found, headings, _row, as_json=as_json)
        return OK
    for state in found:
        if state.erasure == erasure:
            out.print_json(state.receipt or state.to_dict())
            return OK
    raise NotFound(f'erasure {erasure} of topic "{topic}"')


def _wait(log: AnyLog, found: ErasureState) -> ErasureState:
    told = ""
    while found.state != "done":
        words = f"{found.phase}, {found.segments_done} of {found.segments} segments"
        if words != told:
            print(words, file=sys.stderr, flush=True)
            told = words
        time.sleep(LOOK_S)
        states = {state.erasure: state for state in log.erasures(found.topic)}
        found = states.get(found.erasure, found)
    return found


def _sentence(found: ErasureState) -> str:
    words = (
        f"erasure {found.erasure}: deleted {out.counted(found.deleted, 'record')} of {found.topic}"
    )
    if found.receipt is None:
        return f"{words}; `topics erasures {found.topic}` shows when the bytes are gone"
    scan = found.receipt["scan"]
    words += f", rewrote {out.counted(len(found.receipt['rewritten']), 'segment')}"
    if scan["found"]:
        return f"{words}; their bytes are still in {', '.join(scan['found'])}"
    return f"{words}; none of {out.counted(scan['probes'], 'probe')} is left in any file"


def _is_clean(found: ErasureState) -> bool:
    return found.receipt is None or not found.receipt["scan"]["found"]


def _which(before: int | None, match: str | None) -> str:
    words = "records"
    if before is not None:
        words += f" below seq {before}"
    if match is not None:
        words += f" with a tag like {match}" if match.endswith("*") else f" with tag {match}"
    return words


def _row(state: ErasureState) -> list[object]:
    scan = state.receipt["scan"] if state.receipt is not None else None
    return [
        state.erasure,
        state.state,
        state.phase,
        state.deleted,
        f"{state.segments_done}/{state.segments}",
        out.moment(state.begun_ms),
        "-" if state.ended_ms is None else out.moment(state.ended_ms),
        "-" if scan is None else len(scan["found"]),
    ]
