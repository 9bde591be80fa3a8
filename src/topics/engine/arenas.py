"""Memory for records that no file holds: ephemeral topics, and everything in memory mode.

A topic gets chunks of its own, so that a chunk whose records are all gone can be given back whole.
"""

from __future__ import annotations

from topics.storage.sources import Arena, Sources
from topics.storage.wal.submission import Submission

CHUNK_BYTES = 1 << 20


class _Chunk:
    __slots__ = ("arena", "last_seq", "size", "source_id")

    def __init__(self, arena: Arena, source_id: int) -> None:
        self.arena = arena
        self.source_id = source_id
        self.size = 0
        self.last_seq = 0


class Arenas:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._chunks: dict[int, list[_Chunk]] = {}

    def take(self, submission: Submission, topic_id: int, frames: bytes, last_seq: int) -> None:
        """Keep a write's frames and tell the submission where they are."""
        chunks = self._chunks.setdefault(topic_id, [])
        if not chunks or chunks[-1].size >= CHUNK_BYTES:
            arena = Arena()
            chunks.append(_Chunk(arena, self._sources.add(arena)))
        chunk = chunks[-1]
        submission.source_id = chunk.source_id
        submission.offset = chunk.arena.append(frames)
        chunk.size += len(frames)
        chunk.last_seq = last_seq

    def release(self, topic_id: int, earliest: int) -> None:
        """Give back chunks that hold only seqs below `earliest`."""
        chunks = self._chunks.get(topic_id)
        while chunks and chunks[0].last_seq < earliest and len(chunks) > 1:
            self._sources.drop(chunks.pop(0).source_id)

    def forget(self, topic_id: int) -> None:
        for chunk in self._chunks.pop(topic_id, ()):
            self._sources.drop(chunk.source_id)
