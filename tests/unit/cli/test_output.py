"""What commands print is safe, plain and readable."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.unit.cli.runner import topics

from topics.cli import _output as out
from topics.cli._inspect import Facts, print_recovery
from topics.cli._records import Lines, cause_of_cap, tombstone_line, why
from topics.embedded import open_log
from topics.events import CaughtUp, Resumed, TopicDropped
from topics.values import Audit, Gap, Record, Tombstone


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0ms"),
        (0.25, "250ms"),
        (1, "1.0s"),
        (59.94, "59.9s"),
        (60, "1m 0s"),
        (3599, "59m 59s"),
        (3600, "1h 0m"),
        (86400 * 3 + 7200, "3d 2h"),
    ],
)
def test_a_length_of_time_is_shown_in_two_units_at_most(seconds: float, shown: str) -> None:
    assert out.span(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 41, "2.0 TiB")],
)
def test_bytes_are_shown_in_a_unit_that_keeps_them_short(count: int, shown: str) -> None:
    assert out.size(count) == shown


def test_times_are_utc_to_the_millisecond() -> None:
    assert out.moment(1_790_000_004_007) == "2026-09-21T14:13:24.007Z"
    assert out.moment(None) == "-"


def test_a_table_has_no_frames_and_no_colours_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out.print_table(["topic", "head"], [["a", 5], ["longer", 123]])
    assert capsys.readouterr().out == "TOPIC   HEAD\na          5\nlonger   123\n"


def test_a_terminal_gets_emphasis_unless_it_does_not_want_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert out.style("x", "bold", "red") == "\033[1;31mx\033[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert out.style("x", "bold") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert out.style("x", "bold") == "x"


def test_a_record_cannot_rewrite_the_screen_of_its_reader(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = Record(1, 0, "n\x9b2J", "t\x1b]0;title\x07", '"\u202eabc\x9b"'.encode())
    Lines(as_json=False).records("orders", [evil])
    shown = capsys.readouterr().out
    assert not any(mark in shown for mark in "\x1b\x07\x9b\u202e")
    assert "t\\u001b]0;title\\u0007" in shown


def test_json_lines_keep_stored_bytes_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    record = Record(7, 5, None, "t", b'{"n":1e400,"n":12345678901234567890123}', b"[1.50]")
    Lines(as_json=True).records("orders", [record])
    Lines(as_json=True, several=True).records("orders", [record])
    alone, named = capsys.readouterr().out.splitlines()
    rest = (
        '"$seq":7,"$ts":5,"$tag":"t","data":{"n":1e400,"n":12345678901234567890123},"meta":[1.50]}'
    )
    assert (alone, named) == ("{" + rest, '{"topic":"orders",' + rest)


def test_what_happens_to_the_reading_itself_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    events = (
        CaughtUp("orders", 5),
        Resumed("it took too long", {"orders": 5}, 1.5, 2),
        TopicDropped("orders"),
    )
    for as_json in (False, True):
        for event in events:
            Lines(as_json=as_json, several=True).event(event)
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == [
        "--- connection lost for 1.5s (it took too long); going on, nothing was skipped ---",
        "--- orders was dropped ---",
    ]
    kinds = [json.loads(line)["event"] for line in shown[2:]]
    assert kinds == ["caught_up", "resumed", "topic_dropped"]


def test_inspect_names_a_single_seq_once(capsys: pytest.CaptureFixture[str]) -> None:
    skip = {"from": 5, "to": 5, "topic": "t", "kind": "never handed out"}
    facts: Facts = {
        "snapshot": None,
        "bytes_to_replay": 2048,
        "torn_bytes_to_cut": 0,
        "warnings": [],
    }
    print_recovery(facts | {"seqs_to_skip": [skip], "indexes_to_rebuild": []})
    assert capsys.readouterr().out.splitlines() == [
        "Opening would start from the beginning of the log and replay 2.0 KiB.",
        "It would skip seq 5 of t: never handed out.",
    ]


def test_a_loss_is_told_with_its_range_and_its_reason() -> None:
    log = open_log()

    def told(lost: Tombstone) -> str:
        return tombstone_line(lost, why(log, "absent", lost))

    assert told(Tombstone(3, 5, "ttl", 6, 9)) == (
        "!!! LOST 3 records: seq 3 to 5, its time to live !!!"
    )
    assert "LOST 1 record:" in told(Tombstone(3, 3, "cap", 4, 9))
    assert "by the topic's cap, a crash or damage" in told(Tombstone(3, 3, "cap", 4, 9))
    assert "made anew; reading starts again at seq 1" in told(Tombstone(1, 0, "recreated", 1, 0))


def test_a_loss_by_cap_crash_damage_or_restart_is_told_by_its_one_cause() -> None:
    ledger = Audit("t", 1, 99, 41, 41, 0, 0, 99, 9, 0, 40, 0, 50, [])
    crash, repair = Gap(50, 59, "cap", "crash"), Gap(60, 69, "cap", "repair")
    torn = msgspec.structs.replace(ledger, gaps=[crash, repair])
    fleeting = msgspec.structs.replace(ledger, lost_cap=0)
    evicted = Tombstone(1, 40, "cap", 41, 99)
    assert cause_of_cap(evicted, ledger) == cause_of_cap(evicted, torn) == "by the topic's cap"
    assert cause_of_cap(evicted, fleeting) == "in a restart"
    assert cause_of_cap(Tombstone(50, 59, "cap", 41, 99), torn) == "in a crash"
    assert cause_of_cap(Tombstone(60, 69, "cap", 41, 99), torn) == "to damage on disk"
    assert cause_of_cap(Tombstone(40, 65, "cap", 41, 99), torn) == (
        "by the topic's cap and in a crash and to damage on disk"
    )
    log = open_log()
    log.create("t", cap_records=1)
    log.append("t", [{"data": 1}, {"data": 2}])
    lost = log.read("t").tombstone
    assert lost is not None
    assert why(log, "t", lost) == "by the topic's cap"


def test_settings_are_shown_once_with_units_and_only_where_they_count(tmp_path: Path) -> None:
    where = ("--dir", tmp_path)
    topics("create", "t", "ttl_ms=7d", "cap_bytes=2GiB", "cap_records=5", *where)
    topics("create", "q", "type=queue", *where)
    shown = topics("config", "t", *where).out
    assert "ttl_ms                 604800000  (7d 0h, changed)\n" in shown
    assert "cap_bytes              2147483648  (2.0 GiB, changed)\n" in shown
    assert "cap_records            5  (changed)\n" in shown
    assert "durable " not in shown
    assert "lease_ms" not in shown
    assert "lease_ms               30000  (30.0s)\n" in topics("describe", "q", *where).out


def test_a_list_of_topics_shows_sizes_in_one_word(tmp_path: Path) -> None:
    topics("produce", "t", "-m", "x" * 2046, "--dir", tmp_path)
    heading, row = topics("ls", "--dir", tmp_path).out.splitlines()
    assert dict(zip(heading.split(), row.split(), strict=True))["SIZE"] == "2.0KiB"
