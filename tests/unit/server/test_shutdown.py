"""What a server that stops does about work it has no time for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from topics.delivery import loop_budget
from topics.server import config, serve
from topics.server.serve import Server
from topics.wire import requests

ROW = b'{"data":"' + b"x" * 100 + b'"}'
BODY = b'{"records":[%b]}' % b",".join([ROW] * 5000)
HEAD = b"POST /v0/topics/%b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(autouse=True)
def _no_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A turn of the loop after every step of a long body, and none to finish it at the end."""
    monkeypatch.setattr(requests, "LONG_BODY_BYTES", 4000)
    monkeypatch.setattr(loop_budget, "BUDGET_NS", 0)
    monkeypatch.setattr(serve, "DRAIN_SECONDS", 0)
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


async def until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110 - a server tells nobody inside its process
        await asyncio.sleep(0)


def address_in(path: Path) -> tuple[str, int]:
    host, _, port = path.read_text().rpartition(":")
    return host, int(port)


async def answer_to_a_long_write(host: str, port: int, topic: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(HEAD % topic + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
    answer = await reader.read()
    writer.close()
    return answer


def test_long_bodies_still_in_line_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port_file = tmp_path / "port"
    settings = config.load(
        {
            "TOPICS_HOST": "127.0.0.1",
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(port_file),
            "TOPICS_DATA_DIR": str(tmp_path / "data"),
        }
    )

    async def scene() -> None:
        server = Server(settings)
        running = asyncio.create_task(server.run())
        await until(lambda: server.service.engine is not None)
        host, port = address_in(port_file)
        writes = [
            asyncio.create_task(answer_to_a_long_write(host, port, topic)) for topic in (b"a", b"b")
        ]
        await until(lambda: len(server.service.long_bodies) == len(writes))
        server.stopping.set()
        for answer in await asyncio.gather(*writes):
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b'"shutting_down"' in answer
        assert await running == 0

    asyncio.run(scene())
    assert "failed" not in caplog.text
