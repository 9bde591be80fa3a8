"""The benchmarks of a real server run, tiny; what they measure is not judged here."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.programs import debian_program

from topics.bench import queues, routers, server, stalls
from topics.bench.compare import command as compare
from topics.bench.compare.peers import PEERS

TINY = ["--scale", "0.00001", "--quick", "--json"]

Main = Callable[[Sequence[str]], int]


def results(
    main: Main, rows: str, where: Path, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    assert main(["--rows", rows, "--dir", str(where), *TINY]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert {result["row"] for result in found} == set(rows.split(","))
    assert all(result["value"] >= 0 for result in found)
    assert list(where.iterdir()) == [], "nothing is left behind"
    return found


def test_requests_are_measured_with_a_compiled_generator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    debian_program("h2load", package="nghttp2-client")
    found = results(server.main, "ceiling,write1,batches,diff", tmp_path, capsys)
    budgets = {(r["row"], r["goal"]["value"]) for r in found if r["goal"] and "CPU" in r["what"]}
    assert budgets == {("write1", 170), ("write1", 250), ("batches", 2.6), ("diff", 150)}


def test_deliveries_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = results(server.main, "watch", tmp_path, capsys)
    for version in ("HTTP/1.1", "h2c"):
        assert any(f"watchers, {version}" in result["what"] for result in found)


def test_queues_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = results(queues.main, "ceiling,http,backlog,embedded,flat", tmp_path, capsys)
    assert {r["goal"]["value"] for r in found if r["goal"]} == {16, 40_000, 2.5, 10, 200_000}


def test_fan_out_writes_a_payload_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = results(routers.main, "latency,fan-out", tmp_path, capsys)
    (payloads,) = [r["value"] for r in found if r["unit"] == "payloads"]
    assert payloads < 2, "a hundred destinations, one payload"


def test_the_wait_of_a_neighbour_is_measured_beside_large_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = results(stalls.main, "position,flips,recovery,stages,stop", tmp_path, capsys)
    waits = [result for result in found if result["goal"]]
    assert {result["goal"]["value"] for result in waits} == {50}
    assert all(result["value"] > 0 for result in waits)


def test_the_same_work_is_done_on_other_servers(capsys: pytest.CaptureFixture[str]) -> None:
    debian_program("redis-server", package="redis-server")
    peers = [name for name in ("redis", "nats", "postgresql") if not PEERS[name].missing()]
    assert peers[:2] == ["redis", "nats"]
    rows = "write1,syncbatch16,read,watch1,queue,restart"
    chosen = ["--peers", ",".join(peers), "--rows", rows, "--rounds", "1", "--scale", "0.01"]
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # PostgreSQL does not run as root, so another user runs it
        assert compare.main([*chosen, "--json", "--dir", scratch]) == 0
        assert not list(Path(scratch).iterdir()), "nothing is left behind"
    found = json.loads(capsys.readouterr().out)
    assert {row["row"] for row in found["rows"]} == set(rows.split(","))
    for row in found["rows"]:
        assert set(row["values"]) == {"topics", *peers}, row["row"]
        assert all(value > 0 for values in row["values"].values() for value in values)


def test_a_row_or_a_server_that_is_not_known_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["--rows", "wriet1"]) == 2
    assert "no row 'wriet1'; rows: write1," in capsys.readouterr().err
    assert compare.main(["--peers", "radis"]) == 2
    assert "no peer 'radis'; peers: topics, redis," in capsys.readouterr().err
