"""Claims and acks of one turn are done together, and each is answered for itself."""

from __future__ import annotations

import errno

import pytest
from tests.unit.http.turn_world import World, crowd, cut_off, play, request, turn
from tests.unit.queue.builders import QUEUE

from topics.engine.effects import run
from topics.http import tick as tick_module

pytestmark = pytest.mark.usefixtures("_patient")


def test_acks_of_one_turn_are_one_write_and_each_has_its_own_answer() -> None:
    async def scene(world: World) -> None:
        a, b, c = world.hire("abc")
        world.shop.append(6)
        for worker in (a, b):
            worker.claim(2)
        await turn()
        assert (a.seqs, b.seqs) == ([1, 2], [3, 4])
        writes = len(world.shop.fs.trace)
        a.ack(1, 2)
        b.ack(4, 3, 4)
        c.ack(1)
        assert not a.answers, "it waits for those who come in the same turn"
        await turn()
        assert [call.op for call in world.shop.fs.trace[writes:]] == ["pwrite"]
        for worker, acked, skipped in ((a, 2, []), (b, 2, [4]), (c, 0, [1])):
            status, body = worker.answer
            assert (status, body["acked"], body["skipped"]) == (200, acked, skipped)
            assert (body["ready"], body["in_flight"]) == (2, 0)

    play(scene, durability="disk")


def test_who_comes_alone_is_served_without_waiting_for_others() -> None:
    async def scene(world: World) -> None:
        (a,) = world.hire("a")
        world.shop.append(2)
        a.claim(1)
        assert world.shop.counts().in_flight == 1
        await turn()
        assert a.seqs == [1]
        a.ack(1)
        assert world.shop.counts().in_flight == 0
        await turn()
        assert a.answer[1]["acked"] == 1

    play(scene)


def test_on_a_full_disk_each_ack_of_a_turn_is_told_and_no_job_is_lost() -> None:
    async def scene(world: World) -> None:
        a, b, c = world.hire("abc")
        world.shop.append(4)
        a.claim(2)
        b.claim(1)
        await turn()
        assert (a.seqs, b.seqs) == ([1, 2], [3])
        world.shop.fs.fail("pwrite", errno.ENOSPC)
        a.ack(1, 2)
        b.ack(3)
        c.ack(1)
        await turn()
        refused = [worker.answer for worker in (a, b)]
        assert [status for status, _ in refused] == [500, 500]
        assert {body["error"]["code"] for _, body in refused} == {"internal"}
        status, body = c.answer
        assert (status, body["acked"], body["skipped"], body["ready"]) == (200, 0, [1], 4)
        c.claim(9)
        await turn()
        status, body = c.answer
        assert [(job["$seq"], job["deliveries"]) for job in body["claimed"]] == [
            (1, 2),
            (2, 2),
            (3, 2),
            (4, 1),
        ]

    play(scene, durability="disk")


def test_acks_of_a_synced_queue_are_answered_once_they_are_durable() -> None:
    async def scene(world: World) -> None:
        a, b = world.hire("ab")
        world.shop.append(2)
        a.claim(1)
        b.claim(1)
        await turn()
        assert (a.seqs, b.seqs) == ([1], [2])
        world.shop.log.is_holding = True
        a.ack(1)
        b.ack(2)
        await turn()
        assert not a.answers + b.answers
        assert len(world.shop.log.held) == 1
        world.shop.log.let_go()
        world.shop.loop.settle()
        await turn()
        assert (a.answer[1]["acked"], b.answer[1]["acked"]) == (1, 1)

    play(scene, durability="fsync")


def test_a_log_that_fails_them_later_tells_each_of_them() -> None:
    async def scene(world: World) -> None:
        a, b = world.hire("ab")
        world.shop.append(2)
        a.claim(1)
        b.claim(1)
        await turn()
        assert (a.seqs, b.seqs) == ([1], [2])
        world.shop.log.is_holding = True
        a.ack(1)
        b.ack(2)
        await turn()
        world.shop.fs.fail("fdatasync", errno.EIO)
        world.shop.log.let_go()
        world.shop.loop.settle()
        await turn()
        assert [a.answer[0], b.answer[0]] == [500, 500]
        assert world.shop.counts().ready == 2

    play(scene, durability="fsync")


def test_who_has_gone_before_the_end_of_the_turn_claims_nothing() -> None:
    async def scene(world: World) -> None:
        a, b = world.hire("ab")
        await crowd(world)
        world.shop.append(3)
        a.claim(2)
        b.claim(2)
        a.leave()
        await turn()
        assert b.seqs == [1, 2]
        assert world.shop.counts().in_flight == 2

    play(scene)


def test_who_goes_while_jobs_are_fetched_gives_them_back() -> None:
    async def scene(world: World) -> None:
        a, b = world.hire("ab")
        world.shop.append(4)
        world.shop.engine.checkpoint()
        world.is_busy = True
        a.claim(2)
        b.claim(2)
        await turn()
        assert not b.answers
        a.connection.eof_received()
        world.go_on()
        await turn()
        assert (a.seqs, b.seqs) == ([], [3, 4])
        assert world.shop.counts().ready == 2

    play(scene)


def test_a_queue_that_goes_within_the_turn_is_gone_for_all_who_asked() -> None:
    async def scene(world: World) -> None:
        a, b = world.hire("ab")
        await crowd(world)
        world.shop.append(2)
        a.claim(1)
        b.ack(1)
        run(world.shop.engine.drop(QUEUE))
        await turn()
        for worker in (a, b):
            status, body = worker.answer
            assert (status, body["error"]["code"]) == (404, "topic_not_found")

    play(scene)


def test_a_bug_is_told_to_all_who_met_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        a, b = world.hire("ab")
        world.shop.append(2)

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(world.shop.engine, "frames_at_hand", broken)
        a.claim(1)
        b.claim(1)
        await turn()
        assert [a.answer[0], b.answer[0]] == [500, 500]

    play(scene)


def test_a_connection_that_fails_keeps_nobody_else_from_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(world: World) -> None:
        await crowd(world)
        a, b, c = world.hire("abc")
        world.shop.append(3)
        cut_off(a, monkeypatch)
        for worker in (a, b, c):
            worker.claim(1)
        await turn()
        assert (b.seqs, c.seqs) == ([2], [3])

    play(scene)


def test_requests_in_line_on_one_connection_stay_in_order() -> None:
    async def scene(world: World) -> None:
        (a,) = world.hire("a")
        world.shop.append(3)
        a.claim(1)
        await turn()
        assert a.seqs == [1]
        ack, claim = request("ack", node="a", seqs=[1]), request("claim", node="a", max=1)
        a.connection.data_received(ack + claim + ack + claim)
        await turn()
        bodies = [body for status, body in a.answers if status == 200]
        assert [body.get("acked") for body in bodies] == [1, None, 0, None]
        claimed = [body["claimed"][0]["$seq"] for body in bodies if "claimed" in body]
        assert claimed == [2, 3]

    play(scene)


def test_a_turn_is_cut_when_the_first_has_waited_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        a, b, c = world.hire("abc")
        await crowd(world)
        world.shop.append(3)
        a.claim(1)
        monkeypatch.setattr(tick_module, "HELD_NS", -1)
        b.claim(1)
        monkeypatch.setattr(tick_module, "HELD_NS", 1 << 62)
        c.claim(1)
        assert a.seqs == [1], "it had to wait no longer"
        assert not b.answers + c.answers
        await turn()
        assert (b.seqs, c.seqs) == ([2], [3])

    play(scene)


def test_a_turn_is_cut_before_it_is_about_more_jobs_than_one_call_may_name() -> None:
    async def scene(world: World) -> None:
        a, b, c = world.hire("abc")
        await crowd(world)
        world.shop.append(3)
        a.ack(*range(10, 900))
        b.ack(*range(10, 110))
        assert not b.answers
        c.ack(*range(10, 20))
        assert (len(a.answer[1]["skipped"]), len(b.answer[1]["skipped"])) == (890, 100)
        assert not c.answers
        await turn()
        assert len(c.answer[1]["skipped"]) == 10

    play(scene)


def test_claims_that_wait_for_each_other_by_the_clock_are_dealt_out() -> None:
    async def scene(world: World) -> None:
        a, b = world.hire("ab")
        world.shop.append(4)
        a.claim(4)
        b.claim(4)
        await turn()
        assert not a.answers + b.answers
        world.shop.loop.advance(50)
        await turn()
        assert (a.seqs, b.seqs) == ([1, 3], [2, 4])

    play(scene, claim_jitter_ms=50)
