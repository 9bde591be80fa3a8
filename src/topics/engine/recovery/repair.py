"""Step 8 of a recovery: files are put right, so that a new generation of log files may follow.

Torn tails are cut, damaged files kept aside, broken copies of segments replaced. Then what earlier
runs left lying about is cleared away. Temporary files were never part of anything and go.
Directories of dropped topics get the name under which a checkpoint removes them, in case the run
that dropped them did not come to that. Files that no rule explains are moved to the quarantine,
never deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from topics.engine.clock import Clock
from topics.engine.reads.history import segments_of
from topics.engine.recovery.recover import Found
from topics.engine.settings import EngineSettings
from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.erasures import ErasureLedger
from topics.storage.fs import TMP_SUFFIX, Fs, parent_of
from topics.storage.segments.drop import drop_unreferenced
from topics.storage.segments.repair import repair_all, trim
from topics.storage.segments.segment import ActiveSegment, Segment
from topics.storage.segments.store import CopyState, SegmentStore, finish
from topics.storage.wal.repair import apply_repair, quarantine


def repair(found: Found, settings: EngineSettings, clock: Clock) -> None:
    """Step 8: put files right so that a new generation may follow."""
    now_ms = clock.now_ms()
    aside = f"{found.path}/{layout.QUARANTINE}"
    fs = found.fs
    try:
        for scan in found.scans:
            quarantine(fs, scan.damaged, aside, now_ms=now_ms)
            if scan.repair is not None:
                apply_repair(fs, scan.repair)
        dropped = _dropped(found)
        for topic in found.catalog:
            history = segments_of(topic)
            labels = set(dropped.get(topic.id, ()))
            for part in history.parts:
                assert isinstance(part, Segment | ActiveSegment)
                labels.add(part.label)
                if found.store.check(topic.id, part).hot is CopyState.LONGER:
                    trim(found.store, topic.id, part)
            finish(drop_unreferenced(found.store, topic.id, labels))
        finish(repair_all(found.store, now_ms=now_ms))
        _clear_leftovers(
            found.store,
            found.catalog.by_id,
            next_topic_id=found.catalog.next_topic_id,
            bad_snapshots=found.bad_snapshots,
            now_ms=now_ms,
        )
    except OSError as error:
        raise RefusedToOpen(
            "io_error",
            message=f"{found.path} cannot be repaired: {error}; check the disk",
            file=found.path,
        ) from error


def _dropped(found: Found) -> dict[int, list[int]]:
    """By topic the segments that are no longer needed, whose files may still be there."""
    if found.snapshot is None:
        return {}
    return {
        line.id: [label for label, _ in line.dropped_labels()] for line in found.snapshot.topics
    }


def _clear_leftovers(
    store: SegmentStore,
    live: Collection[int],
    *,
    next_topic_id: int,
    bad_snapshots: Iterable[str],
    now_ms: int,
) -> None:
    """Put the directory in order; `live` are the topics whose files are wanted."""
    unexplained = list(bad_snapshots)
    for root in store.roots:
        for topic_id, path in _topic_dirs(store.fs, root):
            if topic_id in live:
                continue
            kept = layout.deleted_topic_dir(root, topic_id)
            if topic_id < next_topic_id and not store.fs.exists(kept):
                store.fs.rename(path, kept)
                store.fs.sync_dir(parent_of(path))
                store.retired(topic_id, root=root)
            elif root == store.data_dir:  # a rename cannot leave the cold file system
                unexplained.append(path)
    _keep_aside(store, unexplained, now_ms)
    for directory in _places_of_temporary(store):
        _remove_temporary(store.fs, directory)
    ErasureLedger(store.fs, store.data_dir).clear_temporary()
    store.fs.sync_dir(f"{store.data_dir}/{layout.META}")


def _places_of_temporary(store: SegmentStore) -> list[str]:
    """Where files are made under a temporary name; topics clear their own directories."""
    wal = f"{store.data_dir}/{layout.WAL}"
    groups = [name for name in store.fs.listdir(wal) if layout.parse_group(name) is not None]
    meta = f"{store.data_dir}/{layout.META}"
    return [*store.roots, meta, wal, *(f"{wal}/{name}" for name in groups)]


def _topic_dirs(fs: Fs, root: str) -> list[tuple[int, str]]:
    topics = f"{root}/{layout.TOPICS}"
    names = fs.listdir(topics) if fs.exists(topics) else []
    known = [(layout.parse_topic(name), f"{topics}/{name}") for name in names]
    return [(topic_id, path) for topic_id, path in known if topic_id is not None]


def _keep_aside(store: SegmentStore, paths: list[str], now_ms: int) -> None:
    if not paths:
        return
    fs, aside = store.fs, f"{store.data_dir}/{layout.QUARANTINE}"
    for created in fs.mkdirs(aside):
        fs.sync_dir(parent_of(created))
    for path in paths:
        name = layout.quarantine_name(path.rsplit("/", 1)[-1], now_ms=now_ms)
        fs.rename(path, f"{aside}/{name}")
    fs.sync_dir(aside)
    for directory in sorted({parent_of(path) for path in paths}):
        fs.sync_dir(directory)


def _remove_temporary(fs: Fs, directory: str) -> None:
    unwanted = [name for name in fs.listdir(directory) if name.endswith(TMP_SUFFIX)]
    for name in unwanted:
        fs.unlink(f"{directory}/{name}")
    if unwanted:
        fs.sync_dir(directory)
