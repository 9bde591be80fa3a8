"""What `topics doctor` finds wrong, and what it advises."""

from __future__ import annotations

import shutil
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.unit.cli.runner import Answer, topics

import topics as library
from topics.cli import _checks, doctor
from topics.client.targets import DEFAULT_URL
from topics.errors import Forbidden, NotReady, ShuttingDown, TopicsError, Unauthorized
from topics.spark import java

NOW = 1_790_000_000.0


class Usage(NamedTuple):
    total: int
    free: int


def bad(answer: Answer) -> dict[str, str]:
    """The checks that failed, with their remedies."""
    assert (answer.code, answer.json["ok"]) == (1, False)
    return {c["name"]: c["remedy"] for c in answer.json["checks"] if c["state"] == "bad"}


@pytest.mark.parametrize(
    ("soft", "state"), [(-1, "ok"), (65536, "ok"), (1024, "note"), (100, "bad")]
)
def test_few_open_files_are_a_problem(soft: int, state: str) -> None:
    check = _checks.open_files(soft)
    assert check.state == state
    assert ("ulimit -n" in check.remedy) == (state != "ok")


@pytest.mark.parametrize(
    ("skew", "state", "words"),
    [(0, "ok", "within"), (4, "ok", "within"), (60, "bad", "60 s ahead"), (-60, "bad", "behind")],
)
def test_clocks_that_differ_are_told_apart(skew: int, state: str, words: str) -> None:
    check = _checks.clock(formatdate(NOW + skew, usegmt=True), NOW)
    assert check.state == state
    assert words in check.found


@pytest.mark.parametrize("date", [None, "yesterday"])
def test_a_server_that_does_not_tell_its_time_is_only_noted(date: str | None) -> None:
    assert _checks.clock(date, NOW).state == "note"


@pytest.mark.parametrize(
    ("usage", "state"),
    [
        (Usage(100 << 30, 50 << 30), "ok"),
        (Usage(100 << 30, 2 << 30), "bad"),
        (Usage(4 << 30, 1 << 29), "bad"),
    ],
)
def test_a_disk_that_fills_up_is_a_problem(
    usage: Usage, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    check = _checks.disk("/data")
    assert check.state == state
    assert ("df -h /data" in check.remedy) == (state == "bad")


def test_a_record_of_the_future_means_that_the_clock_went_back() -> None:
    assert _checks.newest_record({}, NOW).state == "ok"
    assert _checks.newest_record({"t": int(NOW * 1000)}, NOW).state == "ok"
    soon = _checks.newest_record({"a": 0, "t": int((NOW + 60) * 1000)}, NOW)
    assert "newest record of t is 1m 0s in the future" in soon.found
    assert "set-ntp" in soon.remedy
    years = _checks.newest_record({"t": int((NOW + 1e8) * 1000)}, NOW)
    assert (years.state, "1157d" in years.found) == ("bad", True)
    assert years.remedy.endswith("topics explain t")


def test_a_key_that_others_can_read_is_a_problem(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o644)
    topics("context", "add", "prod", "--url", "http://127.0.0.1:1", "--token-file", key)
    assert bad(topics("doctor", "--json"))["key file"] == f"chmod 600 {key}"
    key.chmod(0o600)
    assert "key file" not in bad(topics("doctor", "--json"))


def test_spark_without_java_is_a_problem_and_no_spark_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(java, "search", lambda: java.Search((), None))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    (check,) = _checks.spark()
    assert (check.state, check.remedy) == ("bad", java.REMEDY)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (check,) = _checks.spark()
    assert (check.state, "pip install" in check.remedy) == ("note", True)


def test_a_server_that_does_not_answer_is_told_with_a_remedy() -> None:
    answer = topics("doctor", "--url", "http://127.0.0.1:1", "--json")
    assert bad(answer)["server"] == "is it running? curl http://127.0.0.1:1/v0/health"
    shown = topics("doctor", "--url", "http://127.0.0.1:1").out
    assert "!!  server" in shown
    assert "-> is it running?" in shown


class PoisonedServer:
    """Has one topic, which was written to by a clock that was far ahead."""

    def request(self, method: str, path: str, *, query: dict[str, str]) -> object:
        class Answered(NamedTuple):
            body: bytes

        if path == "/v0/topics":
            return Answered(b'{"topics":[{"topic":"t"}]}')
        assert (path, query) == ("/v0/topics/t", {"touch": "false"})
        return Answered(b'{"last_write_ts":%d}' % ((NOW + 1e8) * 1000))


def test_a_topic_of_a_server_that_a_wrong_clock_wrote_to_is_named() -> None:
    server: Any = PoisonedServer()
    (check,) = _checks.server_times(server, NOW)
    assert "the newest record of t is 1157d" in check.found
    refusing: Any = RefusingServer(Forbidden(scope="read"))
    assert list(_checks.server_times(refusing, NOW)) == []


class RefusingServer:
    """Answers every call with the same error."""

    def __init__(self, error: TopicsError) -> None:
        self.error = error

    def request(self, method: str, path: str, **options: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (NotReady(replay_progress=0.5), "wait"),
        (NotReady.shard("disk_full"), "df -h"),
        (NotReady.shard("wal_failed"), "restart it"),
        (ShuttingDown(), "see the server's log"),
    ],
)
def test_a_server_that_is_not_ready_is_told_with_the_reason(
    error: TopicsError, remedy: str
) -> None:
    server: Any = RefusingServer(error)
    check = _checks.ready(server)
    assert (check.state, check.found) == ("bad", str(error))
    assert remedy in check.remedy


def test_a_key_that_may_not_read_is_only_noted() -> None:
    server: Any = RefusingServer(Forbidden(scope="read"))
    assert _checks.key(server).state == "note"


def test_a_probe_that_asks_for_a_key_is_told_apart_from_a_dead_server() -> None:
    check = _checks.unreachable("http://x", Unauthorized())
    assert check.remedy == "name the key's file with --token-file"
    assert _checks.unreachable(DEFAULT_URL, ShuttingDown()).remedy == "is it running? topics serve"


def test_an_unknown_context_is_told_with_a_remedy() -> None:
    assert bad(topics("doctor", "--context", "zz", "--json")) == {"target": "topics context ls"}


def test_a_directory_that_is_missing_or_damaged_is_told_with_a_remedy(tmp_path: Path) -> None:
    absent = topics("doctor", "--dir", tmp_path / "absent", "--json")
    assert bad(absent)["directory"].startswith("topics create TOPIC --dir")
    with library.open(tmp_path / "data") as log:
        log.append("orders", {"data": 1})
    (tmp_path / "data" / "FORMAT").write_text("rubbish")
    damaged = topics("doctor", "--dir", tmp_path / "data", "--json")
    assert bad(damaged)["directory"] == f"topics verify {tmp_path / 'data'}"


def test_a_directory_that_everybody_can_write_to_is_a_problem(tmp_path: Path) -> None:
    data = tmp_path / "data"
    library.open(data).close()
    data.chmod(0o777)
    assert bad(topics("doctor", "--dir", data, "--json"))["rights"] == f"chmod 700 {data}"
    data.chmod(0o755)
    names = [check["name"] for check in topics("doctor", "--dir", data, "--json").json["checks"]]
    assert "rights" not in names


def test_what_is_found_stands_in_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [
        _checks.Check("disk", _checks.GOOD, "free"),
        _checks.Check("a check with a long name", _checks.BAD, "wrong", "mend it"),
    ]
    monkeypatch.setattr(doctor, "_examine", lambda where: iter(checks))
    shown = topics("doctor").out.splitlines()
    marks = zip(shown, ("free", "wrong", "->"), strict=True)
    assert len({line.index(mark) for line, mark in marks}) == 1
