"""`topics spark audit`: a sound store passes, and every kind of damage is named with its place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import topics
from topics.cli import _app as cli
from topics.spark.bulk.auditing import packed
from topics.storage.segments.checking import SegmentJob
from topics.storage.segments.segment import Segment
from topics.storage.segments.store import SegmentFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with hot and cold segments, deletes and losses."""
    root = tmp_path_factory.mktemp("audited")
    cold = root / "cold"
    with topics.open(
        root / "data", cold_dir=str(cold), segment_max_events=2000, hot_retain_segments=2
    ) as log:
        log.create("orders", durability="memory")
        log.create("capped", durability="memory", cap_records=500)
        for first in range(0, 40_000, 10_000):
            log.append("orders", [{"data": n, "tag": f"t{n % 7}"} for n in range(10_000)])
            log.append("capped", [{"data": first + n} for n in range(1000)])
            log.checkpoint()
        log.delete("orders", match="t3")
        log.checkpoint()
        log.maintain()
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def audit(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = cli.run(
        ["spark", "audit", str(root / "data"), "--cold-dir", str(root / "cold"), "--json"]
    )
    return code, json.loads(capsys.readouterr().out)


def test_a_sound_store_is_read_whole_hot_and_cold_and_its_ledgers_add_up(
    made: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list((made / "cold").rglob("*.data")), "no segment went cold"
    code, told = audit(made, capsys)
    assert (code, told["ok"], told["damage"]) == (0, True, [])
    by_name = {topic["topic"]: topic for topic in told["topics"]}
    orders, capped = by_name["orders"], by_name["capped"]
    assert (orders["written"], orders["live"] + orders["deleted"]) == (40_000, 40_000)
    assert orders["deleted"] == sum(n % 7 == 3 for n in range(10_000)) * 4
    assert (capped["written"], capped["live"], capped["lost_cap"]) == (4000, 500, 3500)
    assert told["segment_records"] >= 40_000
    assert told["tasks"] > 1
    assert cli.run(["spark", "audit", str(made / "data"), "--cold-dir", str(made / "cold")]) == 0
    assert "all sound" in capsys.readouterr().out


def test_damage_is_named_by_file_offset_and_seq_and_the_exit_code_says_no(
    store: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    cold = sorted((store / "cold").rglob("*.data"))[0]
    raw = bytearray(cold.read_bytes())
    at = len(raw) // 2
    raw[at] ^= 0x40
    cold.write_bytes(raw)
    index = sorted((store / "data").rglob("*.idx"))[-1]
    index.write_bytes(index.read_bytes()[:-20] + bytes(20))
    code, told = audit(store, capsys)
    assert (code, told["ok"]) == (1, False)
    damage = {found["file"]: found for found in told["damage"]}
    rotten = damage[str(cold)]
    assert rotten["offset"] <= at
    assert rotten["seq"] >= 1
    assert rotten["topic"] == "orders"
    assert str(index) in damage
    assert not next(topic for topic in told["topics"] if topic["topic"] == "orders")["ok"]
    assert cli.run(["spark", "audit", str(store / "data"), "--cold-dir", str(store / "cold")]) == 1
    said = capsys.readouterr().out
    assert f"damaged: {cold} at {rotten['offset']}, topic orders, seq {rotten['seq']}" in said


def test_a_store_in_use_can_be_audited(
    store: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with topics.open(store / "data", cold_dir=str(store / "cold")) as log:
        log.append("orders", [{"data": 1}])
        log.sync()
        code, told = audit(store, capsys)
    assert (code, told["ok"]) == (0, True)
    assert next(t for t in told["topics"] if t["topic"] == "orders")["written"] == 40_001


def test_there_must_be_a_directory_to_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["spark", "audit", str(tmp_path / "absent")]) == 3
    assert "absent" in capsys.readouterr().err


def test_segments_are_dealt_out_evenly_by_size() -> None:
    files = SegmentFiles("d", "d/a", "d/i", "d/t")
    jobs = [
        SegmentJob("t", 1, Segment(n, n, size, 0, 0, 0, 0, 0), files)
        for n, size in enumerate([1, 1, 1, 1, 100, 50, 50], 1)
    ]
    bins = packed(jobs, 2)
    assert sorted(sum(job.segment.data_len for job in each) for each in bins) == [102, 102]
    assert sorted(job.segment.first for each in bins for job in each) == list(range(1, 8))
    assert len(packed(jobs, 100)) == len(jobs)
    assert packed([], 4) == []
