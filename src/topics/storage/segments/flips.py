"""Marking deleted records on disk: one byte in `.data`, one in `.idx`.

A delete is durable in the log long before; the bytes let its frame leave the log. All bytes of
`.data` are durable before the first one of `.idx` is written, so an `.idx` rebuilt from `.data`
never forgets a delete. A one-byte write is old or new, never in between, and the byte lies outside
the frame and its checksum: a crash anywhere leaves every record readable and the flip to be done
again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from topics.storage.crashpoints import crashpoint
from topics.storage.fs import File, write_all
from topics.storage.segments import codec
from topics.storage.segments.repair import repair_idx
from topics.storage.segments.segment import COLD, HOT, ActiveSegment, AnySegment
from topics.storage.segments.store import SegmentStore

STEP = 256
"""Bytes written between two yields."""

_MARK = bytes((codec.DEAD,))


def flip(
    store: SegmentStore, topic_id: int, seg: AnySegment, seqs: Sequence[int], *, now_ms: int
) -> Generator[None, None, None]:
    """Mark records of one segment as deleted, durably, in every complete copy of it.

    Every byte is written, also where the index says that it was before: after a failed sync the
    page in memory tells nothing of the disk. On an error the caller calls again with the same
    seqs.
    """
    idx = store.idx(topic_id, seg)
    if (topic_id, seg.label) in store.repairs:
        repair_idx(store, topic_id, seg, now_ms=now_ms)
    positions = [seq - seg.first for seq in seqs if not idx.is_hole(seq - seg.first)]
    if not positions:
        return
    flags = [idx.offset(i) + idx.length(i) for i in positions]
    mirrors = [i * codec.ENTRY_SIZE + codec.DEAD_AT for i in positions]
    try:
        for tier in _complete_tiers(store, topic_id, seg):
            files = store.files(topic_id, seg.label, tier)
            yield from _mark(store, files.data, flags, "del.data_byte")
            crashpoint("del.data_sync")
            yield from _mark(store, files.idx, mirrors, "del.idx_byte")
    except OSError:
        if isinstance(seg, ActiveSegment):
            # The failed sync may have been that of records appended but not yet recorded.
            store.distrusted.add((topic_id, seg.first))
        raise
    store.mark_dead(topic_id, seg, positions)


def _complete_tiers(store: SegmentStore, topic_id: int, seg: AnySegment) -> list[int]:
    copies = store.check(topic_id, seg)
    tiers = [tier for tier, state in ((HOT, copies.hot), (COLD, copies.cold)) if state.complete]
    return tiers or [store.tier_of(topic_id, seg)]


def _mark(
    store: SegmentStore, path: str, offsets: list[int], point: str
) -> Generator[None, None, None]:
    """Write the mark at each offset and sync once."""
    file = store.handles.retrying(lambda: store.fs.open(path, write=True))
    try:
        yield from _write_marks(file, offsets, point)
        file.fdatasync()
    finally:
        file.close()
    yield


def _write_marks(file: File, offsets: list[int], point: str) -> Generator[None, None, None]:
    for i, offset in enumerate(offsets, 1):
        write_all(file, _MARK, offset)
        crashpoint(point)
        if i % STEP == 0:
            yield
