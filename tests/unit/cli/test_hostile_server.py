"""A server that means harm gets no control character onto the terminal of whoever asks it.

The server answers every call with the example of the API description, in which every text carries
what a terminal would obey, or with a refusal that does.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.shell_completion import BashComplete
from tests.unit.cli.runner import Answer, topics

import topics as library
from topics.cli import directory
from topics.cli._app import _tell_of_a_bug, app
from topics.cli._records import Lines
from topics.values import Record
from topics.wire.endpoints import ENDPOINTS
from topics.wire.examples import examples

HARM = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e$(reboot)'"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
COMMANDS = [
    ("ls",),
    ("ls", "o"),
    ("describe", "orders"),
    ("config", "orders"),
    ("create", "orders"),
    ("drop", "orders", "--yes"),
    ("read", "orders", "--limit", "3"),
    ("tail", "orders"),
    ("watch", "orders", "--for", "100ms"),
    ("audit",),
    ("audit", "orders"),
    ("explain", "orders"),
    ("explain", "orders/billing"),
    ("explain", "orders#2"),
    ("delete", "orders", "--before", "2", "--yes"),
    ("cursor", "ls", "orders"),
    ("cursor", "get", "orders", "billing"),
    ("router", "ls"),
    ("router", "get", "copy"),
    ("queue", "stats", "orders"),
    ("queue", "peek", "orders"),
    ("queue", "claim", "orders"),
    ("queue", "dead", "orders"),
    ("queue", "redrive", "orders"),
    ("top", "--once", "--interval", "100ms"),
    ("doctor",),
    ("produce", "orders"),
]


RECORDS = ("read", "tail", "watch")


class Hostile(BaseHTTPRequestHandler):
    """Answers with harm."""

    refuses: ClassVar[bool] = False
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        status, body = 400, json.dumps(REFUSAL).encode()
        if self.path == "/v0/metrics" and not self.refuses:
            status, body = 200, METRICS.encode()
        elif not self.refuses:
            status, body = _example(self.command, self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - as the base class calls them

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


METRICS = f"""topics_ready 1
topics_topic_head_seq{{topic="orders{HARM}"}} 3
topics_cursor_lag_records{{topic="orders{HARM}",cursor="{HARM}"}} 3
"""
REFUSAL = {"error": {"code": "invalid_request", "message": HARM, "detail": {"what": HARM}}}


def _example(method: str, path: str) -> tuple[int, bytes]:
    for endpoint in ENDPOINTS:
        form = re.sub(r"\{\w+\}", "[^/]+", endpoint.path)
        if endpoint.method == method and re.fullmatch(form, path):
            example = examples()[endpoint.name]
            answer = example.answer
            if isinstance(answer, str):
                return example.status, answer.encode()
            return example.status, json.dumps(_harmed(answer)).encode()
    return 404, json.dumps(REFUSAL).encode()


def _harmed(value: Any, name: str = "") -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {key: _harmed(member, key) for key, member in value.items()}
    if isinstance(value, list):
        return [_harmed(member, name) for member in value]
    return value + HARM if isinstance(value, str) else value


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def harmless(answer: Answer) -> bool:
    return OBEYED.search(answer.out + answer.err) is None


@pytest.mark.parametrize("as_json", [False, True], ids=["lines", "json"])
@pytest.mark.parametrize("refuses", [False, True], ids=["answers", "refusals"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_a_server_says_reaches_the_terminal_as_a_command(
    hostile: str,
    command: tuple[str, ...],
    refuses: bool,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Hostile, "refuses", refuses)
    options = ["--url", hostile, *(["--json"] if as_json else [])]
    answer = topics(*command, *options, stdin="1\n")
    if command[0] in RECORDS and as_json:
        answer = replace(answer, out="")  # bytes as they were stored; see below for a terminal
    assert harmless(answer), answer
    if refuses:
        assert answer.code != 0
        assert "owned" in answer.out + answer.err, "what the server said is told"


def test_a_shell_is_offered_no_name_that_it_would_obey(
    hostile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = BashComplete(app, {}, "topics", "_TOPICS_COMPLETE")
    asked = ["tail", "--url", hostile]
    assert shell.get_completions(asked, "") == []
    monkeypatch.setattr(f"{__name__}.HARM", "")
    assert [item.value for item in shell.get_completions(asked, "or")] == ["orders"]
    assert shell.get_completions(asked, "x") == [], "what begins otherwise is not offered"
    monkeypatch.setattr(f"{__name__}._harmed", lambda _: ["no", "list"])
    assert shell.get_completions(asked, "or") == []


def test_json_of_records_is_harmless_on_a_terminal_and_says_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = json.dumps(HARM, ensure_ascii=False).encode()
    record = Record(1, 1_790_000_000_000, None, HARM, stored)
    Lines(as_json=True).records("orders", [record])
    assert stored.decode() in capsys.readouterr().out, "byte for byte for a program"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Lines(as_json=True).records("orders", [record])
    shown = capsys.readouterr().out
    assert OBEYED.search(shown) is None
    assert json.loads(shown)["data"] == HARM


def test_a_dump_is_harmless_on_a_terminal_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with library.open(tmp_path) as log:
        log.append("orders", {"data": HARM})
    dumped = partial(directory._dump, str(tmp_path), "orders", after=0, limit=None, cold_dir=None)
    dumped()
    assert json.dumps(HARM, ensure_ascii=False).encode() in capsysbinary.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    dumped()
    shown = capsysbinary.readouterr().out.decode()
    assert OBEYED.search(shown) is None
    assert json.loads(shown)["data"] == HARM


def test_a_bug_tells_its_trace_without_what_a_terminal_would_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _tell_of_a_bug(ValueError, ValueError(HARM), None)
    said = capsys.readouterr().err
    assert "ValueError" in said
    assert OBEYED.search(said) is None
