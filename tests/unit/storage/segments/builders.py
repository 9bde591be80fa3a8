"""Segments for tests: frames as the log has them, written the way a checkpoint does it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from topics.batch import RecordBatch
from topics.storage.frames.append import encode_append
from topics.storage.fs import Fs
from topics.storage.handles import Handles
from topics.storage.segments.segment import ActiveSegment, AnySegment, Segment, SegmentSettings
from topics.storage.segments.store import SegmentStore, finish
from topics.storage.segments.writer import Slice, Written, append_records, sync_written

TOPIC = 10
NOW = 1_700_000_000_000
DATA_DIR = "/data"
COLD_DIR = "/cold"
SETTINGS = SegmentSettings()


def make_store(fs: Fs, *, cold: bool = False) -> SegmentStore:
    """A store on a disk whose directories exist, as after the store was made."""
    for root in (DATA_DIR, COLD_DIR) if cold else (DATA_DIR,):
        for created in fs.mkdirs(f"{root}/topics"):
            fs.sync_dir(created.rsplit("/", 1)[0] or "/")
    return SegmentStore(fs, Handles(fs), DATA_DIR, COLD_DIR if cold else None)


def records(
    first: int,
    count: int,
    *,
    ts: int = NOW,
    tags: Sequence[str | None] | None = None,
    dead: Collection[int] = (),
    topic_id: int = TOPIC,
) -> Slice:
    """Captured records `first ..`, each a write of its own that says its seq.

    `dead` ones are already holes.
    """
    writes = [
        encode_append(
            topic_id,
            first + i,
            ts,
            RecordBatch(
                [f'{{"n":{first + i}}}'.encode()], tags=None if tags is None else [tags[i]]
            ),
            durable=True,
        )
        for i in range(count)
    ]
    return Slice(
        first,
        [b"" if first + i in dead else frame for i, (frame, _) in enumerate(writes)],
        [ts] * count,
        [fact.name_lengths[0] for _, fact in writes],
        [fact.flags[0] for _, fact in writes],
    )


def write(
    store: SegmentStore,
    active: ActiveSegment | None,
    *slices: Slice,
    settings: SegmentSettings = SETTINGS,
    now_ms: int = NOW,
    topic_id: int = TOPIC,
) -> Written:
    """Append and make durable."""
    written = finish(
        append_records(store, topic_id, active, slices, settings=settings, now_ms=now_ms)
    )
    finish(sync_written(store, [written]))
    return written


def write_active(store: SegmentStore, *slices: Slice) -> ActiveSegment:
    """A new active segment."""
    active = write(store, None, *slices).active
    assert active is not None
    return active


def write_sealed(store: SegmentStore, *slices: Slice, topic_id: int = TOPIC) -> Segment:
    """A new sealed segment."""
    count = sum(len(piece.frames) for piece in slices)
    settings = msgspec.structs.replace(SETTINGS, max_records=count)
    (segment,) = write(store, None, *slices, settings=settings, topic_id=topic_id).sealed
    return segment


def all_frames(store: SegmentStore, seg: AnySegment) -> list[bytes | None]:
    return store.frames(TOPIC, seg, 0, seg.count)
