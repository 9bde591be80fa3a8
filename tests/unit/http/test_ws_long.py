"""Long commands on a WebSocket are answered like short ones, in their order."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import cast

import pytest
from tests.unit.delivery.builders import World
from tests.unit.http.test_ws_shutdown import GOODBYE, Peer, connect, world

from topics.errors import Internal
from topics.http.ws.commands import INTERNAL_ERROR, LAST_ANSWER_MS
from topics.wire import requests

__all__ = ["world"]


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONG_BODY_BYTES", 300)


def command(op: str, request_id: int, **more: object) -> bytes:
    padding = "x" * 300
    return json.dumps({"op": op, "request_id": request_id, "x": padding, **more}).encode()


def publish(request_id: int, count: int = 3, **more: object) -> bytes:
    records = [{"data": number} for number in range(count)]
    return command("publish", request_id, topic="orders", records=records, **more)


def refusal(peer: Peer) -> tuple[object, object]:
    (message,) = peer.messages
    assert message["op"] == "error"
    return message["request_id"], message["code"]


def test_a_long_publish_is_acked_with_its_seqs(world: World) -> None:
    peer = connect(world)
    peer.say(publish(1))
    peer.say(publish(2, idempotency_key="k"))
    peer.say(publish(3, idempotency_key="k", return_seqs=False))
    acks = [(x["op"], x["request_id"], x["seqs"], x["deduped"]) for x in peer.messages]
    assert acks == [
        ("ack", 1, [1, 2, 3], False),
        ("ack", 2, [4, 5, 6], False),
        ("ack", 3, None, True),
    ]


def test_other_long_commands_are_answered_too(world: World) -> None:
    peer = connect(world)
    peer.say(command("ping", 1))
    peer.say(command("subscribe", 2, topic="orders"))
    peer.say(command("unsubscribe", 3, topic="orders"))
    told = [kind for kind in peer.told if kind[1] is not None]
    assert told == [("pong", 1), ("subscribed", 2), ("unsubscribed", 3)]


def test_what_nobody_can_read_is_refused_without_an_id(world: World) -> None:
    peer = connect(world)
    peer.say(publish(1)[:-1])
    assert refusal(peer) == (None, "invalid_json")


def test_what_is_beyond_limits_is_refused_with_its_id(world: World) -> None:
    peer = connect(world)
    too_many = world.engine.kernel.settings.max_batch_records + 1
    peer.say(publish(1, too_many))
    assert refusal(peer) == (1, "batch_too_large")


def test_a_mistake_in_the_engine_is_told_with_the_id(world: World) -> None:
    peer = connect(world)
    peer.say(publish(1, expect_head=7))
    assert refusal(peer) == (1, "head_mismatch")


def test_a_server_that_stops_while_it_reads_answers_first(world: World) -> None:
    peer = connect(world)
    world.runner.held = True
    peer.say(command("ping", 1))
    world.delivery.shut_down()
    assert peer.told == []
    world.runner.release()
    assert (peer.told, peer.code) == ([("pong", 1), GOODBYE], 1001)
    world.advance(LAST_ANSWER_MS)
    assert len(peer.told) == 2, "said once"


def test_a_peer_that_leaves_while_it_is_read_is_told_nothing(world: World) -> None:
    peer = connect(world)
    world.runner.held = True
    peer.say(publish(1))
    peer.leave()
    world.runner.release()
    assert peer.told == []


def test_what_a_peer_sent_that_left_while_in_line_takes_no_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def noted(message: bytes) -> Generator[None, None, None]:
        read.append(message)
        yield

    monkeypatch.setattr(requests, "decode_command_in_steps", noted)
    peer = connect(world)
    world.runner.held = True
    message = bytearray(publish(1))  # of which nobody else has a copy
    told = memoryview(message)
    peer.say(cast(bytes, told))
    del told
    with pytest.raises(BufferError):
        message.clear()  # while somebody looks at it
    peer.leave()
    message.clear()
    world.runner.release()
    assert read == []


def test_a_failure_of_our_own_closes_the_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_message: bytes) -> Generator[None, None, None]:
        yield
        raise Internal("broken")

    monkeypatch.setattr(requests, "decode_command_in_steps", broken)
    peer = connect(world)
    peer.say(publish(1))
    assert (peer.told, peer.code) == ([], INTERNAL_ERROR)
