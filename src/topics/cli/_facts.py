"""What `topics inspect` tells, as plain values that print as JSON."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from topics.core.facts import SeqSkipped
from topics.core.topic import Topic
from topics.engine.reads.history import SegmentHistory
from topics.engine.recovery.recover import Found
from topics.storage import identity, layout
from topics.storage.fs import read_file
from topics.storage.segments.segment import COLD, ActiveSegment, Segment
from topics.storage.wal.scan import GroupScan

Facts = dict[str, Any]
_KINDS = {
    SeqSkipped.UNASSIGNED: "never handed out",
    SeqSkipped.POWER_LOSS: "lost in a power cut",
    SeqSkipped.REPAIR: "lost to damage",
    SeqSkipped.SOURCE_TRIM: "lost before it was routed",
}


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
            f"{layout.topic_name(topic_id)}/{layout.segment_name(first, 'idx')}"
            for topic_id, first in sorted(found.store.repairs)
        ],
        "next_generation": found.generation + 1,
        "warnings": list(found.warnings),
    }


def _owner(found: Found) -> Facts | None:
    """Who had it open last; whether that process still runs is not said here."""
    owner = None
    with suppress(OSError, EOFError):
        owner = identity.decode_lock(read_file(found.fs, f"{found.path}/{layout.LOCK}"))
    return None if owner is None else msgspec.structs.asdict(owner)
