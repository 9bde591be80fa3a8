"""A log on a simulated disk, driven the way an engine drives it, and an oracle for crashes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from topics.batch import RecordBatch
from topics.core.facts import Appended, FileHeader
from topics.storage import layout
from topics.storage.frames.append import encode_append, record_at
from topics.storage.frames.buffer import Frame, decode_at, encode
from topics.storage.fs import Fs
from topics.storage.handles import Handles
from topics.storage.sources import Sources, WalSource, split_location
from topics.storage.wal.generation import Generation, open_shards
from topics.storage.wal.groups import discover
from topics.storage.wal.inline import InlineCommitter
from topics.storage.wal.repair import apply_repair, quarantine
from topics.storage.wal.scan import GroupScan, require_whole_generation, scan_group
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.shard import Shard, ShardState
from topics.storage.wal.submission import Position, Submission
from topics.testing import FaultFs, SimDisk, WatchFs

DATA_DIR = "/data"
WAL_DIR = f"{DATA_DIR}/wal"
FIRST_FILE = f"{WAL_DIR}/{layout.wal_name(1)}"
CURRENT = f"{WAL_DIR}/{layout.CURRENT}"
STORE_ID = bytes(range(16))
TOPIC = 10
NOW = 1_700_000_000_000
MS = 1_000_000

SETTINGS = WalSettings(cache_bytes=1 << 20)
SMALL = WalSettings(file_bytes=1 << 20, cache_bytes=1 << 16)
"""Files of one mebibyte: a rotation after a few writes of `LARGE`."""
LARGE = b'"' + b"x" * 300_000 + b'"'

Records = dict[int, list[tuple[int, bytes]]]


class Timer:
    """Elapsed nanoseconds that pass when told to."""

    def __init__(self) -> None:
        self.now_ns = 1

    def __call__(self) -> int:
        return self.now_ns

    def pass_ms(self, ms: int) -> None:
        self.now_ns += ms * MS


class Log:
    """One run of a program that logs: recovers what is there, then appends."""

    def __init__(
        self,
        disk: SimDisk,
        *,
        shards: int = 1,
        settings: WalSettings = SETTINGS,
        salvage: bool = False,
        starts: Mapping[str, Position] | None = None,
        arrange: Callable[[FaultFs], object] = lambda faults: None,
    ) -> None:
        self.disk = disk
        self.faults = FaultFs(disk.mount())
        arrange(self.faults)
        self.watch = WatchFs(self.faults)
        self.timer = Timer()
        self.sources = Sources()
        self.handles = Handles(self.watch)
        self.starts = starts or {}
        self.scans = recover(self.watch, self.sources, self.handles, self.starts, salvage=salvage)
        self.recovered = records_in(self.scans, self.sources)
        self.shards = self._open(shards, settings)
        self.committer = InlineCommitter(self.shards)
        self.sent: Records = defaultdict(list)
        self.sent.update({topic: list(found) for topic, found in self.recovered.items()})
        self.bounds: dict[int, set[int]] = defaultdict(lambda: {0})
        for topic, found in self.recovered.items():
            self.bounds[topic].add(len(found))
        self.refused: dict[int, list[list[tuple[int, bytes]]]] = defaultdict(list)
        """What each topic would hold had a refused write been taken: it may come back, whole."""
        self.acked: dict[int, int] = {}
        """Per topic the last seq that was promised to survive a power cut."""
        self.written: dict[int, int] = {}
        """Per topic the last seq that was promised to survive the death of the process."""

    def _open(self, shards: int, settings: WalSettings) -> list[Shard]:
        newest = max((scan.newest_generation for scan in self.scans), default=0)
        return open_shards(
            self.watch,
            DATA_DIR,
            Generation(STORE_ID, newest + 1, shards),
            {scan.key: scan.next_link for scan in self.scans},
            settings=settings,
            sources=self.sources,
            handles=self.handles,
            monotonic_ns=self.timer,
        )

    @property
    def shard(self) -> Shard:
        return self.shards[0]

    def state(self) -> ShardState:
        return self.shard.state

    def submission(
        self, *datas: bytes, durable: bool = True, topic: int = TOPIC, tag: str | None = None
    ) -> Submission:
        """One write, numbered after everything sent to the topic before."""
        first = len(self.sent[topic]) + 1
        tags: list[str | None] | None = None if tag is None else [tag for _ in datas]
        batch = RecordBatch(list(datas), tags=tags)
        frames, _ = encode_append(topic, first, NOW, batch, durable=durable)
        self.sent[topic] += [(first + i, data) for i, data in enumerate(datas)]
        self.bounds[topic].add(first - 1 + len(datas))
        shard = layout.shard_of(topic, len(self.shards))
        return Submission(shard, frames, len(datas), durable=durable, on_done=self._done(topic))

    def _done(self, topic: int) -> Callable[[Submission], None]:
        last = len(self.sent[topic])

        def done(submission: Submission) -> None:
            if submission.error is not None:
                return
            self.written[topic] = last
            if submission.durable:
                self.acked[topic] = last
                source = self.sources.get(submission.source_id)
                assert isinstance(source, WalSource)
                self.watch.acked(source.path, submission.offset + len(submission.frames))

        return done

    def append(
        self, *datas: bytes, durable: bool = True, topic: int = TOPIC, tag: str | None = None
    ) -> Submission:
        """Write; a refused write takes its seqs back, as the engine does."""
        submission = self.submission(*datas, durable=durable, topic=topic, tag=tag)
        self.committer.submit(submission)
        assert submission.done
        if submission.error is not None:
            self.refused[topic].append(list(self.sent[topic]))
            del self.sent[topic][len(self.sent[topic]) - len(datas) :]
        return submission

    def close(self) -> None:
        self.committer.close()


def recover(
    fs: Fs,
    sources: Sources,
    handles: Handles,
    starts: Mapping[str, Position],
    *,
    salvage: bool = False,
) -> list[GroupScan]:
    """Read every group, then repair; in the order recovery does it."""

    def add_source(path: str) -> int:
        return sources.add(WalSource(path, handles))

    scans = [
        scan_group(
            fs,
            group,
            store_id=STORE_ID,
            start=starts.get(group.key),
            add_source=add_source,
            salvage=salvage,
        )
        for group in discover(fs, WAL_DIR)
    ]
    require_whole_generation(scans)
    for scan in scans:
        quarantine(fs, scan.damaged, f"{DATA_DIR}/quarantine", now_ms=NOW)
        if scan.repair is not None:
            apply_repair(fs, scan.repair)
    return scans


def records_in(scans: list[GroupScan], sources: Sources) -> Records:
    """Every record found, read back from its location."""
    found: Records = defaultdict(list)
    generations = [generation for scan in scans for generation in scan.generations]
    for generation in sorted(generations, key=lambda each: each.generation):
        for _, fact in generation.entries:
            if isinstance(fact, Appended):
                for i, length in enumerate(fact.lengths):
                    source_id, offset = split_location(fact.base + fact.offsets[i])
                    frame = sources.get(source_id).pread(offset, length)
                    found[fact.topic_id].append((fact.first_seq + i, record_at(frame, 0)[2]))
    return found


def check_survivors(before: Log, after: Log, *, power_lost: bool = True) -> None:
    """What recovery found is what was promised, in whole writes, and nothing else."""
    promised = before.acked if power_lost else before.written
    for topic, last in promised.items():
        assert len(after.recovered.get(topic, [])) >= last, f"topic {topic} lost acked records"
    for topic, found in after.recovered.items():
        possible = [before.sent[topic], *before.refused[topic]]
        was_sent = any(found == sent[: len(found)] for sent in possible)
        assert was_sent, f"topic {topic} holds what was never sent"
        assert len(found) in before.bounds[topic], f"topic {topic} holds part of a write"
    before.watch.check()
    after.watch.check()


def check_usable(disk: SimDisk, log: Log) -> None:
    """One more acked write, one more restart: the usual end of a fault test."""
    assert log.append(b"9").error is None
    expected = list(log.sent[TOPIC])
    log.close()
    disk.kill()
    again = Log(disk, starts=log.starts)
    assert again.recovered[TOPIC] == expected
    again.close()


def log_files(disk: SimDisk) -> list[str]:
    return sorted(path for path in disk.paths() if path.endswith(".log"))


def rewrite_header(disk: SimDisk, path: str, **changes: Any) -> None:  # noqa: ANN401 - its fields
    """Give a log file a header that is sound, but says something else."""
    data = disk.peek(path)
    frame = decode_at(data, 0, len(data))
    assert isinstance(frame, Frame)
    header = frame.fact(data)
    assert isinstance(header, FileHeader)
    disk.poke(path, 0, encode(msgspec.structs.replace(header, **changes)))
