"""Writes of one turn are done together, each whole for itself and answered with its own seqs."""

from __future__ import annotations

import errno

import pytest
from tests.unit.http.turn_world import Worker, World, crowd, cut_off, play, post, turn
from tests.unit.queue.builders import QUEUE

from topics.batch import RecordBatch
from topics.engine.effects import Op, run
from topics.engine.reads.reading import Query
from topics.http.api import writing

PLAIN = "events"


def seqs(writer: Worker) -> list[int]:
    status, body = writer.answer
    assert status == 200, body
    found: list[int] = body["seqs"]
    assert (body["first_seq"], body["last_seq"]) == (found[0], found[-1])
    return found


async def hired(world: World, names: str) -> list[Worker]:
    """Clients that are expected to come together."""
    await crowd(world)
    return world.hire(names)


async def hold_writes_of(world: World, a: Worker, b: Worker) -> None:
    """They write together, the first with the key `k`, and the log keeps it for now."""
    world.shop.log.is_holding = True
    a.append("a", idempotency_key="k")
    b.append("b")
    await turn()


def stored(world: World, topic: str = QUEUE) -> list[object]:
    page = run(world.shop.engine.read(topic, Query()))
    return [(record.seq, record.data) for record in page.records]


pytestmark = pytest.mark.usefixtures("_patient")


def test_writes_of_one_turn_are_one_write_to_the_log_and_each_has_its_own_seqs() -> None:
    async def scene(world: World) -> None:
        a, b, c = await hired(world, "abc")
        run(world.shop.engine.append(QUEUE, RecordBatch([b'"first"'])))
        writes = len(world.shop.fs.trace)
        a.append("a1", "a2")
        b.append("b1")
        c.append("c1", "c2", "c3")
        assert not a.answers, "it waits for those who come in the same turn"
        await turn()
        assert [call.op for call in world.shop.fs.trace[writes:]] == ["pwrite"]
        assert (seqs(a), seqs(b), seqs(c)) == ([2, 3], [4], [5, 6, 7])
        values = ["first", "a1", "a2", "b1", "c1", "c2", "c3"]
        assert stored(world) == list(enumerate(values, start=1))

    play(scene, durability="disk")


def test_who_writes_alone_is_answered_without_waiting_for_others() -> None:
    async def scene(world: World) -> None:
        (a,) = world.hire("a")
        for value in range(3):
            a.append(value)
            assert world.shop.topic.head == value + 1
            await turn()
            assert seqs(a) == [value + 1]

    play(scene)


def test_tags_and_meta_stay_with_their_records() -> None:
    async def scene(world: World) -> None:
        a, b, c = await hired(world, "abc")
        topic = f"/v0/topics/{QUEUE}"
        a.connection.data_received(post(topic, records=[{"data": 1, "tag": "red"}]))
        b.append(2, node="n1")
        c.connection.data_received(post(topic, records=[{"data": 3, "meta": {"k": "v"}}]))
        await turn()
        assert (seqs(a), seqs(b), seqs(c)) == ([1], [2], [3])
        page = run(world.shop.engine.read(QUEUE, Query()))
        found = [(r.data, r.tag, r.node, r.meta) for r in page.records]
        assert found == [(1, "red", None, None), (2, None, "n1", None), (3, None, None, {"k": "v"})]

    play(scene)


def test_writes_to_several_topics_are_kept_apart() -> None:
    async def scene(world: World) -> None:
        a, b, c = await hired(world, "abc")
        run(world.shop.engine.append(PLAIN, RecordBatch([b"0"])))
        a.append("x")
        b.append("y", topic=PLAIN)
        c.append("z")
        await turn()
        assert (seqs(a), seqs(b), seqs(c)) == ([1], [2], [2])
        assert stored(world) == [(1, "x"), (2, "z")]

    play(scene)


def test_of_writes_that_make_their_topic_one_makes_it() -> None:
    async def scene(world: World) -> None:
        writers = await hired(world, "abc")
        for writer in writers:
            writer.append(writer.name, topic=PLAIN)
        await turn()
        answers = [writer.answer for writer in writers]
        assert [status for status, _ in answers] == [201, 200, 200]
        assert [body["seqs"] for _, body in answers] == [[1], [2], [3]]

    play(scene)


def test_writes_with_and_without_keys_are_one_write_to_the_log() -> None:
    async def scene(world: World) -> None:
        a, b, c, d = await hired(world, "abcd")
        run(world.shop.engine.append(QUEUE, RecordBatch([b'"first"'])))
        writes = len(world.shop.fs.trace)
        a.append("a1", "a2", idempotency_key="ka")
        b.append("b1")
        c.append("c1", idempotency_key="kc")
        line, _, rest = post(f"/v0/topics/{QUEUE}", records=[{"data": "d1"}]).partition(b"\r\n")
        d.connection.data_received(line + b"\r\nidempotency-key: kd\r\n" + rest)
        assert not a.answers, "it waits for those who come in the same turn"
        await turn()
        assert [call.op for call in world.shop.fs.trace[writes:]] == ["pwrite"]
        assert (seqs(a), seqs(b), seqs(c), seqs(d)) == ([2, 3], [4], [5], [6])
        values = ["first", "a1", "a2", "b1", "c1", "d1"]
        assert stored(world) == list(enumerate(values, start=1))
        for writer, key, seq in ((d, "ka", 2), (c, "kc", 5), (b, "kd", 6)):
            writer.append("again", idempotency_key=key)
            await turn()
            _, body = writer.answer
            assert (body["deduped"], body["first_seq"]) == (True, seq)

    play(scene, durability="disk")


def test_a_lone_write_with_a_key_is_answered_without_waiting_for_others() -> None:
    async def scene(world: World) -> None:
        (a,) = world.hire("a")
        for key, seq in (("k", 1), ("l", 2), ("k", 1), ("m", 3)):
            a.append(seq, idempotency_key=key)
            assert world.shop.topic.head >= seq
            await turn()
            status, body = a.answer
            assert (status, body["first_seq"]) == (200, seq)

    play(scene)


@pytest.mark.parametrize("durability", ["ephemeral", "disk", "fsync"])
def test_of_writes_of_one_turn_with_the_same_key_the_first_is_done(durability: str) -> None:
    async def scene(world: World) -> None:
        a, b, c, d = await hired(world, "abcd")
        a.append("a")
        b.append("b1", "b2", idempotency_key="k")
        c.append("c", idempotency_key="k")
        d.append("d", idempotency_key="l")
        await turn()
        assert (seqs(a), seqs(b), seqs(d)) == ([1], [2, 3], [4])
        _, body = c.answer
        assert (body["deduped"], body["first_seq"], body["last_seq"]) == (True, 2, 3)
        assert stored(world) == [(1, "a"), (2, "b1"), (3, "b2"), (4, "d")]

    play(scene, durability=durability)


def test_a_repeat_in_a_later_turn_waits_for_the_write_that_is_on_its_way() -> None:
    async def scene(world: World) -> None:
        a, b, c, d = await hired(world, "abcd")
        await hold_writes_of(world, a, b)
        assert len(world.shop.log.held) == 1
        c.append("c", idempotency_key="k")
        d.append("d", idempotency_key="l")
        await turn()
        assert not a.answers + b.answers + c.answers + d.answers
        world.shop.log.is_holding = False
        world.shop.log.let_go()
        world.shop.loop.settle()
        await turn()
        assert (seqs(a), seqs(b), seqs(d)) == ([1], [2], [3])
        _, body = c.answer
        assert (body["deduped"], body["first_seq"]) == (True, 1)
        assert stored(world) == [(1, "a"), (2, "b"), (3, "d")]

    play(scene, durability="fsync")


def test_a_repeat_of_a_write_that_failed_is_written() -> None:
    async def scene(world: World) -> None:
        a, b, c, d = await hired(world, "abcd")
        await hold_writes_of(world, a, b)
        c.append("c", idempotency_key="k")
        d.append("d", idempotency_key="k")
        await turn()
        world.shop.fs.fail("pwrite", errno.ENOSPC)
        world.shop.log.is_holding = False
        world.shop.log.let_go()
        world.shop.fs.clear()
        world.shop.engine.kernel.committer.try_heal()
        world.shop.loop.settle()
        await turn()
        assert [a.answer[0], b.answer[0]] == [500, 500]
        assert seqs(c) == [1]
        _, body = d.answer
        assert (body["deduped"], body["first_seq"]) == (True, 1)
        assert stored(world) == [(1, "c")]

    play(scene, durability="fsync")


def test_repeats_in_line_on_one_connection_are_answered_in_order() -> None:
    async def scene(world: World) -> None:
        (a,) = await hired(world, "a")
        keys: list[dict[str, object]] = [
            {},
            {"idempotency_key": "k"},
            {"idempotency_key": "k"},
            {},
            {"idempotency_key": "l", "expect_head": 3},
        ]
        lines = [
            post(f"/v0/topics/{QUEUE}", records=[{"data": value}], **said)
            for value, said in enumerate(keys)
        ]
        a.connection.data_received(b"".join(lines))
        await turn()
        await turn()
        assert [body["first_seq"] for _, body in a.answers] == [1, 2, 2, 3, 4]
        assert stored(world) == [(1, 0), (2, 1), (3, 3), (4, 4)]

    play(scene)


def test_a_key_does_not_lift_other_conditions() -> None:
    async def scene(world: World) -> None:
        a, b = await hired(world, "ab")
        a.append(1, idempotency_key="k", expect_head=7)
        b.append(2, idempotency_key="l")
        await turn()
        assert (a.answer[0], seqs(b)) == (409, [1])

    play(scene)


def test_conditions_are_looked_at_by_each_alone() -> None:
    async def scene(world: World) -> None:
        a, b, c = await hired(world, "abc")
        a.append(1, expect_head=0)
        b.append(2, idempotency_key="k")
        c.append(2, idempotency_key="k")
        await turn()
        assert (seqs(a), seqs(b)) == ([1], [2])
        assert c.answer[1]["deduped"] is True

    play(scene)


def test_a_topic_that_refuses_what_is_too_much_refuses_only_that() -> None:
    async def scene(world: World) -> None:
        a, b, c = await hired(world, "abc")
        a.append(1)
        b.append(2, 3, 4)
        c.append(5)
        await turn()
        assert (seqs(a), seqs(c)) == ([1], [2])
        status, body = b.answer
        assert (status, body["error"]["code"]) == (422, "topic_full"), body

    play(scene, cap_records=3, discard="reject")


def test_seqs_are_waited_for_together() -> None:
    async def scene(world: World) -> None:
        a, b = await hired(world, "ab")
        world.shop.log.is_holding = True
        many = list(range(900))
        a.append(*many)
        b.append(*many)
        await turn()
        assert not a.answers + b.answers
        assert len(world.shop.log.held) == 1, "one reservation"
        world.shop.log.let_go()
        world.shop.loop.settle()
        assert len(world.shop.log.held) == 1, "and one write"
        world.shop.log.is_holding = False
        world.shop.log.let_go()
        world.shop.loop.settle()
        await turn()
        assert (seqs(a)[0], seqs(b)[0]) == (1, 901)

    play(scene, durability="disk")


def test_synced_writes_are_answered_once_all_of_them_are_durable() -> None:
    async def scene(world: World) -> None:
        a, b = await hired(world, "ab")
        world.shop.log.is_holding = True
        a.append(1)
        b.append(2)
        await turn()
        assert not a.answers + b.answers
        assert len(world.shop.log.held) == 1
        syncs = world.shop.log.stats(0).syncs
        world.shop.log.let_go()
        world.shop.loop.settle()
        await turn()
        assert (seqs(a), seqs(b)) == ([1], [2])
        assert world.shop.log.stats(0).syncs == syncs + 1

    play(scene, durability="fsync")


def test_on_a_full_disk_each_is_told_and_no_seq_is_burnt() -> None:
    async def scene(world: World) -> None:
        a, b = await hired(world, "ab")
        a.append(0)
        await turn()
        assert seqs(a) == [1]
        world.shop.fs.fail("pwrite", errno.ENOSPC)
        a.append(1)
        b.append(2)
        await turn()
        assert [a.answer[0], b.answer[0]] == [500, 500]
        assert stored(world) == [(1, 0)]
        world.shop.fs.clear()
        world.shop.engine.kernel.committer.try_heal()
        a.append(3)
        b.append(4)
        await turn()
        assert (seqs(a), seqs(b)) == ([2], [3])

    play(scene, durability="disk")


def broken(*_: object) -> None:
    raise ZeroDivisionError


def broken_later(*_: object) -> Op[None]:
    yield from ()
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("names", "what", "bug"),
    [("a", "submit", broken), ("ab", "append_together", broken_later)],
)
def test_a_bug_is_told_to_all_who_met_it(
    names: str, what: str, bug: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: World) -> None:
        writers = await hired(world, names)
        monkeypatch.setattr(world.shop.engine, what, bug)
        for writer in writers:
            writer.append(1)
        await turn()
        assert [writer.answer[0] for writer in writers] == [500] * len(names)

    play(scene)


def test_a_connection_that_fails_keeps_nobody_else_from_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(world: World) -> None:
        writers = a, b, c = await hired(world, "abc")
        cut_off(a, monkeypatch)
        for writer in writers:
            writer.append(writer.name)
        await turn()
        assert (seqs(b), seqs(c)) == ([2], [3])
        assert not a.answers
        world.shop.fs.fail("pwrite", errno.ENOSPC)
        await crowd(world)
        (d,) = world.hire("d")
        cut_off(d, monkeypatch)
        for writer in (d, b, c):
            writer.append(writer.name)
        await turn()
        assert [b.answer[0], c.answer[0]] == [500, 500]

    play(scene, durability="disk")


def test_a_server_that_stops_within_the_turn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        for names in ("a", "ab"):
            writers = await hired(world, names)
            for writer in writers:
                writer.append(1)
            with monkeypatch.context() as patch:
                patch.setattr(world.service, "engine", None)
                await turn()
            for writer in writers:
                status, body = writer.answer
                assert (status, body["error"]["code"]) == (503, "not_ready")

    play(scene)


def test_requests_in_line_on_one_connection_stay_in_order() -> None:
    async def scene(world: World) -> None:
        (a,) = world.hire("a")
        topic = f"/v0/topics/{QUEUE}"
        lines = [post(topic, records=[{"data": value}]) for value in range(4)]
        a.connection.data_received(b"".join(lines))
        await turn()
        await turn()
        assert [body["seqs"] for _, body in a.answers] == [[1], [2], [3], [4]]
        assert stored(world) == [(1, 0), (2, 1), (3, 2), (4, 3)]

    play(scene)


@pytest.mark.parametrize(
    "more", [{"expect_head": 2}, {"idempotency_key": "k"}, {"disable_backpressure": True}]
)
def test_one_with_conditions_in_line_behind_plain_ones_is_written_behind_them(
    more: dict[str, object],
) -> None:
    async def scene(world: World) -> None:
        (a,) = await hired(world, "a")
        topic = f"/v0/topics/{QUEUE}"
        conditions: list[dict[str, object]] = [{}, {}, more, {}]
        lines = [
            post(topic, records=[{"data": value}], **said) for value, said in enumerate(conditions)
        ]
        a.connection.data_received(b"".join(lines))
        await turn()
        await turn()
        assert [body.get("seqs") for _, body in a.answers] == [[1], [2], [3], [4]]
        assert stored(world) == [(1, 0), (2, 1), (3, 2), (4, 3)]

    play(scene)


def test_what_was_sent_is_written_though_the_sender_has_gone() -> None:
    async def scene(world: World) -> None:
        a, b = await hired(world, "ab")
        a.append(1)
        b.append(2)
        a.leave()
        await turn()
        assert seqs(b) == [2]
        assert stored(world) == [(1, 1), (2, 2)]

    play(scene)


def test_a_turn_is_cut_before_it_is_too_much_to_write_at_once() -> None:
    async def scene(world: World) -> None:
        a, b, c = await hired(world, "abc")
        half = "x" * (writing.MOST_BYTES // 2)
        a.append(half)
        b.append("small")
        assert not a.answers
        c.append(half)
        assert (seqs(a), seqs(b)) == ([1], [2])
        assert not c.answers
        await turn()
        assert seqs(c) == [3]

    play(scene)
