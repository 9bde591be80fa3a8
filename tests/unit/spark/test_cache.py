"""Where Java and Spark are unpacked, and whom that directory must belong to."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from topics.spark.errors import CannotStartSpark
from topics.spark.setup.cache import cache_dir, made_once


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that is used where the home cannot be written; it does not exist yet."""
    blocked = tmp_path / "home"
    blocked.write_text("a file where a directory is wanted")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"topics-cache-{os.getuid()}"


def test_a_directory_between_those_of_other_users_is_for_its_owner_alone(shared: Path) -> None:
    assert cache_dir() == shared
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700
    assert made_once("java", lambda made: (made / "x").touch(), root=shared) == shared / "java"
    assert cache_dir() == shared, "it is taken again"


def test_a_directory_that_others_could_only_read_is_closed_to_them(shared: Path) -> None:
    shared.mkdir()
    shared.chmod(0o755)
    assert cache_dir() == shared
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700


def test_nothing_is_run_from_a_directory_that_others_can_write(shared: Path) -> None:
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(CannotStartSpark, match="written by others"):
        cache_dir()


def test_nothing_is_run_from_behind_a_planted_link(shared: Path, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir(mode=0o700)
    shared.symlink_to(planted)
    with pytest.raises(CannotStartSpark, match="not a directory of this user"):
        cache_dir()


def test_nothing_is_run_from_a_directory_of_another_user(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.mkdir(mode=0o700)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    shared.rename(shared.with_name(f"topics-cache-{other}"))
    with pytest.raises(CannotStartSpark, match="not a directory of this user"):
        cache_dir()
