"""Looking for byte sequences in every file of a store.

A sequence that is found may belong to a record that is live and says the same. So each hit comes
with the record that it lies in, if it lies in one: the caller knows which records are live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from topics.storage import layout
from topics.storage.frames.append import verify
from topics.storage.frames.header import APPEND, DATA_START, HEADER, OVERHEAD
from topics.storage.fs import File, Fs

CHUNK = 1 << 20
MOST_HITS = 64
"""Hits of one sequence in one file that are looked at."""
_NAMES_MAX = 2 * 4096
_HEADER_REACH = DATA_START + _NAMES_MAX + 4


class ProbeHit(NamedTuple):
    """Where a sequence was found, and topic id and seq of the record it is part of."""

    path: str
    probe: int
    record: tuple[int, int] | None


class SearchedRange(NamedTuple):
    """A range of a file that was searched, or a file that could not be read."""

    path: str
    size: int
    hits: list[ProbeHit]
    is_new: bool  # the first range of its file
    is_unread: bool = False


def files_of(fs: Fs, roots: Sequence[str]) -> Iterator[str]:
    """Every file of a store that may hold bytes of records, or of what clients sent."""
    for root in roots:
        wal = f"{root}/{layout.WAL}"
        places = [f"{root}/{layout.META}", wal, f"{root}/{layout.QUARANTINE}"]
        places += [
            f"{wal}/{name}" for name in _names(fs, wal) if layout.parse_group(name) is not None
        ]
        for parent in (f"{root}/{layout.TOPICS}", f"{root}/{layout.STAGES}"):
            places += [f"{parent}/{name}" for name in _names(fs, parent)]
        for place in places:
            for name in _names(fs, place):
                if layout.parse_group(name) is None and name != layout.ERASURES:
                    yield f"{place}/{name}"


def search(fs: Fs, roots: Sequence[str], probes: Sequence[bytes]) -> Iterator[SearchedRange]:
    """Look for the probes in all files, a range at a time; a file that vanishes is passed over."""
    for path in files_of(fs, roots):
        try:
            file = fs.open(path)
        except FileNotFoundError:
            continue
        except OSError:
            yield SearchedRange(path, 0, [], is_new=True, is_unread=True)
            continue
        try:
            yield from _search_file(file, path, probes)
        except OSError:
            yield SearchedRange(path, 0, [], is_new=False, is_unread=True)
        finally:
            file.close()


def _search_file(file: File, path: str, probes: Sequence[bytes]) -> Iterator[SearchedRange]:
    overlap = max(map(len, probes), default=1) - 1
    size, offset = file.size(), 0
    looked_at = [0] * len(probes)
    while True:
        data = file.pread(CHUNK + overlap, offset)
        hits: list[ProbeHit] = []
        for number, probe in enumerate(probes):
            at = data.find(probe)
            while at >= 0 and looked_at[number] < MOST_HITS:
                looked_at[number] += 1
                hits.append(ProbeHit(path, number, _record_at(file, offset + at)))
                at = data.find(probe, at + 1)
        taken = min(CHUNK, max(size - offset, 0))
        yield SearchedRange(path, taken, hits, is_new=offset == 0)
        offset += CHUNK
        if offset >= size:
            return


def _record_at(file: File, position: int) -> tuple[int, int] | None:
    """Topic id and seq of the intact frame that `position` lies in, if its data begin there or
    the position is where the checksummed part of the frame begins."""
    start = max(0, position - _HEADER_REACH)
    buf = file.pread(position - start + DATA_START, start)
    for at in range(position - start - 4, -1, -1):
        if at + DATA_START > len(buf):
            continue
        frame_len, kind, _, topic_id, seq, _, node_len, tag_len, data_len = HEADER.unpack_from(
            buf, at
        )
        names = node_len + tag_len
        if kind != APPEND or frame_len + 4 != OVERHEAD + names + data_len:
            continue
        data_at = start + at + DATA_START + names
        if not start + at <= position < data_at + data_len:
            continue
        frame = file.pread(frame_len + 4, start + at)
        if verify(frame, 0, len(frame)):
            return topic_id, seq
    return None


def _names(fs: Fs, path: str) -> list[str]:
    try:
        return sorted(fs.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
