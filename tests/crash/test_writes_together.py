"""Writes that were logged together are lost one by one: each whole, and with its key."""

from __future__ import annotations

import pytest
from tests.crash.stores import DATA_DIR, settings
from tests.unit.queue.builders import HeldLog

from topics.batch import RecordBatch
from topics.engine.effects import run
from topics.engine.engine import Engine
from topics.engine.reads.reading import Query
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.writes.append import Timing
from topics.storage.frames.buffer import walk
from topics.storage.fs import Fs
from topics.storage.wal.submission import Submission
from topics.testing import CrashMode, ManualClock, SimDisk

WRITES: list[tuple[str | None, list[bytes]]] = [
    ("a", [b"1", b"2"]),
    (None, [b"3"]),
    ("b", [b"4"]),
    ("c", [b"5", b"6", b"7"]),
    (None, [b"8", b"9"]),
    ("d", [b'"%b"' % (b"x" * 600)]),
]
BATCHES = [RecordBatch(datas) for _, datas in WRITES]
KEYS = [key for key, _ in WRITES]
FIRST = 2
"""Seq of the first of them."""


def opened(fs: Fs, clock: ManualClock) -> Engine:
    return open_engine(fs, DATA_DIR, Opening(settings(wal_shards=1), clock))


class Ended:
    """A disk on which these writes were the last, before power was lost."""

    def __init__(self) -> None:
        self.disk, self.clock = SimDisk(), ManualClock()
        engine = opened(self.disk.mount(), self.clock)
        run(engine.put("t", {"durability": "disk"}))
        run(engine.append("t", RecordBatch([b"0"])))
        engine.sync()
        self.submission = self._written(engine)
        self.disk.kill()

    def _written(self, engine: Engine) -> Submission:
        log = HeldLog(engine.kernel.committer)
        engine.kernel.committer = log
        log.is_holding = True
        next(engine.append_together("t", BATCHES, Timing(), KEYS))
        (submission,) = log.held
        log.let_go()
        assert submission.done
        return submission

    def survivors(self, disk: SimDisk) -> int:
        """How many of the writes came back, after a look at all of them."""
        engine = opened(disk.mount(), self.clock)
        datas = [record.raw for record in run(engine.read("t", Query())).records]
        whole = [b"0"]
        survived = 0
        while len(whole) < len(datas):
            whole += WRITES[survived][1]
            survived += 1
        assert datas == whole, "each write whole, and none without those before it"
        seq = FIRST
        for at, (key, batch) in enumerate(zip(KEYS, BATCHES, strict=True)):
            if key is not None:
                ack = run(engine.append("t", batch, key=key))
                assert ack.deduped == (at < survived), "known if it is there, and only then"
                assert ack.first_seq == seq or not ack.deduped
            seq += len(batch)
        disk.kill()
        return survived


def test_a_cut_anywhere_loses_whole_writes_with_their_keys() -> None:
    ended = Ended()
    ended.disk.settle()
    (path,) = [path for path in ended.disk.paths() if path.endswith(".log")]
    frames = bytes(ended.submission.frames)
    begin, size = ended.submission.offset, len(frames)
    starts = walk(frames, 0, size).offsets
    found = []
    for cut in sorted([*starts, *(start + 30 for start in starts), size]):
        disk = ended.disk.clone()
        disk.poke(path, begin + cut, bytes(size - cut))
        found.append(ended.survivors(disk))
    assert found == sorted(found)
    assert set(found) == set(range(len(WRITES) + 1)), "every end of a write was among the cuts"


@pytest.mark.parametrize("mode", ["none", "subset", "zero"])
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_loses_whole_writes_with_their_keys(mode: CrashMode, seed: int) -> None:
    ended = Ended()
    ended.disk.crash(seed, mode)
    ended.survivors(ended.disk)
