"""`topics inspect`: what a directory holds, and what opening it would do.

Facts are plain values that print as JSON; people get them as tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from topics.cli import _output as out
from topics.core.facts import SeqSkipped
from topics.core.topic import Topic
from topics.engine.reads.history import SegmentHistory
from topics.engine.recovery.read_only import find, steadily
from topics.engine.recovery.recover import Found
from topics.errors import TopicNotFound
from topics.storage import identity, layout
from topics.storage.fs import RealFs, read_file
from topics.storage.segments.segment import COLD, ActiveSegment, Segment
from topics.storage.wal.scan import GroupScan

Facts = dict[str, Any]
_KINDS = {
    SeqSkipped.UNASSIGNED: "never handed out",
    SeqSkipped.POWER_LOSS: "lost in a power cut",
    SeqSkipped.REPAIR: "lost to damage",
    SeqSkipped.SOURCE_TRIM: "lost before it was routed",
}
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
        print(f"It would cut {facts['torn_bytes_to_cut']} torn bytes, which no ack covers.")
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


# Facts


def store_facts(found: Found) -> Facts:
    """Everything about a directory."""
    return {
        "directory": found.path,
        "store_id": found.format.store_id,
        "created_ms": found.format.created_ms,
        "versions": {
            name: getattr(found.format, name) for name in ("store", "wal", "segment", "snapshot")
        },
        "last_owner": _owner(found),
        "topics": [topic_line(topic) for topic in by_name(found)],
        "routers": sorted(found.catalog.routers.by_name),
        "log": [_group(scan) for scan in found.scans],
        "recovery": recovery_facts(found),
    }


def by_name(found: Found) -> list[Topic]:
    return [found.catalog.by_name[name] for name in sorted(found.catalog.by_name)]


def topic_line(topic: Topic) -> Facts:
    """A topic in a list of many."""
    sealed = _segments(topic)
    return {
        "topic": topic.name,
        "id": topic.id,
        "type": topic.config.type,
        "durability": topic.config.durability,
        "head_seq": topic.head,
        "earliest_seq": topic.earliest,
        "evict_floor": topic.evict_floor,
        "count": topic.count,
        "bytes": topic.bytes,
        "segments": len(sealed),
        "cold_segments": sum(isinstance(s, Segment) and s.tier == COLD for s in sealed),
        "segment_bytes": sum(s.data_len + s.idx_len for s in sealed),
        "log_records": len(topic.tail),
    }


def topic_facts(topic: Topic) -> Facts:
    """Everything about one topic but its records."""
    return topic_line(topic) | {
        "epoch": topic.epoch,
        "config": topic.config.to_dict(),
        "cap_floor": topic.cap_hi + 1,
        "ttl_floor": topic.ttl_hi + 1,
        "delete_below": topic.delete_below,
        "delete_version": topic.delete_version,
        "reserved": topic.reserved,
        "last_ts": topic.last_ts,
        "ledger": msgspec.structs.asdict(topic.ledger),
        "gaps": [{"from": lo, "to": hi, "kind": _KINDS[kind]} for lo, hi, kind in topic.runs],
        "deleted_runs": len(topic.deleted),
        "cursors": {name: seq for name, (seq, _) in sorted(topic.cursors.items())},
        "idempotency_keys": sum(1 for _ in topic.keys.items()),
        "segment_list": [_segment(segment) for segment in _segments(topic)],
    }


def _segments(topic: Topic) -> list[Segment | ActiveSegment]:
    history = topic.history
    assert isinstance(history, SegmentHistory)
    return [part for part in history.parts if isinstance(part, Segment | ActiveSegment)]


def _segment(segment: Segment | ActiveSegment) -> Facts:
    is_sealed = isinstance(segment, Segment)
    return {
        "first": segment.first,
        "last": segment.last,
        "data_bytes": segment.data_len,
        "idx_bytes": segment.idx_len,
        "state": "sealed" if is_sealed else "growing",
        "tier": "cold" if isinstance(segment, Segment) and segment.tier == COLD else "hot",
        "min_ts": segment.min_ts,
        "max_ts": segment.max_ts,
    }


def _group(scan: GroupScan) -> Facts:
    group = scan.group
    return {
        "group": scan.key or "wal",
        "files": [layout.wal_name(lfn) for lfn in group.first_lfns],
        "generations": [part.generation for part in scan.generations],
        "shards": scan.generations[-1].shards if scan.generations else 0,
        "frames_to_replay": sum(part.frames for part in scan.generations),
        "bytes_to_replay": scan.bytes_scanned,
        "end": {"file": layout.wal_name(scan.end.file_lfn), "offset": scan.end.offset},
        "last_frame": scan.end.lfn,
        "torn_bytes": scan.torn_bytes,
        "orphan_frames": scan.orphans,
        "closed_cleanly": bool(scan.generations) and scan.generations[-1].closed is not None,
    }


def recovery_facts(found: Found) -> Facts:
    """What opening the directory for writing would do."""
    snapshot = found.snapshot
    return {
        "snapshot": None if snapshot is None else layout.snapshot_name(snapshot.head.id),
        "bad_snapshots": [path.rsplit("/", 1)[-1] for path in found.bad_snapshots],
        "bytes_to_replay": found.bytes_replayed,
        "torn_bytes_to_cut": found.torn_bytes,
        "seqs_to_skip": [
            {
                "topic": found.catalog.by_id[fact.topic_id].name,
                "from": fact.lo,
                "to": fact.hi,
                "kind": _KINDS[fact.kind],
            }
            for fact in found.owed
            if isinstance(fact, SeqSkipped)
        ],
        "indexes_to_rebuild": [
            "/".join(found.store.files(*key).idx.rsplit("/", 2)[1:])
            for key in sorted(found.store.repairs)
        ],
        "next_generation": found.generation + 1,
        "warnings": list(found.warnings),
    }


def _owner(found: Found) -> Facts | None:
    """The last owner of the directory; whether that process still runs is not checked."""
    owner = None
    with suppress(OSError, EOFError):
        owner = identity.decode_lock(read_file(found.fs, f"{found.path}/{layout.LOCK}"))
    return None if owner is None else msgspec.structs.asdict(owner)
