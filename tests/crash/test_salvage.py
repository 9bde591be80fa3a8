"""Salvage of a whole store: what the damaged part of the log held is announced, never given again.

A record that was the last of its topic leaves no gap between two others when it is lost. Whoever
read it would never see another record under its seq, so that seq must not be used a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.crash.fault_scenes import FULL
from tests.crash.stores import DATA_DIR, Contents, contents, opened, viewed

from topics.core.facts import Beacon
from topics.embedded import Log
from topics.errors import RefusedToOpen
from topics.storage.frames.buffer import Frame
from topics.storage.frames.payloads import FrameType
from topics.storage.wal.files import HEADER_SIZE
from topics.storage.wal.salvage import intact_frames
from topics.testing import FaultFs, PowerOff, SimDisk
from topics.topic_settings import Durability

CLASSES: tuple[Durability, ...] = ("fsync", "disk", "memory")
ABOUT_SEQS = {
    FrameType.APPEND,
    FrameType.CONFIG_UPDATE,
    FrameType.FORWARD,
    FrameType.HEAD_WATERMARK,
    FrameType.SEQ_SKIP,
}
FLAT = f"{DATA_DIR}/wal/wal-0000000000000001.log"


@dataclass
class Store:
    """A store on a disk, and all there was when its program died."""

    disk: SimDisk
    before: dict[str, Contents]
    shards: int = 1

    def open(self, **changes: Any) -> Log:  # noqa: ANN401 - EngineSettings checks them
        return opened(self.disk.mount(), wal_shards=self.shards, **changes)

    def salvage(self) -> Log:
        return self.open(wal_repair="salvage")

    def frames(self, *types: FrameType) -> Iterator[tuple[str, Frame]]:
        """Frames of these types, or of all, in every file of the log."""
        for path in self.disk.paths():
            if path.endswith(".log"):
                data = self.disk.peek(path)
                for frame in intact_frames(data, HEADER_SIZE, len(data)):
                    if not types or frame.type in types:
                        yield path, frame

    def damaged(self, path: str, offset: int, *, end: int | None = None) -> Store:
        """The store with a bit changed, or with zeros up to `end`: it refuses to open by itself."""
        twin = Store(self.disk.clone(), self.before, self.shards)
        if end is None:
            twin.disk.flip(path, offset + 20)
        else:
            twin.disk.poke(path, offset, bytes(end - offset))
        with pytest.raises(RefusedToOpen, match="damaged"):
            twin.open()
        return twin


def stopped(log: Log, disk: SimDisk, shards: int = 1) -> Store:
    """The program dies; everything it logged is durable, and beacons prove it."""
    before = contents(log)
    for _ in range(2):
        log.sync()  # a sync leaves a frame behind, and each frame a beacon before it
        for topic in before:
            log.set_cursor(topic, "reader", 0)
    log.sync()
    disk.kill()
    disk.settle()
    return Store(disk, before, shards)


def lives(shards: int) -> Store:
    """Topics of all classes, copies, changes of class, and topics that come late and go."""
    disk = SimDisk()
    log = opened(disk.mount(), wal_shards=shards)
    for durability in CLASSES:
        log.create(durability, durability=durability)
    log.create("gone", durability="ephemeral")
    log.create("copies", durability="fsync")
    log.route("r", source="fsync", dest="copies")
    for number in range(2):
        for topic in (*CLASSES, "gone"):
            log.append(topic, {"data": [topic, number]})
    log.create("dropped", durability="fsync")
    log.append("dropped", {"data": 1})
    log.drop("dropped")
    for name, classes in {"back": ("fsync", "ephemeral", "disk"), "up": ("ephemeral",)}.items():
        for new_class in classes:
            log._put(name, {"durability": new_class})
            log.append(name, [{"data": new_class}, {"data": 2}])
    log.configure("up", durability="fsync")
    log.append("fsync", [{"data": 1}, {"data": 2}])
    contents(log)  # a reader of the copies is what makes them
    log.drop_router("r")
    return stopped(log, disk, shards)


@pytest.fixture(scope="module", params=[1, 2])
def store(request: pytest.FixtureRequest) -> Store:
    return lives(request.param)


def explained(before: dict[str, Contents], log: Log) -> dict[str, int]:
    """Every record is there or announced, and no seq is free to be used again; the heads."""
    after = contents(log)
    for topic, was in before.items():
        now = after[topic]
        assert log.audit(topic).adds_up
        assert now.audit["head_seq"] >= was.audit["head_seq"], f"{topic} would use a seq again"
        for seq in was.records.keys() - now.records.keys():
            assert now.announces(seq), f"{topic} lost {seq} without a word"
        for seq in was.records.keys() & now.records.keys():
            assert now.records[seq].data == was.records[seq].data
    return {topic: now.audit["head_seq"] for topic, now in after.items()}


def proven(store: Store) -> list[tuple[str, Frame]]:
    """Frames that can be lost with their topic still known, and that a beacon calls durable."""
    durable: dict[str, int] = {}
    for path, frame in store.frames(FrameType.CHECKPOINT_MARK):
        fact = frame.fact(store.disk.peek(path))
        if isinstance(fact, Beacon):
            durable[path] = fact.offset
    return [
        (path, frame)
        for path, frame in store.frames()
        if frame.type != FrameType.TOPIC_CREATE and frame.end <= durable[path]
    ]


def test_rc14_whatever_the_damage_took_is_announced_and_no_seq_used_again(store: Store) -> None:
    places = proven(store)
    assert {frame.type for _, frame in places} > ABOUT_SEQS
    for path, frame in places:
        if frame.type not in ABOUT_SEQS and not FULL:
            continue
        twin = store.damaged(path, frame.offset)
        with twin.salvage() as log:
            explained(store.before, log)
            for topic, was in store.before.items():
                assert log.append(topic, {"data": "new"}).first_seq > was.audit["head_seq"]
        with twin.open() as log:
            explained(store.before, log)


def test_rc14_a_salvage_can_be_done_again_and_loses_no_more(store: Store) -> None:
    for path, frame in proven(store)[::7]:
        twin = store.damaged(path, frame.offset)
        once = explained(store.before, twin.salvage())
        twin.disk.kill()
        again = twin.salvage()
        heads = explained(store.before, again)
        assert {topic: heads[topic] for topic in ("fsync", "memory")} == {
            topic: once[topic] for topic in ("fsync", "memory")
        }
        again.maintain()
        twin.disk.kill()
        explained(store.before, twin.open())  # a checkpoint has made salvage needless


def test_rc14_a_salvage_that_is_cut_short_can_be_done_again() -> None:
    """Before the cut it may have logged some of what it gave up, and not the rest."""
    disk = SimDisk()
    log = opened(disk.mount(), wal_shards=1)
    for topic in ("a", "b"):
        log.create(topic, durability="fsync")
    for number in range(4):
        for topic in ("a", "b"):
            log.append(topic, {"data": number})
    store = stopped(log, disk)
    # One place in the middle of a topic, and one at the end of both.
    seconds = [frame for _, frame in store.frames(FrameType.APPEND) if frame.seq == 2]
    fourths = [frame for _, frame in store.frames(FrameType.APPEND) if frame.seq == 4]
    store.disk.flip(FLAT, seconds[0].offset + 20)
    store = store.damaged(FLAT, fourths[0].offset, end=fourths[1].end)
    whole = explained(store.before, Store(store.disk.clone(), {}).salvage())
    calls, cut = 0, True
    while cut:
        calls += 1
        twin = Store(store.disk.clone(), store.before)
        faults = FaultFs(twin.disk.mount())
        faults.stop_before(calls, partial(twin.disk.crash, calls, "prefix"))
        try:
            opened(faults, wal_shards=1, wal_repair="salvage")
            cut = False
        except (PowerOff, RefusedToOpen):
            twin.disk.kill()
            assert explained(store.before, twin.salvage()) == whole, f"cut before call {calls}"
    assert calls > 20


def exactly(log: Log, topic: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The records a reader gets, and the gaps it is told of."""
    shown = contents(log)[topic]
    return sorted(shown.records), [(gap.gap_from, gap.gap_to) for gap in shown.tombstones]


def test_rc14_a_clean_stop_tells_salvage_exactly_what_was_lost() -> None:
    disk = SimDisk()
    with opened(disk.mount(), wal_shards=1) as log:
        for topic in ("a", "b", "c"):
            log.create(topic, durability="fsync")
            log.append(topic, [{"data": 1}, {"data": 2}])
    disk.kill()
    for path in [path for path in disk.paths() if "/meta/" in path or "/topics/" in path]:
        disk.unlink(path)
    log = opened(disk.mount(), wal_shards=1)
    log.drop("c")
    disk.kill()
    disk.settle()
    store = Store(disk, {})
    b, c = [frame for _, frame in store.frames(FrameType.APPEND) if frame.seq == 2][1:]
    store.disk.flip(FLAT, c.offset + 20)
    twin = store.damaged(FLAT, b.offset)
    with twin.salvage() as log:
        assert [frame.topic_id for _, frame in twin.frames(FrameType.SEQ_SKIP)] == [b.topic_id]
        assert exactly(log, "a") == ([1, 2], [])
        assert exactly(log, "b") == ([1], [(2, 2)])
        assert [log.audit(topic).head_seq for topic in ("a", "b")] == [2, 2]


def log_with_damage(behind: Callable[[Log], object]) -> tuple[Log, int]:
    """A log whose record 2 of `a` was lost, and what follows; and how many frames fit there."""
    disk = SimDisk()
    log = opened(disk.mount(), wal_shards=1)
    for topic in ("a", "b"):
        log.create(topic, durability="fsync")
    for number in (1, 2):
        log.append("a", {"data": "x" * 200 * number})
    behind(log)
    store = stopped(log, disk)
    (lost,) = [frame for _, frame in store.frames(FrameType.APPEND) if frame.seq == 2]
    return store.damaged(FLAT, lost.offset).salvage(), lost.length // 46


def test_rc14_a_topic_that_goes_on_behind_the_damage_lost_exactly_what_is_missing() -> None:
    log, _ = log_with_damage(lambda log: log.append("a", {"data": 3}))
    assert exactly(log, "a") == ([1, 3], [(2, 2)])


def test_rc14_a_topic_made_behind_the_damage_lost_nothing() -> None:
    log, most = log_with_damage(lambda log: log.create("new", durability="fsync"))
    assert exactly(log, "new") == ([], [])
    assert exactly(log, "a") == ([1], [(2, 1 + most)])
    assert exactly(log, "b") == ([], [(1, most)])


def test_rc14_a_pass_that_copies_nothing_does_not_tell_how_far_its_topic_was() -> None:
    def behind(log: Log) -> None:
        log.route("r", source="b", dest="a", match="none")
        log.append("b", {"data": 1, "tag": "other"})
        log.read("a")

    log, most = log_with_damage(behind)
    records, gaps = exactly(log, "a")
    assert records == [1]
    assert gaps[0][0] == 2
    assert gaps[0][1] > most


def test_rc14_a_large_damage_takes_no_more_seqs_than_it_has_room_for() -> None:
    disk = SimDisk()
    log = opened(disk.mount(), wal_shards=1)
    for topic in ("a", "b"):
        log.create(topic, durability="fsync")
        log.append(topic, {"data": 1})
    log.append("a", [{"data": "x" * 1000} for _ in range(500)])
    store = stopped(log, disk)
    lost = [frame for _, frame in store.frames(FrameType.APPEND) if frame.seq > 1]
    start, end = lost[0].offset, lost[-1].end
    log = store.damaged(FLAT, start, end=end).salvage()
    explained(store.before, log)
    for topic in ("a", "b"):
        assert exactly(log, topic) == ([1], [(2, 1 + (end - start) // 46)])


def test_rc14_a_view_leaves_what_it_doubts_to_the_owner() -> None:
    disk = SimDisk()
    log = opened(disk.mount(), wal_shards=1)
    log.create("a", durability="fsync")
    for number in (1, 2):
        log.append("a", {"data": number})
    store = stopped(log, disk)
    *_, (path, last) = store.frames(FrameType.APPEND)
    twin = store.damaged(path, last.offset)
    assert exactly(viewed(twin.disk.mount(), wal_repair="salvage"), "a") == ([1], [])


def test_rc14_a_new_topic_is_not_taken_for_one_that_was_lost_with_all_of_it() -> None:
    disk = SimDisk()
    log = opened(disk.mount(), wal_shards=1)
    log.create("kept", durability="fsync")
    log.create("lost", durability="fsync")
    log.append("lost", {"data": 1})
    epochs = [log.state("lost").epoch]
    disk.kill()
    log = opened(disk.mount(), wal_shards=1)
    for _ in range(3):
        log.append("kept", {"data": 1})
    disk.kill()
    disk.put(f"{DATA_DIR}/topics/00000002/seg-0000000000000001.data", b"of the lost topic")
    disk.settle()
    store = Store(disk, {})
    (_, made) = [frame for _, frame in store.frames(FrameType.TOPIC_CREATE)]
    first = [frame for _, frame in store.frames(FrameType.APPEND) if frame.topic_id == 2]
    twin = store.damaged(FLAT, made.offset, end=first[0].end)
    for _ in range(2):
        with twin.salvage() as log:
            assert [topic.topic for topic in log.topics()] == ["kept"]
            log.create("lost", durability="fsync")
            epochs.append(log.state("lost").epoch)
            log.drop("lost")
    assert epochs == sorted(set(epochs))
    aside = [path for path in twin.disk.paths() if "/quarantine/" in path and "00000002" in path]
    assert [twin.disk.peek(path) for path in aside] == [b"of the lost topic"]


def by_epoch(found: dict[str, Contents]) -> dict[int, str]:
    return {shown.state["epoch"]: name for name, shown in found.items()}


def test_rc14_a_topic_whose_creation_is_lost_is_served_and_so_is_everything_else(
    store: Store,
) -> None:
    """By its own name where something else in the log tells it."""
    names = by_epoch(store.before)
    made_up = set()
    for path, frame in store.frames(FrameType.TOPIC_CREATE):
        twin = store.damaged(path, frame.offset)
        log = twin.salvage()
        renamed = by_epoch(contents(log))
        assert renamed.keys() == names.keys()
        before = {renamed[epoch]: store.before[names[epoch]] for epoch in names}
        made_up |= {names[epoch] for epoch in names if renamed[epoch] != names[epoch]}
        assert {renamed[epoch] for epoch in names} - {*names.values()} <= {
            f"salvaged-{frame.topic_id}"
        }
        once = explained(before, log)
        twin.disk.kill()
        again = twin.salvage()
        assert by_epoch(contents(again)) == renamed
        assert explained(before, again).keys() == once.keys()
        for topic, was in before.items():
            assert again.append(topic, {"data": "new"}).first_seq > was.audit["head_seq"]
        again.close()
        with twin.open() as log:
            explained(before, log)
    assert made_up == {"disk", "memory", "gone"}  # a change of settings or a router names the rest
