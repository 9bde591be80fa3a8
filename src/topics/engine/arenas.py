"""Memory for records that no file holds, or none yet.

These are the records of ephemeral topics, all records of a log in memory, and router copies until a
checkpoint has put them into a segment. A topic gets chunks of its own, so that a chunk whose
records are all gone, or all in segments, can be given back whole. While a checkpoint runs, chunks
that it has captured are kept: records may die, and topics be dropped, before it writes them.
"""

from __future__ import annotations

from topics.storage.sources import Arena, Sources
from topics.storage.wal.submission import Submission

CHUNK_BYTES = 1 << 20


class _Chunk:
    __slots__ = ("arena", "last_seq", "source_id")

    def __init__(self, arena: Arena, source_id: int) -> None:
        self.arena = arena
        self.source_id = source_id
        self.last_seq = 0


class Arenas:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._chunks: dict[int, list[_Chunk]] = {}
        self._newest = 0  # source id of the chunk that was made last
        self._held_through = 0  # chunks up to this one are wanted by a checkpoint
        self._held: list[int] = []  # those of them that only the checkpoint needs

    def keep(self, topic_id: int, frames: bytes | memoryview, last_seq: int) -> tuple[int, int]:
        """Hold frames whose last record has `last_seq`; returns source id and offset."""
        chunks = self._chunks.setdefault(topic_id, [])
        if not chunks or len(chunks[-1].arena) >= CHUNK_BYTES:
            arena = Arena()
            self._newest = self._sources.add(arena)
            chunks.append(_Chunk(arena, self._newest))
        chunk = chunks[-1]
        chunk.last_seq = last_seq
        return chunk.source_id, chunk.arena.append(frames)

    def take(
        self, submission: Submission, topic_id: int, frames: bytes | memoryview, last_seq: int
    ) -> None:
        """Hold a write's frames and tell the submission where they are."""
        submission.source_id, submission.offset = self.keep(topic_id, frames, last_seq)

    @property
    def total(self) -> int:
        """Bytes held for all topics."""
        return sum(len(chunk.arena) for chunks in self._chunks.values() for chunk in chunks)

    def release(self, topic_id: int, earliest: int) -> None:
        """Give back chunks that hold only seqs below `earliest`."""
        chunks = self._chunks.get(topic_id)
        while chunks and chunks[0].last_seq < earliest:
            self._give_back(chunks.pop(0))

    def forget(self, topic_id: int) -> None:
        """Give back all that a dropped topic holds."""
        for chunk in self._chunks.pop(topic_id, ()):
            self._give_back(chunk)

    def hold(self) -> None:
        """Keep all chunks that exist now until `let_go`, also if they are released before."""
        self._held_through = self._newest

    def let_go(self) -> None:
        self._held_through = 0
        held, self._held = self._held, []
        for source_id in held:
            self._sources.drop(source_id)

    def _give_back(self, chunk: _Chunk) -> None:
        if chunk.source_id <= self._held_through:
            self._held.append(chunk.source_id)
        else:
            self._sources.drop(chunk.source_id)
