"""Crash points cost nothing until a hook is installed, and know every name."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from topics.storage import crashpoints
from topics.storage.crashpoints import NAMES, crashpoint, install, install_from_env, installed


def test_without_a_hook_any_point_passes() -> None:
    crashpoint("wal.after_write")
    crashpoint("not even a name")


def test_a_hook_hears_every_point_until_it_is_removed() -> None:
    heard: list[str] = []
    install(heard.append)
    crashpoint("wal.rotate.renamed")
    install(None)
    crashpoint("wal.rotate.current")
    assert heard == ["wal.rotate.renamed"]


def test_a_nested_hook_gives_way_to_the_one_before() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with installed(outer.append):
        with installed(inner.append):
            crashpoint("snap.tmp")
        crashpoint("snap.synced")
    crashpoint("snap.renamed")
    assert (outer, inner) == (["snap.synced"], ["snap.tmp"])


def test_a_misspelt_point_is_our_mistake() -> None:
    with installed(lambda _: None), pytest.raises(AssertionError, match=r"wal\.typo"):
        crashpoint("wal.typo")


def test_every_area_has_its_points() -> None:
    assert len(NAMES) == 68
    areas = {name.rsplit(".", 1)[0] for name in NAMES}
    assert areas == {
        *("wal", "wal.rotate", "ckpt", "snap", "del", "erase", "drop", "tier"),
        *("evict", "topic", "fwd", "stage", "rec", "object", "backup", "prune", "restore"),
    }


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"TOPICS_TEST_HOOKS": "1"},
        {"TOPICS_CRASHPOINT": "snap.tmp:1"},
        {"TOPICS_CRASHPOINT": "snap.tmp:1", "TOPICS_TEST_HOOKS": "0"},
    ],
)
def test_the_environment_arms_nothing_unless_both_variables_say_so(
    environ: dict[str, str],
) -> None:
    install_from_env(environ)
    assert crashpoints._hook is None


@pytest.mark.parametrize("text", ["snap.tmp", "snap.tmp:", "snap.tmp:0", "snap.tmp:x", "no:1", ""])
def test_a_malformed_setting_stops_the_start(text: str) -> None:
    with pytest.raises(ValueError, match="TOPICS_CRASHPOINT must be"):
        install_from_env({"TOPICS_TEST_HOOKS": "1", "TOPICS_CRASHPOINT": text})


def test_the_process_kills_itself_on_the_nth_pass() -> None:
    program = """
import os
from topics.storage.crashpoints import crashpoint, install_from_env
install_from_env(os.environ)
for turn in range(5):
    print(turn, flush=True)
    crashpoint("snap.synced")
    crashpoint("snap.tmp")
"""
    environ = {"TOPICS_TEST_HOOKS": "1", "TOPICS_CRASHPOINT": "snap.tmp:3"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == ["0", "1", "2"]


def test_only_the_nth_pass_of_the_named_point_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    with installed(lambda _: None):
        install_from_env({"TOPICS_TEST_HOOKS": "1", "TOPICS_CRASHPOINT": "snap.tmp:2"})
        for name in ("snap.tmp", "snap.synced"):
            crashpoint(name)
        assert not killed
        for name in ("snap.tmp", "snap.tmp"):
            crashpoint(name)
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_a_held_point_waits_for_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "go on"
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        key.touch()

    monkeypatch.setattr(crashpoints, "time", SimpleNamespace(sleep=wait))
    with installed(lambda _: None):
        install_from_env({"TOPICS_TEST_HOOKS": "1", "TOPICS_HOLDPOINT": f"rec.scan:{key}"})
        crashpoint("snap.tmp")
        assert not waits
        crashpoint("rec.scan")
        crashpoint("rec.scan")
    assert len(waits) == 1


@pytest.mark.parametrize("text", ["rec.scan", "rec.scan:", "no:/path", ""])
def test_a_malformed_hold_stops_the_start(text: str) -> None:
    with pytest.raises(ValueError, match="TOPICS_HOLDPOINT must be"):
        install_from_env({"TOPICS_TEST_HOOKS": "1", "TOPICS_HOLDPOINT": text})
