"""What a WebSocket is told by a server that stops."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from tests.unit.delivery.builders import World, memory_world

from topics.http.api.auth import ANYONE, Keyring
from topics.http.api.call import Call
from topics.http.api.service import HttpLimits, Service
from topics.http.messages import Upgrade
from topics.http.ws.commands import LAST_ANSWER_MS, Socket

PUBLISH = b'{"op":"publish","topic":"orders","records":[{"data":1}],"request_id":7}'
GOODBYE = ("error", "server_shutting_down")


class Peer(Upgrade):
    """The other end, which takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []
        self.code = 0

    @property
    def told(self) -> list[tuple[str, object]]:
        """The kind of each message, and which of that kind."""
        return [(x["op"], x.get("code") or x.get("request_id")) for x in self.messages]

    def send_text(self, data: bytes) -> bool:
        assert not self.closed
        self.messages.append(json.loads(data))
        return True

    @property
    def queued_messages(self) -> int:
        return 0

    @property
    def queued_bytes(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, code: int = 1000, reason: str = "") -> None:
        self.closed, self.code = True, code

    def say(self, command: bytes) -> None:
        assert self.on_text is not None
        self.on_text(command)

    def leave(self) -> None:
        assert self.on_close is not None
        self.closed = True
        self.on_close(1006)


class _Opening:
    """The request that became a socket."""

    principal = ANYONE

    def __init__(self, service: Service) -> None:
        self.service = service


@pytest.fixture
def world() -> World:
    world = memory_world()
    world.put("orders")
    return world


def connect(world: World) -> Peer:
    service = Service(
        version="0",
        clock=world.clock,
        keyring=Keyring(""),
        limits=HttpLimits(),
        runner=world.runner,
    )
    service.attach(world.engine, world.delivery)
    service.open_stream(None)
    peer = Peer()
    world.delivery.connections[Socket(cast(Call, _Opening(service)), peer)] = None
    return peer


def test_a_quiet_socket_is_closed_at_once(world: World) -> None:
    peer = connect(world)
    world.delivery.shut_down()
    assert (peer.told, peer.code) == ([GOODBYE], 1001)


def test_a_command_under_way_is_answered_before_the_goodbye(world: World) -> None:
    peer = connect(world)
    world.runner.held = True
    peer.say(PUBLISH)
    world.delivery.shut_down()
    assert peer.told == []
    world.runner.release()
    assert (peer.told, peer.code) == ([("ack", 7), GOODBYE], 1001)
    world.advance(LAST_ANSWER_MS)
    assert len(peer.told) == 2, "said once"


def test_a_command_that_takes_too_long_does_not_hold_up_the_goodbye(world: World) -> None:
    peer = connect(world)
    world.runner.held = True
    peer.say(PUBLISH)
    world.delivery.shut_down()
    world.advance(LAST_ANSWER_MS)
    assert (peer.told, peer.code) == ([GOODBYE], 1001)
    world.runner.release()
    assert peer.told == [GOODBYE]


def test_a_peer_that_leaves_meanwhile_is_told_nothing(world: World) -> None:
    peer = connect(world)
    world.runner.held = True
    peer.say(PUBLISH)
    world.delivery.shut_down()
    peer.leave()
    world.runner.release()
    world.advance(LAST_ANSWER_MS)
    assert peer.told == []
