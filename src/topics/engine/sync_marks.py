"""Which frames of the log must be durable before a topic's records are.

A record rests on its own frame, and a router's copy also on the frame of its original, which may
be in another shard: whether a copy survives a power cut depends on its original.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from topics.core.topic import Topic
from topics.engine.effects import Io, Op
from topics.storage.wal.committer import Committer


class SyncMarks:
    def __init__(
        self, committer: Committer, applied: Mapping[int, int], *, in_memory: bool
    ) -> None:
        self._committer = committer
        self._applied = applied  # per shard: the last frame that was applied
        self._in_memory = in_memory
        # By topic the frames of other shards on which its copies rest, until those are synced.
        self._rests: dict[int, dict[int, int]] = {}

    def of(self, topic: Topic) -> dict[int, int]:
        """Per shard the last frame on which the records of a topic may rest."""
        if self._in_memory:
            return {}
        shard, synced = self._committer.shard_of(topic.id), self._committer.synced
        rests = self._rests.get(topic.id, {}).items()
        marks = {other: lfn for other, lfn in rests if synced(other).lfn < lfn}
        return marks | {shard: self._applied.get(shard, 0)}

    def note_copies(self, dest: Topic, marks: Mapping[int, int]) -> None:
        """Copies that rest on these frames are about to come to a topic.

        This is noted with the copies, because the routers may be dropped before `of` is called.
        """
        rests = self._rests.setdefault(dest.id, {})
        for shard, lfn in marks.items():
            rests[shard] = max(lfn, rests.get(shard, 0))

    def is_synced(self, marks: Mapping[int, int]) -> bool:
        """Whether these frames, one of each shard, are durable."""
        return all(self._committer.synced(shard).lfn >= lfn for shard, lfn in marks.items())

    def sync(self, marks: Mapping[int, int]) -> Op[None]:
        """Make frames durable that may not be yet."""
        for shard, lfn in marks.items():
            if self._committer.synced(shard).lfn < lfn:
                yield Io(partial(self._committer.sync, shard))

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        self._rests.pop(topic.id, None)
