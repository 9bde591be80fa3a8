"""Clients that people really use, each doing the whole job: write, read, follow, publish."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from websockets.sync.client import connect as ws_connect

SERVER_ENV = {"TOPICS_API_KEYS": "key"}
KEY = {"authorization": "Bearer key"}
RECORDS = {"records": [{"data": {"n": n}} for n in range(3)]}


def curl(*arguments: str, data: object = None) -> tuple[int, str]:
    """Run curl; returns the status and the body."""
    command = ["curl", "-sS", "-w", "\n%{http_code}", "-H", "authorization: Bearer key"]
    if data is not None:
        command += ["-H", "content-type: application/json", "--data-binary", json.dumps(data)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    body, status = done.stdout.rsplit("\n", 1)
    return int(status), body


# curl


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_curl_does_the_whole_job(
    shared_server: ServerProcess, topic: str, tmp_path: Path, version: str
) -> None:
    url = f"{shared_server.url}/v0/topics/{topic}"
    status, body = curl(version, "-X", "PUT", url, data={"durability": "fsync"})
    assert (status, json.loads(body)["created"]) == (201, True)
    assert curl(version, url, data=RECORDS)[0] == 200
    status, body = curl(version, f"{url}/diff", data={"limit": 2})
    assert [record["$seq"] for record in json.loads(body)["records"]] == [1, 2]
    assert curl(version, "-I", url)[0] == 200
    zipped = tmp_path / "zipped"
    subprocess.run(f"echo '{json.dumps(RECORDS)}' | gzip > {zipped}", shell=True, check=True)
    json_type = "content-type: application/json"
    arguments = ["-H", json_type, "-H", "content-encoding: gzip", "--data-binary", f"@{zipped}"]
    assert json.loads(curl(version, *arguments, url)[1])["seqs"] == [4, 5, 6]
    assert json.loads(curl(version, "--compressed", f"{url}/diff", data={})[1])["lag"] == 0
    assert curl(version, "-H", "expect: 100-continue", url, data=RECORDS)[0] == 200
    assert curl(version, "-H", "transfer-encoding: chunked", url, data=RECORDS)[0] == 200
    _, made = curl(version, f"{shared_server.url}/v0/watch", data={"topics": {topic: {}}})
    stream = shared_server.url + json.loads(made)["stream_url"]
    followed = curl_follows(version, f"{stream}?token=key", until='"$seq":12,')
    assert followed.startswith("retry: 2000\n\nid: ")
    assert json.loads(curl(version, "-X", "DELETE", url)[1])["deleted"] is True


def curl_follows(version: str, url: str, *, until: str) -> str:
    """What curl shows of a stream up to a text; the stream has not ended by then."""
    command = ["curl", "-sSN", version, "--max-time", str(PATIENCE_S), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        shown = ""
        while until not in shown:
            line = following.stdout.readline()
            assert line, f"the stream ended after {shown}"
            shown += line
        assert following.poll() is None
        following.kill()
    return shown


# httpx


@pytest.mark.parametrize("http2", [False, True])
def test_httpx_writes_side_by_side_and_follows(
    shared_server: ServerProcess, topic: str, http2: bool
) -> None:
    found = asyncio.run(_httpx_job(shared_server.url, topic, http2=http2))
    assert found == list(range(1, 31))


async def _httpx_job(url: str, topic: str, *, http2: bool) -> list[int]:
    async with httpx.AsyncClient(
        base_url=url, http1=not http2, http2=http2, headers=KEY, timeout=PATIENCE_S
    ) as client:
        path = f"/v0/topics/{topic}"
        (await client.put(path, json={})).raise_for_status()
        made = (await client.post("/v0/watch", json={"topics": {topic: {}}})).json()

        async def follow() -> list[int]:
            seen: list[int] = []
            async with client.stream("GET", made["stream_url"]) as stream:
                assert stream.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
                async for line in stream.aiter_lines():
                    if line.startswith("data: ") and "records" in line:
                        page: dict[str, Any] = json.loads(line[6:])
                        seen += [record["$seq"] for record in page["records"]]
                    if len(seen) == 30:
                        break
            return seen

        following = asyncio.create_task(follow())
        writes = [client.post(path, json=RECORDS) for _ in range(10)]
        for answer in await asyncio.gather(*writes):
            answer.raise_for_status()
        return await following


# aiohttp


def test_aiohttp_does_the_whole_job(shared_server: ServerProcess, topic: str) -> None:
    asyncio.run(_aiohttp_job(shared_server.url, topic))


async def _aiohttp_job(url: str, topic: str) -> None:
    async with aiohttp.ClientSession(url, headers=KEY) as session:
        async with session.post(f"/v0/topics/{topic}", json=RECORDS) as answer:
            assert answer.status == 201
        async with session.post(f"/v0/topics/{topic}/diff", json={}) as answer:
            assert len((await answer.json())["records"]) == 3
        async with session.post("/v0/watch", json={"topics": {topic: {}}}) as answer:
            made = await answer.json()
        async with session.get(made["stream_url"]) as stream:
            assert stream.content_type == "text/event-stream"
            assert await stream.content.readuntil(b"\n\n") == b"retry: 2000\n\n"
            assert b'"$seq":3,' in await stream.content.readuntil(b"\n\n")
        async with session.ws_connect("/v0/ws") as socket:
            await socket.send_json({"op": "subscribe", "topic": topic, "from_seq": 2})
            assert [(await socket.receive_json())["op"] for _ in range(3)] == [
                "subscribed",
                "record",
                "caught_up",
            ]
            await socket.send_json({"op": "publish", "topic": topic, "records": [{"data": 1}]})
            told = [await socket.receive_json() for _ in range(3)]
            assert {message["op"] for message in told} == {"ack", "record", "caught_up"}


# websockets


@pytest.fixture
def sockets(shared_server: ServerProcess) -> Iterator[Any]:
    url = shared_server.url.replace("http", "ws") + "/v0/ws"
    with ws_connect(url, additional_headers=KEY, open_timeout=PATIENCE_S) as socket:
        yield socket


def test_websockets_publishes_and_hears_itself(sockets: Any, topic: str) -> None:  # noqa: ANN401
    sockets.send(json.dumps({"op": "publish", "topic": topic, **RECORDS, "request_id": 1}))
    ack = json.loads(sockets.recv(timeout=PATIENCE_S))
    assert (ack["op"], ack["request_id"], ack["seqs"]) == ("ack", 1, [1, 2, 3])
    sockets.send(json.dumps({"op": "subscribe", "topic": topic}))
    assert json.loads(sockets.recv(timeout=PATIENCE_S))["op"] == "subscribed"
    record = json.loads(sockets.recv(timeout=PATIENCE_S))
    assert [found["$seq"] for found in record["records"]] == [1, 2, 3]
    pong = sockets.ping()
    assert pong.wait(PATIENCE_S)
