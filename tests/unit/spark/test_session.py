"""What a session puts into place before Spark starts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.spark.test_java import install

from topics.spark.errors import CannotStartSpark
from topics.spark.setup import session as starting
from topics.spark.setup.cache import made_once


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in which nobody has chosen anything yet."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "set so that it is restored")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_workers_run_this_python_on_the_loopback(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = install(bare / "java", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    starting.prepare("local[2]", {})
    assert os.environ["JAVA_HOME"] == str(home)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    spark_home = Path(os.environ["SPARK_HOME"])
    assert (spark_home / "bin" / "spark-submit").exists()
    assert (spark_home / "jars").is_dir()
    assert not (spark_home / "python" / "lib" / "pyspark.zip").exists()


def test_what_the_user_has_chosen_stays(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "java", "17.0.1")))
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    starting.prepare("local[*]", {})
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    monkeypatch.delenv("SPARK_HOME")
    starting.prepare("local[*]", {})
    assert "SPARK_HOME" not in os.environ  # who knows what that Python has


def test_a_cluster_elsewhere_must_be_able_to_reach_the_driver(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "java", "17.0.1")))
    starting.prepare("spark://cluster:7077", {})
    assert "SPARK_LOCAL_IP" not in os.environ
    assert "spark.driver.host" not in starting.session_conf("spark://cluster:7077", {})
    assert starting.session_conf("spark://127.0.0.1:7077", {})["spark.driver.host"] == "127.0.0.1"


def test_g1_in_the_settings_is_refused_before_anything_starts(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "java", "25.0.1")))
    with pytest.raises(CannotStartSpark, match="JDK-8377811"):
        starting.prepare("local", {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"})


def test_settings_are_text_and_the_users_win() -> None:
    conf = starting.session_conf("local", {"spark.ui.enabled": False, "spark.app.name": "mine"})
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.app.name"] == "mine"
    assert conf["spark.sql.session.timeZone"] == "UTC"


def test_workers_talk_through_sockets_where_their_names_fit() -> None:
    fits, too_long = "/" + "d" * 56, "/" + "d" * 57
    assert starting.worker_sockets("local", fits) == {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": fits,
    }
    assert starting.worker_sockets("local", too_long) == {}
    assert starting.worker_sockets("spark://127.0.0.1:7077", fits) == {}  # of another user, perhaps


def test_a_directory_is_made_once_and_never_seen_half_done(tmp_path: Path) -> None:
    made: list[Path] = []

    def fill(where: Path) -> None:
        made.append(where)
        assert not (tmp_path / "thing").exists()
        (where / "file").write_text("whole")

    first = made_once("thing", fill, root=tmp_path)
    assert made_once("thing", fill, root=tmp_path) == first
    assert (first / "file").read_text() == "whole"
    assert len(made) == 1


def test_missing_pyspark_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CannotStartSpark, match=r"pip install 'topics\[spark\]'"):
        starting.require_pyspark()


@pytest.mark.parametrize(
    ("module", "avoided"),
    [("topics.spark", "pyspark"), ("topics.spark", "pyarrow"), ("pyspark_topics", "topics.spark")],
)
def test_importing_is_cheap_and_cannot_break_spark(module: str, avoided: str) -> None:
    program = f"import {module}, sys; sys.exit({avoided!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
