"""Putting segment files right, for a caller that may write.

The store serves from what it could derive; here the derived bytes replace the bad ones. Every
step may be repeated, and a crash between any two leaves files the store can serve again.
"""

from collections.abc import Generator

from topics.storage import layout
from topics.storage.fs import parent_of, read_file, replace_file
from topics.storage.segments.segment import AnySegment
from topics.storage.segments.store import SegmentStore


def repair_idx(store: SegmentStore, topic_id: int, seg: AnySegment, *, now_ms: int) -> None:
    """Replace an `.idx` found bad by the one rebuilt from `.data`; a copy goes to quarantine."""
    idx = store.idx(topic_id, seg)
    path = store.files(topic_id, seg.label, store.tier_of(topic_id, seg)).idx
    _quarantine(store, topic_id, path, now_ms=now_ms)
    replace_file(store.fs, path, idx.raw)
    store.handles.forget(path)
    store.repairs.pop((topic_id, seg.label), None)


def repair_all(store: SegmentStore, *, now_ms: int) -> Generator[None, None, int]:
    """Repair every `.idx` found bad so far, yielding after each; return how many."""
    wanted = list(store.repairs.items())
    for (topic_id, _), seg in wanted:
        repair_idx(store, topic_id, seg, now_ms=now_ms)
        yield
    return len(wanted)


def trim(store: SegmentStore, topic_id: int, seg: AnySegment) -> bool:
    """Cut files that are longer than registered and make the cut durable; whether any was."""
    cut = False
    for tier in store.tiers:
        files = store.files(topic_id, seg.label, tier)
        for path, length in (files.data, seg.data_len), (files.idx, seg.idx_len):
            if store.fs.exists(path) and store.fs.size(path) > length:
                file = store.fs.open(path, write=True)
                try:
                    file.truncate(length)
                    file.fsync()
                finally:
                    file.close()
                cut = True
    return cut


def _quarantine(store: SegmentStore, topic_id: int, path: str, *, now_ms: int) -> None:
    """Keep a copy for the operator; a copy, since a rename cannot leave the cold file system."""
    if store.fs.exists(path):
        name = f"{layout.topic_name(topic_id)}-{path.rsplit('/', 1)[-1]}"
        _keep(store, layout.quarantine_name(name, now_ms=now_ms), read_file(store.fs, path))


def put_aside(store: SegmentStore, topic_id: int, seq: int, frame: bytes, *, ts: int) -> None:
    """Keep what is left of a rotten record for the operator, under its own time: once, however
    often it is found."""
    name = f"{layout.topic_name(topic_id)}-{seq}.frame"
    _keep(store, layout.quarantine_name(name, now_ms=ts), frame)


def _keep(store: SegmentStore, name: str, data: bytes) -> None:
    directory = f"{store.data_dir}/{layout.QUARANTINE}"
    for created in store.fs.mkdirs(directory):
        store.fs.sync_dir(parent_of(created))
    replace_file(store.fs, f"{directory}/{name}", data)
