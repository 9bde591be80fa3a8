"""The benchmarks of a real server run, tiny; what they measure is not judged here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.programs import debian_program

from topics.bench import queues, routers, server, stalls

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
