"""Many long reads in one turn of the loop: whoever else is there is not held up by them."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.http.turn_world import Worker, World, play, post, turn

from topics.delivery import loop_budget
from topics.delivery.live import LiveDelivery
from topics.engine.effects import run

RECORDS = 5


@pytest.fixture(autouse=True)
def _long_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read takes what reads may take of a turn."""
    monkeypatch.setattr(loop_budget, "BUDGET_NS", 0)


def diff(worker: Worker, after: int, **more: object) -> None:
    worker.connection.data_received(post("/v0/topics/t/diff", from_seq=after, **more))


async def begin(world: World, names: str) -> list[Worker]:
    """Clients of a topic with a few records."""
    engine, loop = world.shop.engine, asyncio.get_running_loop()
    world.service.attach(
        engine,
        LiveDelivery(engine, world.shop.loop, timers=world.shop.clock, schedule=loop.call_soon),
    )
    clients = world.hire(names)
    clients[0].append(*range(RECORDS), topic="t")
    await turn()
    assert clients[0].answer[0] == 201
    return clients


def seqs(worker: Worker) -> list[int]:
    ((status, page),) = worker.answers
    assert status == 200, page
    return [record["$seq"] for record in page["records"]]


def test_a_write_does_not_wait_for_the_long_reads_of_others() -> None:
    async def scene(world: World) -> None:
        writer, *readers = await begin(world, "wabcdefgh")
        for after, reader in enumerate(readers):
            diff(reader, after % RECORDS, include_tags=after >= RECORDS)
        writer.append("more", topic="t")
        await turn()
        assert writer.answer[0] == 200
        left = [reader for reader in readers if not reader.has_answer]
        assert len(left) >= len(readers) - 2
        for _ in readers:  # the last answer leaves a turn after it was made
            await turn()
        for after, reader in enumerate(readers):
            assert seqs(reader)[0] == after % RECORDS + 1

    play(scene)


@pytest.mark.parametrize("wait_ms", [0, 1000])
def test_a_read_that_had_to_wait_does_not_see_what_was_deleted_meanwhile(wait_ms: int) -> None:
    async def scene(world: World) -> None:
        _, first, second = await begin(world, "wab")
        diff(first, 0, wait_ms=wait_ms)
        diff(second, 0, wait_ms=wait_ms)  # of a page that is known by now
        run(world.shop.engine.delete("t", before=3, match=None))
        await turn()
        assert (seqs(first), seqs(second)) == ([1, 2, 3, 4, 5], [3, 4, 5])

    play(scene)


@pytest.mark.parametrize("wait_ms", [0, 1000])
def test_a_read_that_had_to_wait_is_told_that_its_topic_is_gone(wait_ms: int) -> None:
    async def scene(world: World) -> None:
        _, first, second = await begin(world, "wab")
        diff(first, 0, wait_ms=wait_ms)
        diff(second, 1, wait_ms=wait_ms)
        run(world.shop.engine.drop("t"))
        await turn()
        assert second.answer[0] == 404

    play(scene)


def test_who_leaves_while_a_read_waits_is_not_answered() -> None:
    async def scene(world: World) -> None:
        _, first, second = await begin(world, "wab")
        diff(first, 0)
        diff(second, 1, wait_ms=1000)
        second.leave()
        await turn()
        assert not second.has_answer

    play(scene)
