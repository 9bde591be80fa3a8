"""The access log and request ids of a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
from tests.blackbox.conftest import PATIENCE_S, ServerFactory, ServerProcess


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_request_is_logged_and_no_secret_is(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    path = tmp_path / "access.log"
    env = {"TOPICS_ACCESS_LOG": str(path), "TOPICS_API_KEYS": "first:w,hush-hush"}
    server = server_factory(env=env)
    headers = {"authorization": "Bearer hush-hush", "x-request-id": "mine"}
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        created = http.put("/v0/topics/t", json={}, headers=headers)
        refused = http.get("/v0/topics?token=hush-hush")
        missing = http.get("/v0/topics/none", headers=headers)
        forbidden = http.get("/v0/topics/t", headers={"authorization": "Bearer first"})
    answers = (created, refused, missing, forbidden)
    assert [answer.status_code for answer in answers] == [201, 401, 404, 403]
    assert created.headers["x-request-id"] == "mine"
    assert server.stop() == 0
    found = [line for line in lines(path) if not line["path"].endswith("/ready")]
    assert [(line["method"], line["path"], line["status"]) for line in found] == [
        ("PUT", "/v0/topics/t", 201),
        ("GET", "/v0/topics", 401),
        ("GET", "/v0/topics/none", 404),
        ("GET", "/v0/topics/t", 403),
    ]
    assert [line["key"] for line in found] == [2, None, 2, 1]
    assert found[0]["request_id"] == "mine"
    assert found[1]["request_id"] == refused.headers["x-request-id"]
    assert all(line["peer"].startswith("127.0.0.1") for line in found)
    assert "requests without a valid key from 127.0.0.1: 1" in server.stderr
    assert f"listening on {server.url}, data in {server.data_dir}" in server.stderr
    assert "hush" not in path.read_text() + server.stderr


def test_the_log_can_go_to_stdout(server_factory: ServerFactory) -> None:
    server = server_factory(flags=["--access-log", "-"])
    httpx.get(f"{server.url}/v0/health", headers={"x-request-id": "find-me"}, timeout=PATIENCE_S)
    assert server.stop() == 0
    assert '"request_id":"find-me"' in server.stderr, "the fixture joins both outputs"


def test_a_log_that_cannot_be_written_refuses_to_start(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_ACCESS_LOG": "/nowhere/at/all"}, start=False)
    server.launch()
    assert server.wait() == 2
    assert "TOPICS_ACCESS_LOG" in server.stderr
    assert "/nowhere/at/all" in server.stderr


def test_every_answer_carries_a_request_id(shared_server: ServerProcess) -> None:
    with httpx.Client(base_url=shared_server.url, timeout=PATIENCE_S) as http:
        answers = [
            http.get("/v0/health"),
            http.get("/nowhere"),
            http.post("/v0/health"),
            http.post("/v0/topics/t", content=b"{}"),
            http.post("/v0/topics/t", content=b"{}", headers={"content-encoding": "br"}),
        ]
        ids = [answer.headers["x-request-id"] for answer in answers]
        assert len(set(ids)) == len(ids)
        odd = http.get("/v0/health", headers={"x-request-id": "x" * 129})
        assert odd.headers["x-request-id"] != "x" * 129
