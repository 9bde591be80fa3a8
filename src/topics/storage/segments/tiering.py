"""Moving sealed segments from the data directory to the cold one.

    copy        .data, .idx and .tag to temporary names in the cold directory, each synced
    name        rename them, sync the directory
    compare     read both copies again; they must be equal to the byte
    flip        the log durably says: cold. From here on the cold copy is the segment
    remove      unlink the hot files

Until the last step the hot copy is complete, and a complete hot copy is what is read. So a crash
anywhere leaves at least one copy that serves, and a cold one that was not finished is written over
by the next attempt. The caller holds back delete flips from the first step to the last, or the
copies would differ.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from xxhash import xxh3_64

from topics.core.facts import TierFlipped
from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import TMP_SUFFIX, Fs, parent_of, read_file, replace_file, write_all
from topics.storage.identity import decode_cold_marker, encode_cold_marker
from topics.storage.segments.repair import repair_idx
from topics.storage.segments.segment import COLD, HOT, Segment
from topics.storage.segments.store import SegmentStore, read_up_to

CHUNK = 1 << 20


class Relocated(msgspec.Struct, frozen=True):
    """Yielded once the cold copy stands: log this durably, then send whether that succeeded."""

    fact: TierFlipped


class Moved(msgspec.Struct, frozen=True):
    """The segment is cold. `hot_left`: its hot files could not be removed, see `remove_hot`."""

    segment: Segment
    hot_left: bool


class NotMoved(msgspec.Struct, frozen=True):
    """The segment is as it was; the caller may try again later."""

    reason: OSError | str


Outcome: TypeAlias = Moved | NotMoved


def candidates(
    segments: Sequence[Segment], *, retain_segments: int, retain_bytes: int
) -> list[Segment]:
    """The hot segments of a topic that lie behind the newest ones it is to keep, oldest first.

    A segment goes as soon as one of the limits says so; a limit of 0 says nothing.
    """
    chosen: list[Segment] = []
    size = 0
    for newer, seg in enumerate(reversed(segments)):
        size += seg.data_len + seg.idx_len
        beyond = 0 < retain_segments <= newer or 0 < retain_bytes < size
        if beyond and seg.tier == HOT:
            chosen.append(seg)
    return chosen[::-1]


def relocate(
    store: SegmentStore, topic_id: int, seg: Segment, *, now_ms: int
) -> Generator[Relocated | None, bool | None, Outcome]:
    """Move one sealed segment, yielding after each chunk.

    One of the things yielded is a `Relocated`; the answer sent for it decides. Disk errors before
    it end the attempt with the hot copy in place and the cold one removed. After an answer of
    False both copies stay, equal: what the log will say after a restart is unknown.
    """
    if not store.check(topic_id, seg).hot.complete:
        return NotMoved("there is no complete hot copy")
    try:
        store.idx(topic_id, seg)
        if (topic_id, seg.label) in store.repairs:
            repair_idx(store, topic_id, seg, now_ms=now_ms)
        yield from _copy_segment(store, topic_id, seg)
    except OSError as error:
        _remove_temporary(store, topic_id, seg)
        return NotMoved(error)
    try:
        yield from _name_copy(store, topic_id, seg)
        hashes = yield from _compare(store, topic_id, seg)
    except OSError as error:
        _remove_copy(store, topic_id, seg)
        return NotMoved(error)
    if hashes is None:
        _remove_copy(store, topic_id, seg)
        return NotMoved("the cold copy differs")
    crashpoint("tier.verified")
    data_h, idx_h = hashes
    fact = TierFlipped(topic_id, now_ms, seg.first, COLD, seg.data_len, seg.idx_len, data_h, idx_h)
    if not (yield Relocated(fact)):
        return NotMoved("the move could not be logged")
    crashpoint("tier.flipped")
    moved = seg.in_tier(COLD)
    hot_left = not (yield from remove_hot(store, topic_id, moved))
    return Moved(moved, hot_left)


def remove_hot(store: SegmentStore, topic_id: int, seg: Segment) -> Generator[None, None, bool]:
    """Unlink the hot files of a segment that is durably cold; whether they are all gone.

    Nothing is removed unless the cold copy is complete.
    """
    if not store.check(topic_id, seg).cold.complete:
        return False
    files = store.files(topic_id, seg.label)
    store.forget_place(topic_id, seg.label)
    try:
        for path in files.data, files.idx, files.tag:
            with suppress(FileNotFoundError):
                store.fs.unlink(path)
            if path == files.data:
                crashpoint("tier.hot_data_unlinked")
            yield
        with suppress(FileNotFoundError):
            store.fs.sync_dir(files.directory)
    except OSError:
        return False
    return True


def has_hot_files(store: SegmentStore, topic_id: int, seg: Segment) -> bool:
    """Whether a cold segment still has hot files, so that `remove_hot` has something to do."""
    files = store.files(topic_id, seg.label)
    return any(store.fs.exists(path) for path in (files.data, files.idx, files.tag))


def settled(store: SegmentStore, topic_id: int, seg: Segment) -> Segment:
    """The segment with its tier as the files say, for metadata that a crash left behind.

    Two complete copies say nothing new: the pointer stands, and if it says cold, `remove_hot`
    finishes the move.
    """
    copies = store.check(topic_id, seg)
    if copies.best is None or (copies.hot.complete and copies.cold.complete):
        return seg
    return seg.in_tier(copies.best)


# The marker


def claim_cold_dir(fs: Fs, cold_dir: str, store_id: bytes) -> None:
    """Mark a cold directory as this store's; for a directory that has no marker yet."""
    for created in fs.mkdirs(f"{cold_dir}/{layout.TOPICS}"):
        fs.sync_dir(parent_of(created))
    replace_file(fs, f"{cold_dir}/{layout.COLD_MARKER}", encode_cold_marker(store_id))


def check_cold_dir(fs: Fs, cold_dir: str, store_id: bytes) -> None:
    """Refuse a cold directory that is not this store's: a volume not mounted is no data loss."""
    path = f"{cold_dir}/{layout.COLD_MARKER}"
    try:
        found = decode_cold_marker(read_file(fs, path))
    except FileNotFoundError:
        raise RefusedToOpen(
            "cold_missing",
            message="the cold directory has no marker; mount the volume it is on",
            file=path,
        ) from None
    if found != store_id:
        raise RefusedToOpen(
            "cold_missing",
            message="the cold directory belongs to another store; name the right one",
            file=path,
        )


# Steps


def _copy_segment(store: SegmentStore, topic_id: int, seg: Segment) -> Generator[None, None, None]:
    fs = store.fs
    hot = store.files(topic_id, seg.label, HOT)
    cold = store.files(topic_id, seg.label, COLD)
    store.forget_place(topic_id, seg.label)
    fs.mkdirs(cold.directory)
    store.unsynced_dirs.add(parent_of(cold.directory))  # its maker may have died before
    yield from _copy(fs, hot.data, cold.data, seg.data_len)
    crashpoint("tier.data")
    yield from _copy(fs, hot.idx, cold.idx, seg.idx_len)
    crashpoint("tier.idx")
    if fs.exists(hot.tag):
        yield from _copy(fs, hot.tag, cold.tag, fs.size(hot.tag))


def _name_copy(store: SegmentStore, topic_id: int, seg: Segment) -> Generator[None, None, None]:
    fs = store.fs
    cold = store.files(topic_id, seg.label, COLD)
    with suppress(FileNotFoundError):
        fs.rename(cold.tag + TMP_SUFFIX, cold.tag)
    fs.rename(cold.data + TMP_SUFFIX, cold.data)
    fs.rename(cold.idx + TMP_SUFFIX, cold.idx)
    store.unsynced_dirs.add(cold.directory)
    while cold_dirs := [path for path in store.unsynced_dirs if _is_in(store, path)]:
        path = min(cold_dirs)
        fs.sync_dir(path)
        store.unsynced_dirs.discard(path)
        yield
    crashpoint("tier.renamed")


def _is_in(store: SegmentStore, path: str) -> bool:
    assert store.cold_dir is not None
    return path == store.cold_dir or path.startswith(store.cold_dir + "/")


def _copy(fs: Fs, source: str, target: str, length: int) -> Generator[None, None, None]:
    """Copy the first `length` bytes to the temporary name of `target` and sync them."""
    reading = fs.open(source)
    try:
        writing = fs.open(target + TMP_SUFFIX, write=True, create=True, truncate=True)
        try:
            for offset in range(0, length, CHUNK):
                chunk = read_up_to(reading, min(CHUNK, length - offset), offset)
                write_all(writing, chunk, offset)
                yield
            writing.fsync()
        finally:
            writing.close()
    finally:
        reading.close()
    yield


def _compare(
    store: SegmentStore, topic_id: int, seg: Segment
) -> Generator[None, None, tuple[int, int] | None]:
    """Raw hashes of `.data` and `.idx` if both copies have the same, read afresh."""
    hot = store.files(topic_id, seg.label, HOT)
    cold = store.files(topic_id, seg.label, COLD)
    hashes: list[int] = []
    for ours, theirs, length in (
        (hot.data, cold.data, seg.data_len),
        (hot.idx, cold.idx, seg.idx_len),
    ):
        wanted = yield from _hash(store.fs, ours, length)
        found = yield from _hash(store.fs, theirs, length)
        if found != wanted or store.fs.size(theirs) != length:
            return None
        hashes.append(found)
    return hashes[0], hashes[1]


def _hash(fs: Fs, path: str, length: int) -> Generator[None, None, int]:
    digest = xxh3_64()
    file = fs.open(path)
    try:
        for offset in range(0, length, CHUNK):
            digest.update(read_up_to(file, min(CHUNK, length - offset), offset))
            yield
    finally:
        file.close()
    return digest.intdigest()


def _remove_copy(store: SegmentStore, topic_id: int, seg: Segment) -> None:
    """Take back a cold copy that was not proven; what cannot be removed is written over later.

    `.idx` goes first: without it the copy is not complete, so it cannot be mistaken for one.
    """
    store.forget_place(topic_id, seg.label)
    files = store.files(topic_id, seg.label, COLD)
    for path in files.idx, files.data, files.tag:
        with suppress(OSError):
            store.fs.unlink(path)
    _remove_temporary(store, topic_id, seg)


def _remove_temporary(store: SegmentStore, topic_id: int, seg: Segment) -> None:
    """Take back a copy that has no name yet. An older cold copy, if there is one, stays: should
    the hot one be what fails, it may be the last that can be read."""
    files = store.files(topic_id, seg.label, COLD)
    for path in files.idx, files.data, files.tag:
        with suppress(OSError):
            store.fs.unlink(path + TMP_SUFFIX)
    with suppress(OSError):
        store.fs.sync_dir(files.directory)
