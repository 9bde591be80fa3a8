"""Settings of the engine, each with its default and its range.

A value outside its range stops the start with its name, the value and what is allowed; it is never
replaced by a guess.
"""

from __future__ import annotations

import os
from typing import Literal, TypedDict

import msgspec

from topics.errors import InvalidRequest

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

RANGES: dict[str, tuple[int, int]] = {
    "wal_shards": (0, 64),
    "segment_max_events": (1, 1 << 32),
    "segment_max_bytes": (1, 2 * GIB),
    "segment_max_age_ms": (0, 1 << 62),
    "hot_retain_segments": (0, 1 << 32),
    "hot_retain_bytes": (0, 1 << 62),
    "disk_sync_ms": (0, 60_000),
    "max_topics": (0, 1 << 62),
    "max_routers": (0, 1 << 62),
    "max_total_bytes": (0, 1 << 62),
    "max_idempotency_keys": (1, 1 << 32),
    "max_batch_records": (1, 100_000),
    "max_record_bytes": (1, 8 * MIB),
    "max_meta_bytes": (1, MIB),
    "max_tag_bytes": (1, 4096),
    "max_node_bytes": (1, 4096),
    "max_limit": (1, 10_000),
    "stage_ttl_ms": (1, 1 << 62),
    "stage_lease_ms": (1, 1 << 62),
    "max_stage_bytes": (0, 1 << 62),
    "max_stages": (0, 1 << 62),
    "max_stage_apps": (0, 1 << 62),
    "stage_app_ttl_ms": (1, 1 << 62),
    "cache_bytes": (64 * KIB, 1 << 40),
    "checkpoint_bytes": (64 * KIB, 1 << 40),
    "checkpoint_ms": (1, 1 << 40),
    "stop_checkpoint_ms": (0, 3_600_000),
}


class EngineSettings(msgspec.Struct, frozen=True):
    """How one engine runs. `wal_shards=0` lets the engine choose."""

    cold_dir: str | None = None
    wal_shards: int = 0
    segment_max_events: int = 10_000
    segment_max_bytes: int = 64 * MIB
    segment_max_age_ms: int = 3_600_000
    hot_retain_segments: int = 4
    hot_retain_bytes: int = 0
    disk_sync_ms: int = 10
    wal_repair: str | None = None  # "salvage": accept loss, announced, instead of refusing
    unsafe_no_dir_fsync: bool = False
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_total_bytes: int = 0
    max_idempotency_keys: int = 262_144
    max_batch_records: int = 10_000
    max_record_bytes: int = MIB
    max_meta_bytes: int = 16 * KIB
    max_tag_bytes: int = 256
    max_node_bytes: int = 128
    max_limit: int = 1000
    stage_ttl_ms: int = 3_600_000
    stage_lease_ms: int = 600_000
    max_stage_bytes: int = GIB
    max_stages: int = 100_000
    max_stage_apps: int = 262_144
    stage_app_ttl_ms: int = 2_592_000_000
    cache_bytes: int = 64 * MIB
    checkpoint_bytes: int = 64 * MIB
    checkpoint_ms: int = 60_000
    stop_checkpoint_ms: int = 15_000  # what a stop has for its last checkpoint

    def __post_init__(self) -> None:
        for name, (lowest, highest) in RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidRequest(f"{name} must be an integer, got {value!r}")
            if not lowest <= value <= highest:
                raise InvalidRequest(f"{name} must be {lowest} to {highest}, got {value}")
        if self.wal_repair not in (None, "salvage"):
            raise InvalidRequest(f"wal_repair must be 'salvage' or None, got {self.wal_repair!r}")


SETTING_NAMES = frozenset(EngineSettings.__struct_fields__)


class EngineKeywords(TypedDict, total=False):
    """The same settings as keywords of a call; a type checker cannot read them off the struct."""

    cold_dir: str | os.PathLike[str] | None
    wal_shards: int
    segment_max_events: int
    segment_max_bytes: int
    segment_max_age_ms: int
    hot_retain_segments: int
    hot_retain_bytes: int
    disk_sync_ms: int
    wal_repair: Literal["salvage"] | None
    unsafe_no_dir_fsync: bool
    max_topics: int
    max_routers: int
    max_total_bytes: int
    max_idempotency_keys: int
    max_batch_records: int
    max_record_bytes: int
    max_meta_bytes: int
    max_tag_bytes: int
    max_node_bytes: int
    max_limit: int
    stage_ttl_ms: int
    stage_lease_ms: int
    max_stage_bytes: int
    max_stage_apps: int
    max_stages: int
    stage_app_ttl_ms: int
    cache_bytes: int
    checkpoint_bytes: int
    checkpoint_ms: int
    stop_checkpoint_ms: int
