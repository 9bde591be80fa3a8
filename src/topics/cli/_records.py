"""Records and losses as lines, for people or for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from topics.cli import _output as out
from topics.errors import TopicsError
from topics.events import CaughtUp, Resumed, TopicDropped
from topics.values import Audit, Record, Tombstone
from topics.wire.rendering import EVERYTHING, render_records, rows_of

if TYPE_CHECKING:
    from topics.client.interface import AnyLog

_REASONS = {
    "cap": "by the topic's cap, a crash or damage",  # unless the ledger tells which
    "ttl": "its time to live",
    "mixed": "the topic's cap and time to live",
    "source_trim": "the source lost them before they were copied",
    "recreated": "the topic was dropped and made anew",
    "from_seq_too_old": "they were gone before the reader came",
}

_CAUSES = {
    "crash": "in a crash",
    "repair": "to damage on disk",
    "source_trim": "by the source, before they were copied",
}


class Lines:
    """Prints what a reader gets. `several` names the topic of each line."""

    def __init__(self, *, as_json: bool, several: bool = False) -> None:
        self._as_json = as_json
        self._several = several

    def records(self, topic: str, records: Sequence[Record]) -> None:
        """Some records, in order. JSON keeps stored bytes as they are, digit by digit."""
        if not records:
            return
        if self._as_json:
            # Everything goes through one buffer, or lines would change places with print's.
            lines = "".join(self._json_line(topic, record) for record in records)
            sys.stdout.write(out.stored_json(lines))
        else:
            sys.stdout.write("".join(self._line(topic, record) + "\n" for record in records))

    def tombstone(self, log: AnyLog, topic: str, lost: Tombstone) -> None:
        """A loss, where it happened."""
        if self._as_json:
            facts = {"topic": topic} if self._several else {}
            out.print_json_line({"tombstone": {**facts, **lost.to_dict()}})
        else:
            print(
                self._named(topic)
                + out.style(tombstone_line(lost, why(log, topic, lost)), "bold", "red")
            )

    def event(self, event: CaughtUp | TopicDropped | Resumed) -> None:
        """What happened to the reading itself, or to the topic."""
        if self._as_json:
            out.print_json_line(event.to_dict())
        elif isinstance(event, TopicDropped):
            print(out.style(f"--- {out.safe(event.topic)} was dropped ---", "bold"))
        elif isinstance(event, Resumed):
            away = f"connection lost for {out.span(event.away_seconds)} ({out.safe(event.reason)})"
            print(out.style(f"--- {away}; going on, nothing was skipped ---", "bold"))

    def flush(self) -> None:
        sys.stdout.flush()

    def _json_line(self, topic: str, record: Record) -> str:
        line = render_records(rows_of([record]), EVERYTHING)[1:-1].decode()
        if not self._several:
            return f"{line}\n"
        return f'{{"topic":{msgspec.json.encode(topic).decode()},{line[1:]}\n'

    def _line(self, topic: str, record: Record) -> str:
        facts = [f"{record.seq:>6}", out.style(out.moment(record.ts), "dim")]
        if record.tag is not None:
            facts.append(out.style(f"[{out.safe(record.tag)}]", "yellow"))
        if record.node is not None:
            facts.append(out.style(f"<{out.safe(record.node)}>", "dim"))
        facts.append(out.safe(record.raw.decode()))
        if record.raw_meta is not None:
            facts.append(out.style(f"meta {out.safe(record.raw_meta.decode())}", "dim"))
        return self._named(topic) + "  ".join(facts)

    def _named(self, topic: str) -> str:
        return f"{out.safe(topic)}  " if self._several else ""


def tombstone_line(lost: Tombstone, reason: str) -> str:
    """A loss as a line that is hard to overlook."""
    if lost.reason == "recreated":
        return f"!!! LOST: {reason}; reading starts again at seq {lost.earliest_seq} !!!"
    records = out.counted(lost.missed_estimate, "record")
    return f"!!! LOST {records}: {out.seqs(lost.gap_from, lost.gap_to)}, {reason} !!!"


def why(log: AnyLog, topic: str, lost: Tombstone) -> str:
    """What caused a loss.

    A notice says `cap` for a cap, a crash and damage alike; the ledger of the topic tells them
    apart. If the ledger cannot be had, all three are named.
    """
    if lost.reason == "cap":
        with suppress(TopicsError):
            return cause_of_cap(lost, log.audit(topic))
    return _REASONS.get(lost.reason) or out.safe(lost.reason)


def cause_of_cap(lost: Tombstone, ledger: Audit) -> str:
    """What a ledger tells of a loss whose notice says `cap`."""
    gaps = [
        gap for gap in ledger.gaps if gap.gap_from <= lost.gap_to and lost.gap_from <= gap.gap_to
    ]
    explained = sum(
        min(gap.gap_to, lost.gap_to) - max(gap.gap_from, lost.gap_from) + 1 for gap in gaps
    )
    causes = [_CAUSES[gap.cause] for gap in gaps]
    if explained < lost.missed_estimate:
        # What an ephemeral topic loses in a restart is counted as lost in a crash, without a gap.
        causes.insert(0, "by the topic's cap" if ledger.lost_cap else "in a restart")
    return " and ".join(dict.fromkeys(causes))
