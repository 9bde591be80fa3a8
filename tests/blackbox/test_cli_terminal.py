"""Commands as somebody at a terminal meets them: screens, live lines, questions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.blackbox.conftest import ServerFactory, ServerProcess
from tests.blackbox.terminal import Terminal
from tests.unit.cli.runner import clean_environment, topics

import topics as library


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path / "config")
    monkeypatch.delenv("COLUMNS")
    monkeypatch.delenv("NO_COLOR", raising=False)


def terminal(*arguments: object) -> Terminal:
    return Terminal(*arguments, env=os.environ)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a topic that has lost its first two records."""
    with library.open(tmp_path / "data") as log:
        log.create("orders", cap_records=3)
        log.append("orders", [{"data": {"id": n}, "tag": "eu"} for n in range(1, 6)])
    return tmp_path / "data"


def test_top_fills_the_screen_follows_the_log_and_leaves_on_q(shared_server: ServerProcess) -> None:
    where = ("--url", shared_server.url)
    topics("create", "jobs", "type=queue", *where)
    topics("produce", "jobs", *where, stdin="1\n2\n3\n")
    topics("queue", "claim", "jobs", *where)
    topics("cursor", "set", "jobs", "billing", 1, *where)
    with terminal("top", "--interval", "200ms", *where) as screen:
        row = screen.wait_for("billing")
        assert row.split()[2:4] == ["3", "3"]
        assert "2 billing" in row
        for sign in ("records/s", "fsync", "p99", "pressure [", "leases 1", "q quits"):
            screen.wait_for(sign)
        assert shared_server.url in screen.text
        topics("produce", "jobs", *where, stdin="x\n" * 4994)
        assert screen.wait_for("4997").startswith("jobs")
        screen.type("zq")
        assert screen.wait() == 0
        assert screen.echoes


def test_top_waits_for_a_server_that_went_away(server_factory: ServerFactory) -> None:
    server = server_factory()
    with terminal("top", "--interval", "100ms", "--url", server.url) as screen:
        screen.wait_for("0 topics")
        server.end()
        screen.wait_for("no answer from")
        assert screen.interrupt() == 130
        assert screen.echoes


def test_tail_shows_losses_in_red_and_records_as_they_come(shared_server: ServerProcess) -> None:
    where = ("--url", shared_server.url)
    topics("create", "orders", "cap_records=3", *where)
    topics("produce", "orders", *where, stdin="1\n2\n3\n4\n5\n")
    with terminal("tail", "-f", "orders", *where) as screen:
        screen.wait_for('"5"')
        topics("produce", "orders", "--tag", "eu", *where, stdin="six\n")
        assert screen.wait_for('"six"').strip().startswith("6  ")
        assert screen.style_of("[eu]")[0] == "brown"  # what a terminal calls dark yellow
        topics("produce", "orders", "--batch", 10_000, *where, stdin="burst\n" * 5000)
        screen.wait_for("5006")
        assert screen.interrupt() == 130
    with terminal("read", "orders", *where) as screen:
        assert screen.wait() == 0
        assert "LOST 5003 records: seq 1 to 5003" in screen.text
        assert screen.style_of("!!! LOST") == ("red", True)


def test_a_question_waits_for_its_answer(data: Path) -> None:
    where = ("--dir", data)
    with terminal("drop", "orders", *where) as screen:
        screen.wait_for("Drop orders with 3 records")
        screen.type("n\n")
        assert screen.wait() == 1
        assert "Nothing was changed." in screen.text
    assert topics("describe", "orders", *where).code == 0
    with terminal("drop", "orders", *where) as screen:
        screen.wait_for("[y/N]")
        assert screen.interrupt() == 130
    assert topics("describe", "orders", *where).code == 0
    with terminal("drop", "orders", *where) as screen:
        screen.wait_for("[y/N]")
        screen.type("y\n")
        assert screen.wait() == 0
        assert "dropped orders" in screen.text
    assert topics("describe", "orders", *where).code == 3


def test_produce_counts_on_a_terminal_and_takes_typed_lines(tmp_path: Path) -> None:
    where = ("--dir", tmp_path / "typed")
    with terminal("produce", "typed", *where) as screen:
        screen.wait_for("Type records, one a line; end with Ctrl-D.")
        screen.type("first\n")
        screen.wait_for("1 records, ")
        screen.type("second\n\x04")
        assert screen.wait() == 0
        assert "appended 2 records to typed, seq 1 to 2" in screen.text


def test_torture_counts_on_a_terminal_and_leaves_nothing_behind_on_ctrl_c(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    with terminal("torture", "--cycles", 1000, "--dir", place) as screen:
        screen.wait_for("/1000 cycles")
        assert screen.interrupt() == 130
        assert "Traceback" not in screen.text
    assert list(place.iterdir()) == []
