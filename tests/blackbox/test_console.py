"""The console is served by the same process, to everybody, and asks nobody else for anything."""

from __future__ import annotations

import gzip
import hashlib
import json
import re

import pytest
from tests.blackbox.api_client import plain
from tests.blackbox.conftest import ServerProcess

from topics import console

SERVER_ENV = {"TOPICS_API_KEYS": "secret,reader:read:mine."}
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
