"""The doctor: what it finds, what it would do, what it advises."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.unit.spark.test_java import NO_JAVA, install

from topics.cli._app import run
from topics.spark import java
from topics.spark.setup import doctor


def test_a_good_machine_needs_no_remedy(tmp_path: Path) -> None:
    home = install(tmp_path / "java", "17.0.15")
    report = doctor.examine({"JAVA_HOME": str(home), **NO_JAVA})
    assert report.is_good
    assert report.found["Java 17.0.15"] == f"JAVA_HOME={home}"
    assert f"start Java 17.0.15 from {home}" in report.would


def test_a_java_that_is_too_old_is_named_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "packaged_home", lambda: None)
    old = install(tmp_path / "old", "11.0.2")
    report = doctor.examine({"JAVA_HOME": str(old), **NO_JAVA})
    assert report.found["Java 11.0.2"] == f"JAVA_HOME={old}, too old: Spark needs 17"
    (remedy,) = report.remedies
    assert "pip install 'topics[spark]' brings a JDK along" in remedy


def test_a_java_home_without_java_is_pointed_out(tmp_path: Path) -> None:
    report = doctor.examine({"JAVA_HOME": str(tmp_path), **NO_JAVA})
    assert f"ignore JAVA_HOME={tmp_path}: there is no Java in it" in report.would


def test_a_packaged_jdk_that_corrupts_data_is_kept_away_from_g1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = install(tmp_path / "packaged", "25.0.2", "java.base")
    monkeypatch.setattr(java, "packaged_home", lambda: home)
    report = doctor.examine(dict(NO_JAVA))
    assert report.is_good
    assert any("away from the G1 collector" in line for line in report.would)
    assert any("without jdk.incubator.vector" in line for line in report.would)


def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_NEEDED", ("pyspark", "no-such-package"))
    report = doctor.examine(dict(os.environ))
    assert report.found["no-such-package"] == "missing"
    assert "no-such-package is missing: pip install 'topics[spark]'" in report.remedies


def test_the_command_fails_with_the_remedy_when_spark_cannot_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(java, "packaged_home", lambda: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run(["spark", "doctor"]) == 1
    assert "cannot start: Spark needs Java 17 or newer" in capsys.readouterr().out
    assert run(["spark", "doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
