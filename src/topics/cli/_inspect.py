"""`topics inspect`: what a directory holds, and what opening it would do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from topics.cli._facts import Facts, store_facts, topic_facts
from topics.engine.looking import find, steadily
from topics.errors import TopicNotFound
from topics.storage.fs import RealFs


def run(directory: str, topic: str | None, *, cold_dir: str | None, as_json: bool) -> int:
    """Print one topic, or everything."""
    found = steadily(directory, lambda: find(RealFs(), directory, cold_dir))
    if topic is not None and topic not in found.catalog.by_name:
        raise TopicNotFound(topic)
    facts = store_facts(found) if topic is None else topic_facts(found.catalog.by_name[topic])
    if as_json:
        print(json.dumps(facts, indent=2))
    elif topic is None:
        _print_store(facts)
    else:
        _print_topic(facts)
    return 0


def _print_store(facts: Facts) -> None:
    out = _console()
    out.print(f"store {facts['store_id']}, created {_moment(facts['created_ms'])}")
    if facts["last_owner"] is not None:
        owner = facts["last_owner"]
        out.print(f"last opened by process {owner['pid']} on {owner['host']}")
    out.print()
    if facts["topics"]:
        _print_table(
            out,
            ["topic", "class", "head", "earliest", "evict floor", "live", "bytes", "segments"],
            ([*_row(topic)] for topic in facts["topics"]),
        )
    else:
        out.print("no topics")
    out.print()
    _print_table(
        out,
        ["log group", "files", "shards", "to replay", "torn", "end"],
        (
            [
                group["group"],
                len(group["files"]),
                group["shards"],
                f"{group['bytes_to_replay']} B",
                f"{group['torn_bytes']} B",
                f"{group['end']['file']} at {group['end']['offset']}",
            ]
            for group in facts["log"]
        ),
    )
    out.print()
    _print_recovery(out, facts["recovery"])


def _row(topic: Facts) -> Iterable[object]:
    segments = str(topic["segments"])
    if topic["cold_segments"]:
        segments += f" ({topic['cold_segments']} cold)"
    return (
        topic["topic"],
        topic["durability"],
        topic["head_seq"],
        topic["earliest_seq"],
        topic["evict_floor"],
        topic["count"],
        topic["bytes"],
        segments,
    )


def _print_recovery(out: Console, facts: Facts) -> None:
    start = facts["snapshot"] or "the beginning of the log"
    out.print(f"Opening would start from {start} and replay {facts['bytes_to_replay']} bytes.")
    if facts["torn_bytes_to_cut"]:
        out.print(
            f"It would cut {facts['torn_bytes_to_cut']} torn bytes, which nobody was promised."
        )
    for skip in facts["seqs_to_skip"]:
        out.print(
            f"It would skip seqs {skip['from']} to {skip['to']} of {skip['topic']}: {skip['kind']}."
        )
    for index in facts["indexes_to_rebuild"]:
        out.print(f"It would rebuild the index {index}.")
    for warning in facts["warnings"]:
        out.print(f"warning: {warning}")


def _print_topic(facts: Facts) -> None:
    out = _console()
    for name in (
        "topic",
        "id",
        "durability",
        "head_seq",
        "earliest_seq",
        "evict_floor",
        "cap_floor",
        "ttl_floor",
        "delete_below",
        "count",
        "bytes",
        "log_records",
        "reserved",
        "idempotency_keys",
    ):
        out.print(f"{name:<18}{facts[name]}")
    out.print(f"{'config':<18}{json.dumps(facts['config'])}")
    ledger = ", ".join(f"{name} {count}" for name, count in facts["ledger"].items())
    out.print(f"{'ledger':<18}live {facts['count']}, {ledger}")
    for cursor, seq in facts["cursors"].items():
        out.print(f"{'cursor':<18}{cursor} at {seq}")
    for gap in facts["gaps"]:
        out.print(f"{'gap':<18}{gap['from']} to {gap['to']}, {gap['kind']}")
    out.print()
    _print_table(
        out,
        ["first", "last", "state", "tier", "data bytes", "idx bytes", "oldest", "newest"],
        (
            [
                segment["first"],
                segment["last"],
                segment["state"],
                segment["tier"],
                segment["data_bytes"],
                segment["idx_bytes"],
                _moment(segment["min_ts"]),
                _moment(segment["max_ts"]),
            ]
            for segment in facts["segment_list"]
        ),
    )


def _print_table(out: Console, headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    table = Table(box=SIMPLE, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < 1 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    out.print(table)


def _console() -> Console:
    """Plain text of any width unless a terminal shows it: lines must not break in a pipe."""
    width = None if sys.stdout.isatty() else 400
    return Console(width=width, highlight=False, markup=False, emoji=False)


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
