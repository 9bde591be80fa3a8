"""Knobs of the write-ahead log."""

import msgspec

MIB = 1 << 20


class WalSettings(msgspec.Struct, frozen=True):
    """How the log batches, syncs and allocates. Checked when built: a bad value stops the start."""

    disk_sync_ms: int = 10
    """How old written but un-synced bytes may get before a sync is due."""
    max_unsynced: int = 4 * MIB
    """How many such bytes may wait."""
    file_bytes: int = 64 * MIB
    """Where a log file is full. A single larger submission gets a file of its own."""
    prealloc_start: int = MIB
    """First allocation of a file; it doubles up to `file_bytes` as the file fills."""
    cache_bytes: int = 64 * MIB
    """Memory that mirrors the newest log bytes, shared out over the shards; 0 for none."""
    gc_min_ms: float = 0.5
    """Slice of the group window: one that brings nothing ends the window."""
    gc_max_ms: float = 10.0
    """Longest group window."""
    batch_submissions: int = 4096
    batch_bytes: int = 8 * MIB
    queue_submissions: int = 4096
    queue_bytes: int = 64 * MIB
    probe_ms: int = 1000
    """How often a full shard looks whether there is room again."""

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if value < 0 or (value == 0 and name not in {"cache_bytes", "disk_sync_ms"}):
                raise ValueError(f"{name} must be positive, got {value}")
        if self.file_bytes > 2**31:
            raise ValueError(f"file_bytes must be at most 2 GiB, got {self.file_bytes}")
