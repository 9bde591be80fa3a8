"""The console is served by the same process, to everybody, and asks nobody else for anything."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.blackbox.api_client import plain
from tests.blackbox.conftest import ServerProcess

from topics import console

SERVER_ENV = {"TOPICS_API_KEYS": "secret,reader:read:mine."}
BOSS = {"authorization": "Bearer secret"}
READER = {"authorization": "Bearer reader"}
PATIENCE_S = 60.0
BUDGET_BYTES = 200_000
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_a_browser_is_led_to_the_console_and_a_program_is_not(shared_server: ServerProcess) -> None:
    led = plain(shared_server, "GET", "/", headers=HTML)
    assert (led.status, led.headers["location"]) == (302, "/console/")
    for accept in ("application/json", "*/*"):
        assert plain(shared_server, "GET", "/", headers={"accept": accept}).status == 401


@pytest.mark.parametrize("path", sorted(console.assets()))
def test_every_file_is_served_once(shared_server: ServerProcess, path: str) -> None:
    found = plain(shared_server, "GET", f"/console/{path}")
    assert (found.status, found.body) == (200, console.assets()[path].body)
    assert found.headers["x-content-type-options"] == "nosniff"
    again = {"if-none-match": found.headers["etag"]}
    assert plain(shared_server, "GET", f"/console/{path}", headers=again).status == 304


def test_the_page_may_run_nothing_but_its_own_files(shared_server: ServerProcess) -> None:
    page = plain(shared_server, "GET", "/console/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page.body.decode())


def test_the_page_is_there_for_a_link_from_elsewhere(shared_server: ServerProcess) -> None:
    headers = HTML | {"sec-fetch-site": "cross-site", "host": "topics.example.com"}
    assert plain(shared_server, "GET", "/console/", headers=headers).status == 200


def test_a_key_is_told_what_it_may_do(shared_server: ServerProcess) -> None:
    found = plain(shared_server, "GET", "/v0/key", headers={"authorization": "Bearer reader"})
    rights = json.loads(found.body)
    del rights["performance"]
    assert rights == {"auth": True, "scopes": ["read"], "prefixes": ["mine."]}
    assert plain(shared_server, "GET", "/v0/key").status == 401


def test_the_history_shows_a_key_only_what_it_may_read(shared_server: ServerProcess) -> None:
    headers = {"authorization": "Bearer reader"}
    found = plain(shared_server, "GET", "/v0/history?topic=other", headers=headers)
    assert (found.status, found.code) == (403, "forbidden")
    assert plain(shared_server, "GET", "/v0/history?topic=mine.a", headers=headers).status == 200


def test_the_console_stays_within_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {path: len(gzip.compress(asset.body)) for path, asset in console.assets().items()}
    sent = {path: size for path, size in sizes.items() if not path.startswith("vendor/LICENSE")}
    with capsys.disabled():
        print(f"\nconsole: {len(sent)} files, {sum(sent.values())} bytes compressed")
    assert sum(sent.values()) <= BUDGET_BYTES


def test_files_of_others_are_as_they_were_released() -> None:
    vendored = {path for path in console.assets() if path.startswith("vendor/")}
    manifest = json.loads(console.assets()["vendor/manifest.json"].body)
    named = {f"vendor/{entry['file']}" for entry in manifest}
    licences = {f"vendor/{entry['licence_file']}" for entry in manifest}
    assert vendored == named | licences | {"vendor/manifest.json"}
    for entry in manifest:
        body = console.assets()[f"vendor/{entry['file']}"].body
        for new, old in entry["changed"].items():
            body = body.replace(new.encode(), old.encode())
        assert hashlib.sha256(body).hexdigest() == entry["sha256"], entry["file"]
        assert entry["version"]
        assert entry["licence"]


def api(
    server: ServerProcess, method: str, path: str, body: object = None, key: str = "secret"
) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {key}"}
    answer = httpx.request(method, server.url + path, json=body, headers=headers, timeout=90)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def history_with(server: ServerProcess, there: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The history once a sample has seen what is waited for."""
    until = time.monotonic() + PATIENCE_S
    while not there(found := api(server, "GET", "/v0/history")):
        assert time.monotonic() < until, found
        time.sleep(0.5)
    return found


def test_the_history_tells_what_is_wrong_where_and_how_much_room_is_left(
    shared_server: ServerProcess,
) -> None:
    server = shared_server
    for prefix in ("mine.", "other."):
        api(server, "PUT", f"/v0/topics/{prefix}jobs", {"type": "queue"})
        api(server, "POST", f"/v0/topics/{prefix}jobs", {"records": [{"data": 1}]})
        api(server, "PUT", f"/v0/topics/{prefix}log", {"cap_records": 2})
        api(server, "POST", f"/v0/topics/{prefix}log", {"records": [{"data": 1}] * 5})
        api(server, "PUT", f"/v0/topics/{prefix}log/cursors/slow", {"seq": 1})
        stage = {"records": [{"topic": f"{prefix}out", "data": 1}]}
        api(server, "POST", f"/v0/stages/{prefix}app/1/0/0", stage)
        api(server, "POST", f"/v0/stages/{prefix}app/1/commit", {"parts": [[0, 0]]})
    found = history_with(server, lambda told: len(told["apps"]) == 2)
    wrong = {(told["topic"], told["part"]): told["what"] for told in found["wrong"]}
    assert wrong["mine.jobs", "jobs"] == "1 job is ready, and no worker holds any."
    assert wrong["mine.log", "consumers"] == "slow was too slow: records it has not read are lost."
    assert 0 < found["now"]["disk_free_bytes"] <= found["now"]["disk_total_bytes"]
    assert found["now"]["log_bytes"] > 0
    assert {(c["topic"], c["cursor"], c["lag_records"]) for c in found["consumers"]} == {
        ("mine.log", "slow", 2),
        ("other.log", "slow", 2),
    }
    assert {app["app"]: app["topics"] for app in found["apps"]}["mine.app"] == ["mine.out"]
    limited = json.dumps(api(server, "GET", "/v0/history", key="reader"))
    assert "mine.log" in limited
    assert "other." not in limited
    of_topic = api(server, "GET", "/v0/history?topic=mine.log")
    assert of_topic["cursors"]["slow"][-1] == 2
    assert of_topic["cursor_seconds"]["slow"][-1] > 0


def test_a_history_that_did_not_change_is_not_sent_again(shared_server: ServerProcess) -> None:
    until = time.monotonic() + PATIENCE_S
    status = 200
    while status != 304:  # a step may have ended between the two requests
        assert time.monotonic() < until
        first = plain(shared_server, "GET", "/v0/history", headers=BOSS)
        again = BOSS | {"if-none-match": first.headers["etag"]}
        status = plain(shared_server, "GET", "/v0/history", headers=again).status
    other = READER | {"if-none-match": first.headers["etag"]}
    assert plain(shared_server, "GET", "/v0/history", headers=other).status == 200


def test_the_console_and_the_command_explain_a_topic_in_the_same_sentences(
    shared_server: ServerProcess,
) -> None:
    server = shared_server
    api(server, "PUT", "/v0/topics/told", {"cap_records": 2})
    api(server, "POST", "/v0/topics/told", {"records": [{"data": 1}] * 5})
    api(server, "PUT", "/v0/topics/told/cursors/slow", {"seq": 1})
    letters = {"type": "queue", "dead_letter": "told.dead", "max_deliveries": 1}
    api(server, "PUT", "/v0/topics/told.jobs", letters)
    api(server, "POST", "/v0/topics/told.jobs", {"records": [{"data": 1}] * 2})
    api(server, "POST", "/v0/topics/told.jobs/claim", {"node": "w"})
    api(server, "POST", "/v0/topics/told.jobs/nack", {"node": "w", "seqs": [1]})
    api(server, "POST", "/v0/topics/told.jobs/claim", {"node": "w"})
    api(server, "PUT", "/v0/routers/told", {"source": "told", "dest": "told.copy"})
    for topic, findings in (("told", 2), ("told.jobs", 2), ("told.copy", 1)):
        found = api(server, "GET", f"/v0/topics/{topic}/explain")
        done = subprocess.run(
            [sys.executable, "-m", "topics.cli", "explain", topic, "--json", "--url", server.url],
            env={**os.environ, "TOPICS_TOKEN": "secret"},
            capture_output=True,
            text=True,
            check=True,
        )
        said = json.loads(done.stdout)
        assert found["opening"] == said["opening"]
        sentences = [(told["what"], told["since_ms"]) for told in found["findings"]]
        assert sorted(sentences, key=str) == sorted(
            ((told["what"], told["since_ms"]) for told in said["findings"]), key=str
        )
        assert len(sentences) == findings


def test_records_that_streams_get_are_counted_once_for_each_reader(
    shared_server: ServerProcess,
) -> None:
    server = shared_server
    api(server, "PUT", "/v0/topics/followed", {"durability": "memory"})
    opened = [api(server, "POST", "/v0/watch", {"topics": {"followed": {}}}) for _ in range(2)]
    with contextlib.ExitStack() as streams, httpx.Client(headers=BOSS, timeout=90) as client:
        for made in opened:
            url = server.url + made["stream_url"]
            streams.enter_context(client.stream("GET", url))
        history_with(server, lambda told: told["now"]["sse_connections"] == 2)
        api(server, "POST", "/v0/topics/followed", {"records": [{"data": 1}] * 500})
        rates = history_with(server, lambda told: any(told["server"]["records_out"]))["server"]
    ins, outs = (sum(filter(None, rates[line])) for line in ("records_in", "records_out"))
    assert outs == pytest.approx(2 * ins, rel=0.5)  # over all steps: a write may end a step
