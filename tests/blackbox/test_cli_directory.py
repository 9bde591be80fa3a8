"""The tools for a directory, run as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.runner import topics as in_process

import topics

TOPICS = Path(sys.executable).with_name("topics")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command without a process of its own: most of the time would go into starting it."""
    answer = in_process(*arguments)
    return subprocess.CompletedProcess([*map(str, arguments)], answer.code, answer.out, answer.err)


def run_program(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The installed program."""
    command = [str(TOPICS), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tree(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("store") / "data"
    with topics.open(directory, segment_max_events=4) as log:
        log.create("orders", durability="fsync", cap_records=5)
        log.append(
            "orders",
            [{"data": {"id": n}, "tag": f"u{n % 2}", "meta": {"m": n}} for n in range(8)],
            node="n1",
        )
        log.append("plain", {"data": "é"})
        log.checkpoint()
        log.append("orders", {"data": "last"})
    return directory


def test_inspect_shows_topics_the_log_and_what_opening_would_do(store: Path) -> None:
    before = tree(store)
    shown = run("inspect", store)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "orders" in shown.stdout
    assert "Opening would start from snapshot" in shown.stdout
    facts = json.loads(run("inspect", store, "--json").stdout)
    (orders, plain) = facts["topics"]
    assert (orders["topic"], orders["head_seq"], orders["count"]) == ("orders", 9, 5)
    assert (plain["topic"], plain["evict_floor"]) == ("plain", 1)
    assert orders["evict_floor"] == orders["earliest_seq"] == 5
    assert facts["recovery"]["torn_bytes_to_cut"] == 0
    assert facts["log"][0]["closed_cleanly"]
    assert tree(store) == before


def test_inspect_shows_sizes_in_units(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with topics.open(directory) as log:
        log.create("t", durability="fsync", cap_records=2)
        log.append("t", [{"data": "x" * 2000}] * 3)
        log.checkpoint()
    assert "3.9 KiB" in run("inspect", directory).stdout


def test_inspect_shows_one_topic(store: Path) -> None:
    assert "segment" not in run("inspect", store, "nothing").stdout
    facts = json.loads(run("inspect", store, "orders", "--json").stdout)
    assert facts["ledger"]["lost_cap"] == 4
    assert facts["config"]["durability"] == "fsync"
    assert {segment["state"] for segment in facts["segment_list"]} == {"sealed", "growing"}
    assert "lost_cap 4" in run("inspect", store, "orders").stdout


def test_inspect_tells_a_torn_tail(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", store, copy], check=True)
    log = next(copy.glob("wal/wal-*.log"))
    data = log.read_bytes().rstrip(b"\0")
    log.write_bytes(data + b"\x40\0\0\0\x01".ljust(30, b"x") + bytes(1000))
    facts = json.loads(run("inspect", copy, "--json").stdout)
    assert facts["recovery"]["torn_bytes_to_cut"] == 30
    checked = run("verify", copy)
    assert checked.returncode == 0
    assert "30 torn bytes" in checked.stdout


def test_dump_gives_records_and_loss_as_json_lines(store: Path) -> None:
    lines = [json.loads(line) for line in run("dump", store, "orders").stdout.splitlines()]
    assert lines[0]["tombstone"]["gap_to"] == 4
    assert [line["$seq"] for line in lines[1:]] == [5, 6, 7, 8, 9]
    assert lines[1] == {
        "$seq": 5,
        "$ts": lines[1]["$ts"],
        "$node": "n1",
        "$tag": "u0",
        "data": {"id": 4},
        "meta": {"m": 4},
    }
    after = run("dump", store, "orders", "--after", 6, "--limit", 2).stdout.splitlines()
    assert [json.loads(line)["$seq"] for line in after] == [7, 8]
    assert run("dump", store, "plain").stdout.endswith('"data":"é"}\n')


def test_dump_ends_quietly_when_nobody_reads_on(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        for _ in range(10):
            log.append("t", [{"data": "x" * 500}] * 100)
    with subprocess.Popen(
        [str(TOPICS), "dump", str(tmp_path / "data"), "t"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        assert dump.stdout.readline()
        dump.stdout.close()
        assert dump.stderr.read() == b""
    assert dump.returncode == 0


def test_verify_passes_a_sound_store_and_changes_nothing(store: Path) -> None:
    before = tree(store)
    checked = run("verify", store)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "all sound" in checked.stdout
    facts = json.loads(run("verify", store, "--json").stdout)
    assert facts["ok"]
    assert facts["damage"] == []
    assert tree(store) == before


def test_verify_names_what_is_damaged(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", store, copy], check=True)
    path = min(copy.glob("topics/00000001/*.data"))
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    checked = run("verify", copy)
    assert checked.returncode == 1
    assert f"damaged: {path} at 0, topic orders, seq " in checked.stdout
    facts = json.loads(run("verify", copy, "--json").stdout)
    assert facts["damage"][0]["file"] == str(path)
    assert facts["damage"][0]["topic"] == "orders"


def test_explain_does_not_call_a_damaged_record_readable(tmp_path: Path) -> None:
    with topics.open(tmp_path) as log:
        log.append("t", [{"data": "one"}, {"data": "two"}])
        log.checkpoint()
    (path,) = tmp_path.glob("topics/*/*.data")
    path.write_bytes(path.read_bytes().replace(b"two", b"TWO"))
    told = run("explain", "t#2", "--dir", tmp_path).stdout
    assert told.startswith("Seq 2 of t is damaged on disk.\n")
    assert told.endswith(f"Try: topics verify {tmp_path}\n")
    assert "Readers get it." in run("explain", "t#1", "--dir", tmp_path).stdout


def test_the_tools_read_beside_a_running_owner(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        log.append("t", {"data": 1})
        assert run("dump", tmp_path / "data", "t").stdout.count("\n") == 1
        assert run("verify", tmp_path / "data").returncode == 0
        log.append("t", {"data": 2})
    assert run("dump", tmp_path / "data", "t").stdout.count("\n") == 2


def test_segments_in_a_cold_directory_are_shown_and_verified(tmp_path: Path) -> None:
    data, cold = tmp_path / "data", tmp_path / "cold"
    with topics.open(data, cold_dir=cold, segment_max_events=3, hot_retain_segments=1) as log:
        log.append("t", [{"data": n} for n in range(12)])
        log.checkpoint()
        log.maintain()
    facts = json.loads(run("inspect", data, "t", "--cold-dir", cold, "--json").stdout)
    assert facts["cold_segments"] > 0
    assert run("verify", data, "--cold-dir", cold).returncode == 0
    assert run("dump", data, "t", "--cold-dir", cold).stdout.count("\n") == 12
    without = run("dump", data, "t")
    assert without.returncode == 4
    assert json.loads(without.stderr.splitlines()[-1])["refused"] == "cold_missing"
    victim = min(cold.glob("topics/*/*.data"))
    victim.write_bytes(victim.read_bytes()[:-9] + bytes(9))
    assert str(victim) in run("verify", data, "--cold-dir", cold).stdout


# Exit codes


def test_help_and_version_are_there() -> None:
    assert run_program("--version").stdout == f"topics {topics.__version__}\n"
    shown = run("--help").stdout
    assert all(command in shown for command in ("inspect", "verify", "dump", "bench"))


@pytest.mark.parametrize(
    "arguments",
    [[], ["frobnicate"], ["inspect"], ["dump", "x"], ["verify", "/", "--shout"], ["bench", "x"]],
)
def test_a_command_not_understood_ends_with_2(arguments: list[str]) -> None:
    asked = run(*arguments)
    assert asked.returncode == 2
    assert "Traceback" not in asked.stderr


def test_what_is_not_there_ends_with_3(store: Path, tmp_path: Path) -> None:
    for arguments in (
        ["inspect", tmp_path / "nowhere"],
        ["inspect", store, "nothing"],
        ["dump", store, "nothing"],
        ["dump", store, "nothing", "--limit", 0],
    ):
        asked = run(*arguments)
        assert asked.returncode == 3, arguments
        assert asked.stdout == ""
        assert len(asked.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["inspect", "verify", "dump"])
def test_a_directory_that_is_no_store_is_refused_with_4(command: str, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    asked = run(command, tmp_path, *(["t"] if command == "dump" else []))
    assert asked.returncode == 4
    said, line = asked.stderr.splitlines()
    assert said.startswith("topics: ")
    assert json.loads(line)["refused"] == "format"
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_file_instead_of_a_directory_is_refused_with_4(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    asked = run(command, tmp_path / "file")
    assert asked.returncode == 4
    assert "is a file" in asked.stderr


def test_damage_that_stops_an_open_refuses_inspect_and_is_named_by_verify(
    store: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", store, copy], check=True)
    log = next(copy.glob("wal/wal-*.log"))
    data = bytearray(log.read_bytes())
    data[50] ^= 1
    log.write_bytes(data)
    asked = run("inspect", copy)
    assert asked.returncode == 4
    line = json.loads(asked.stderr.splitlines()[-1])
    assert (line["refused"], line["file"], line["offset"]) == ("wal_corrupt", str(log), 0)
    checked = run("verify", copy)
    assert checked.returncode == 1
    assert str(log) in checked.stdout


def test_bench_is_passed_on_with_its_options() -> None:
    shown = run_program("bench", "engine", "--help")
    assert shown.returncode == 0
    assert "--quick" in shown.stdout


def test_the_program_starts_without_its_heavy_parts() -> None:
    code = "import sys, topics.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"topics.engine.engine", "topics.storage", "rich", "numpy", "asyncio"}
    assert heavy.isdisjoint(loaded.stdout.split())
