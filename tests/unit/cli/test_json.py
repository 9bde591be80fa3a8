"""Every command speaks JSON: one session in which each of them is run once with --json."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from tests.unit.cli.runner import topics
from tests.unit.cli.test_help import EVERY

APART = ("bench", "flow", "lake", "serve", "spark", "torture")
"""Commands with tests of their own: they need a server, a Spark or much time."""

SESSION: list[tuple[str, list[str], str]] = [
    ("create", ["orders", "cap_records=3"], ""),
    ("produce", ["orders", "--tag", "t"], "1\n2\n3\n4\n"),
    ("ls", [], ""),
    ("describe", ["orders"], ""),
    ("config", ["orders", "ttl_ms=7d", "--yes"], ""),
    ("read", ["orders"], ""),
    ("tail", ["orders"], ""),
    ("watch", ["orders", "--all", "--for", "100ms"], ""),
    ("delete", ["orders", "--before", "3", "--yes"], ""),
    ("cursor set", ["orders", "billing", "1"], ""),
    ("cursor get", ["orders", "billing"], ""),
    ("cursor ls", [], ""),
    ("explain", ["orders/billing"], ""),
    ("cursor rm", ["orders", "billing", "--yes"], ""),
    ("router put", ["copy", "--from", "orders", "--to", "copied"], ""),
    ("router get", ["copy"], ""),
    ("router ls", [], ""),
    ("router rm", ["copy", "--yes"], ""),
    ("erase", ["orders", "--before-seq", "1", "--yes"], ""),
    ("erasures", ["orders"], ""),
    ("audit", [], ""),
    ("top", ["--once", "--interval", "100ms"], ""),
    ("doctor", [], ""),
    (
        "create",
        ["jobs", "type=queue", "max_deliveries=1", "dead_letter=d", "leases_durable=true"],
        "",
    ),
    ("produce", ["jobs"], "1\n2\n"),
    ("queue stats", ["jobs"], ""),
    ("queue peek", ["jobs"], ""),
    ("queue claim", ["jobs", "--max", "2", "--node", "w"], ""),
    ("queue ack", ["jobs", "1", "--node", "w"], ""),
    ("queue nack", ["jobs", "2", "--node", "w"], ""),
    ("queue claim", ["jobs", "--node", "w"], ""),
    ("queue dead", ["jobs"], ""),
    ("queue redrive", ["jobs"], ""),
    ("drop", ["jobs", "--yes"], ""),
    ("inspect", ["DIRECTORY"], ""),
    ("verify", ["DIRECTORY"], ""),
    ("dump", ["DIRECTORY", "orders"], ""),
    ("backup run", ["DIRECTORY", "DESTINATION"], ""),
    ("backup ls", ["DESTINATION"], ""),
    ("backup verify", ["DESTINATION"], ""),
    ("backup prune", ["DESTINATION", "--keep", "1d", "--yes"], ""),
    ("restore", ["DESTINATION", "RESTORED"], ""),
    ("context add", ["prod", "--url", "http://log:4000"], ""),
    ("context use", ["prod"], ""),
    ("context ls", [], ""),
    ("context show", [], ""),
    ("context rm", ["prod", "--yes"], ""),
    ("completion", ["fish"], ""),
]
WITHOUT_TARGET = ("inspect", "verify", "dump", "context", "completion", "backup", "restore")


def test_the_session_leaves_no_command_out() -> None:
    single = {name for name, command in EVERY.items() if not isinstance(command, click.Group)}
    expected = {name for name in single if name.split()[0] not in APART}
    assert {name for name, _, _ in SESSION} == expected


def test_what_every_command_prints_with_json_parses(tmp_path: Path) -> None:
    data = tmp_path / "data"
    places = {
        "DIRECTORY": str(data),
        "DESTINATION": str(tmp_path / "backup"),
        "RESTORED": str(tmp_path / "restored"),
    }
    for name, arguments, stdin in SESSION:
        given = [places.get(word, word) for word in arguments]
        where = [] if name.split()[0] in WITHOUT_TARGET else ["--dir", str(data)]
        answer = topics(*name.split(), *given, *where, "--json", stdin=stdin)
        assert (answer.code, answer.err) == (0, ""), (name, answer)
        assert all(isinstance(value, dict) for value in _parsed(answer.out)), name


def _parsed(text: str) -> list[object]:
    """One document, or one for each line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def test_text_that_is_no_json_would_be_noticed() -> None:
    with pytest.raises(json.JSONDecodeError):
        _parsed("no topics\n")
