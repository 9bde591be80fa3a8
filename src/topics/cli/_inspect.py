"""`topics inspect`: what a directory holds, and what opening it would do."""

from __future__ import annotations

import json
from collections.abc import Sequence

from topics.cli import _output as out
from topics.cli._facts import Facts, store_facts, topic_facts
from topics.engine.recovery.looking import find, steadily
from topics.errors import TopicNotFound
from topics.storage.fs import RealFs

_SHOWN = (
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
)


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
    print(f"store {facts['store_id']}, created {out.moment(facts['created_ms'])}")
    if facts["last_owner"] is not None:
        owner = facts["last_owner"]
        print(f"last opened by process {owner['pid']} on {out.safe(owner['host'])}")
    print()
    if facts["topics"]:
        out.print_table(
            ["topic", "class", "head", "earliest", "evict floor", "live", "size", "segments"],
            [_row(topic) for topic in facts["topics"]],
        )
    else:
        print("no topics")
    print()
    out.print_table(
        ["log group", "files", "shards", "to replay", "torn", "end"],
        [
            (
                group["group"],
                len(group["files"]),
                group["shards"],
                out.size(group["bytes_to_replay"]),
                out.size(group["torn_bytes"]),
                f"{group['end']['file']} at {group['end']['offset']}",
            )
            for group in facts["log"]
        ],
    )
    print()
    print_recovery(facts["recovery"])


def _row(topic: Facts) -> Sequence[object]:
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
        out.size(topic["bytes"]),
        segments,
    )


def print_recovery(facts: Facts) -> None:
    """What the next open would do."""
    start = facts["snapshot"] or "the beginning of the log"
    print(f"Opening would start from {start} and replay {out.size(facts['bytes_to_replay'])}.")
    if facts["torn_bytes_to_cut"]:
        print(f"It would cut {facts['torn_bytes_to_cut']} torn bytes, which nobody was promised.")
    for skip in facts["seqs_to_skip"]:
        skipped = out.seqs(skip["from"], skip["to"])
        print(f"It would skip {skipped} of {skip['topic']}: {skip['kind']}.")
    for index in facts["indexes_to_rebuild"]:
        print(f"It would rebuild the index {index}.")
    for warning in facts["warnings"]:
        print(f"warning: {out.safe(warning)}")


def _print_topic(facts: Facts) -> None:
    ledger = ", ".join(f"{name} {count}" for name, count in facts["ledger"].items())
    out.print_facts(
        {name: facts[name] for name in _SHOWN}
        | {"config": json.dumps(facts["config"]), "ledger": f"live {facts['count']}, {ledger}"}
    )
    for cursor, seq in facts["cursors"].items():
        print(f"{'cursor':<18}{out.safe(cursor)} at {seq}")
    for gap in facts["gaps"]:
        print(f"{'gap':<18}{out.seqs(gap['from'], gap['to'])}, {gap['kind']}")
    print()
    out.print_table(
        ["first", "last", "state", "tier", "data bytes", "idx bytes", "oldest", "newest"],
        [
            (
                segment["first"],
                segment["last"],
                segment["state"],
                segment["tier"],
                segment["data_bytes"],
                segment["idx_bytes"],
                out.moment(segment["min_ts"]),
                out.moment(segment["max_ts"]),
            )
            for segment in facts["segment_list"]
        ],
    )
