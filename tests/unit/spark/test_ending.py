"""An error that comes of a JVM that is gone is told as that; any other stays what it is."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import topics
from topics import cli
from topics.spark.errors import CannotStartSpark
from topics.spark.flows import running, state
from topics.spark.jobs import ending
from topics.spark.jobs import session as jobs
from topics.spark.jobs.ending import SparkDied, Stopped, dying_with_spark


class Process:
    """Stands for the JVM: it has ended, or does not."""

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends

    def wait(self, timeout: float) -> int:
        if not self._ends:
            raise subprocess.TimeoutExpired("java", timeout)
        return 143


ENDED, ALIVE = SimpleNamespace(proc=Process(ends=True)), SimpleNamespace(proc=Process(ends=False))
NOT_OURS = SimpleNamespace(proc=None)


@pytest.mark.parametrize(
    ("gateway", "told", "expected"),
    [
        (ENDED, True, Stopped),
        (None, True, Stopped),  # the signal came while Spark was starting
        (ALIVE, True, ConnectionRefusedError),
        (NOT_OURS, True, ConnectionRefusedError),
        (ENDED, False, SparkDied),
        (None, False, ConnectionRefusedError),
        (ALIVE, False, ConnectionRefusedError),
    ],
)
def test_an_error_is_told_by_what_became_of_the_jvm(
    gateway: object, told: bool, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_gateway", lambda: gateway)
    stopping = threading.Event()
    if told:
        stopping.set()
    with pytest.raises(expected) as raised, dying_with_spark(stopping):
        raise ConnectionRefusedError(111, "Connection refused")
    if expected is not ConnectionRefusedError:
        assert "what was written stays" in str(raised.value)


def test_a_run_that_ended_well_has_ended_well_though_the_jvm_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "_gateway", lambda: ENDED)
    stopping = threading.Event()
    stopping.set()
    with dying_with_spark(stopping):
        pass


def test_a_flow_told_to_stop_together_with_its_jvm_ends_as_stopped_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = threading.Event()

    def interrupted(*what: object) -> None:
        stopping.set()
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(ending, "_gateway", lambda: ENDED)
    monkeypatch.setattr(running, "told_to_stop", lambda: nullcontext(stopping))
    monkeypatch.setattr(running, "job_session", lambda *how, **more: nullcontext())
    monkeypatch.setattr(running, "start", interrupted)
    with topics.open(tmp_path / "data") as log:
        log.create("orders")
    file = tmp_path / "copy.yaml"
    file.write_text("from: orders\nsql: SELECT * FROM orders\nto: {table: ./copy}\n")
    assert cli.run(["flow", "run", str(file), "--dir", str(tmp_path / "data")]) == 130
    *_, line = capsys.readouterr().err.splitlines()
    assert line == f"topics: {Stopped()}"
    assert state.find("copy").status == "stopped"


def test_no_time_is_lost_on_an_error_that_has_nothing_to_do_with_the_jvm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked() -> None:
        raise AssertionError("the JVM was looked at")

    monkeypatch.setattr(ending, "_is_gone", asked)
    with pytest.raises(ValueError, match="bad data"), dying_with_spark(threading.Event()):
        raise ValueError("bad data")


def test_a_spark_that_does_not_start_is_told_in_a_line_after_its_own_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(master: str, conf: object) -> None:
        os.write(2, b"no such master\n")
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited.")

    notices: list[str] = []
    monkeypatch.setattr(jobs, "session", refuse)
    with (
        pytest.raises(CannotStartSpark, match=r"did not start on spark://a:1: .*process exited"),
        jobs.job_session("test", "spark://a:1", notices.append),
    ):
        pass
    assert notices == ["starting Spark on spark://a:1", "no such master"]
