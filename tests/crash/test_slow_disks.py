"""A disk that takes its time: whoever does not need it goes on, and nobody sees too much.

The engine runs as in a server: operations on an event loop, a log thread, one pool for reads and
one for upkeep. A stalled call is held until the test lets it go.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.crash.stores import DATA_DIR, settings

from topics.batch import RecordBatch
from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.engine.reads.reading import Query
from topics.engine.recovery.opening import Opening, open_engine
from topics.errors import TopicsError
from topics.server.driver import Driver
from topics.storage.segments.lru import ByteLru
from topics.storage.wal.grouped import GroupedCommitter
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.shard import Shard
from topics.testing import FaultFs, ManualClock, SimDisk
from topics.values import Ack, Page

PATIENCE_S = 120.0
COLD_DIR = "/cold"


class World:
    """An engine on a loop, as a server has it."""

    def __init__(self, **changes: Any) -> None:  # noqa: ANN401 - EngineSettings checks them
        self.disk = SimDisk()
        self.faults = FaultFs(self.disk.mount())
        self.loop = asyncio.get_running_loop()
        self.readers = ThreadPoolExecutor(2)
        self.lane = ThreadPoolExecutor(1)
        self.driver = Driver(self.loop, self.readers)
        opening = Opening(
            settings(wal_shards=1, **changes), ManualClock(), make_committer=self._committer
        )
        self.engine: Engine = open_engine(self.faults, DATA_DIR, opening)

    def _committer(self, shards: list[Shard]) -> GroupedCommitter:
        committer = GroupedCommitter(shards, WalSettings(), self.driver.deliver)
        self.driver.committer = committer
        return committer

    def begin(self, op: Op[Any], pool: ThreadPoolExecutor | None = None) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self.loop.create_future()

        def done(value: object, error: TopicsError | None) -> None:
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        self.driver.start(op, done, pool=pool)
        return answer

    async def run(self, op: Op[Any]) -> Any:  # noqa: ANN401 - what the operation returns
        return await asyncio.wait_for(self.begin(op), PATIENCE_S)

    async def create(self, topic: str, durability: str = "fsync") -> None:
        await self.run(self.engine.put(topic, {"durability": durability}))

    async def append(self, topic: str, *values: int, key: str | None = None) -> Ack:
        ack: Ack = await self.run(self.appending(topic, *values, key=key))
        return ack

    def appending(self, topic: str, *values: int, key: str | None = None) -> Op[Ack]:
        return self.engine.append(topic, RecordBatch([b"%d" % n for n in values]), key=key)

    async def read(self, topic: str, after: int = 0) -> list[int]:
        page: Page = await self.run(self.engine.read(topic, Query(after=after, limit=1000)))
        return [record.data for record in page.records]

    def checkpoint(self) -> asyncio.Future[Any]:
        assert self.engine.upkeep is not None
        return self.begin(self.engine.upkeep.checkpoint(), self.lane)

    async def reached(self, rule: Any) -> None:  # noqa: ANN401 - a rule of FaultFs
        assert await asyncio.to_thread(rule.reached.wait, PATIENCE_S)

    async def close(self) -> None:
        self.faults.clear()
        await asyncio.to_thread(self.engine.kernel.committer.close)
        self.driver.drain()
        self.engine.release()
        self.readers.shutdown()
        self.lane.shutdown()


def in_world(body: Callable[[World], Awaitable[None]], **changes: Any) -> None:  # noqa: ANN401
    async def live() -> None:
        world = World(**changes)
        try:
            await body(world)
        finally:
            await world.close()

    asyncio.run(live())


def test_sg16_a_slow_sync_of_a_segment_holds_up_no_writer_and_no_reader() -> None:
    async def body(world: World) -> None:
        await world.create("t")
        await world.append("t", *range(20))
        rule = world.faults.fail("fdatasync", "stall", path="*/seg-*")
        checkpoint = world.checkpoint()
        await world.reached(rule)
        for number in range(20, 40):
            await world.append("t", number)
        assert await world.read("t") == list(range(40))
        assert await world.read("t", after=39) == [39]
        assert not checkpoint.done()
        rule.release()
        await asyncio.wait_for(checkpoint, PATIENCE_S)
        assert await world.read("t") == list(range(40))

    in_world(body)


def test_tr10_a_slow_cold_read_holds_up_no_write_no_seal_and_no_live_reader() -> None:
    async def body(world: World) -> None:
        await world.create("t")
        for start in range(0, 40, 4):
            await world.append("t", *range(start, start + 4))
            await asyncio.wait_for(world.checkpoint(), PATIENCE_S)
        assert world.engine.upkeep is not None
        work = world.engine.upkeep.poll()
        assert work is not None
        await asyncio.wait_for(world.begin(work, world.lane), PATIENCE_S)
        assert any(path.startswith(COLD_DIR) for path in world.disk.paths() if "seg-" in path)
        rule = world.faults.fail("pread", "stall", path=f"{COLD_DIR}/*")
        slow = world.begin(world.engine.read("t", Query(after=0, limit=1000)))
        await world.reached(rule)
        for number in range(40, 60):
            await world.append("t", number)
        await asyncio.wait_for(world.checkpoint(), PATIENCE_S)
        assert await world.read("t", after=50) == list(range(50, 60))
        assert not slow.done()
        rule.release()
        page = await asyncio.wait_for(slow, PATIENCE_S)
        assert [record.data for record in page.records][:40] == list(range(40))

    in_world(body, cold_dir=COLD_DIR, hot_retain_segments=1, segment_max_events=4)


def test_sg17_an_index_that_comes_slowly_holds_up_only_who_needs_it() -> None:
    async def body(world: World) -> None:
        for name in ("full", "old", "other"):
            await world.create(name)
            for start in range(0, 12, 4):
                await world.append(name, *range(start, start + 4))
                await asyncio.wait_for(world.checkpoint(), PATIENCE_S)
        await world.run(world.engine.put("full", {"durability": "fsync", "cap_records": 12}))
        segments = world.engine.kernel.segments
        assert segments is not None
        segments._idx = ByteLru(0)
        rule = world.faults.fail("pread", "stall", path="*.idx", always=True)
        needy = [
            world.begin(world.appending("full", 12, key="k")),
            world.begin(world.engine.delete("old", before=9, match=None)),
            world.begin(world.engine.cursors.put("old", "c", 2)),
        ]
        await world.reached(rule)
        for number in range(12, 20):
            await world.append("other", number)
            await world.append("old", number)
        assert await world.read("other", after=18) == [18, 19]
        assert not any(each.done() for each in needy)
        rule.release()
        ack, deleted, (_, cursor) = [await asyncio.wait_for(each, PATIENCE_S) for each in needy]
        assert (ack.first_seq, deleted.deleted, cursor.lag_seqs) == (13, 8, 18)
        assert (await world.append("full", 12, key="k")).deduped
        assert await world.read("full") == list(range(1, 13))
        assert segments.loaded_in_place == 0

    in_world(body, segment_max_events=4)


def test_cc01_a_reader_sees_everything_up_to_the_head_and_nothing_that_is_not_durable() -> None:
    async def body(world: World) -> None:
        await world.create("t")
        await world.append("t", 0)
        rule = world.faults.fail("fdatasync", "stall", path="*.log")
        waiting = world.begin(world.appending("t", 1))
        await world.reached(rule)
        behind = [world.begin(world.appending("t", number)) for number in (2, 3)]
        topic = world.engine.kernel.catalog.by_name["t"]
        assert topic.head == 1
        assert await world.read("t") == [0], "written, but not durable"
        rule.release()
        for write in (waiting, *behind):
            await asyncio.wait_for(write, PATIENCE_S)
            head = topic.head  # before the read: later writes may end while it is under way
            seen = await world.read("t")
            assert len(seen) >= head
            assert seen == list(range(len(seen))), "no slot is empty"
        assert topic.head == 4

    in_world(body)


def test_cc01_what_was_never_durable_is_never_seen() -> None:
    async def body(world: World) -> None:
        await world.create("t")
        await world.append("t", 0)
        world.faults.fail("fdatasync", errno.EIO, path="*.log")
        with pytest.raises(TopicsError):
            await world.append("t", 1)
        assert await world.read("t") == [0]
        assert world.engine.kernel.catalog.by_name["t"].head == 1

    async def without_the_last_sync(world: World) -> None:
        try:
            await body(world)
        finally:
            world.faults.clear()

    with pytest.raises(TopicsError):
        in_world(without_the_last_sync)  # a failed log says so again when it is closed


@pytest.mark.parametrize("durability", ["fsync", "disk", "ephemeral"])
def test_cc04_of_two_writes_with_one_key_at_once_one_appends(durability: str) -> None:
    async def body(world: World) -> None:
        await world.create("t", durability)
        rule = world.faults.fail("fdatasync", "stall", path="*.log")
        writes = [world.begin(world.appending("t", 1, 2, key="once")) for _ in range(4)]
        if durability == "fsync":
            await world.reached(rule)
            assert not any(write.done() for write in writes)
        rule.release()
        acks: list[Ack] = [await asyncio.wait_for(write, PATIENCE_S) for write in writes]
        assert [ack.deduped for ack in acks].count(False) == 1
        assert {(ack.first_seq, ack.last_seq) for ack in acks} == {(1, 2)}
        assert await world.read("t") == [1, 2]

    in_world(body)
