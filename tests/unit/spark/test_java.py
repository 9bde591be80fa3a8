"""Java: which one is chosen, and what our launcher lets through."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from topics.spark import java
from topics.spark.errors import CannotStartSpark

NO_JAVA = {"PATH": "/nonexistent"}


def install(
    home: Path, version: str, modules: str = "", *, says: str = 'printf "%s\\n" "$@"'
) -> Path:
    """A Java that prints how it was started."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    listed = f'MODULES="{modules}"\n' if modules else ""
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n{listed}')
    (home / "lib").mkdir()
    return home


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The JDK of the package, as far as anybody can see."""
    home = install(tmp_path / "packaged", "25.0.2", "java.base java.sql")
    monkeypatch.setattr(java, "packaged_home", lambda: home)
    return home


def start(home: Path, *arguments: str, env: dict[str, str] | None = None) -> list[str]:
    done = subprocess.run(
        [str(home / "bin" / "java"), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], **(env or {})},
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("17.0.15", (17, 0, 15)),
        ("1.8.0_402", (8, 0)),
        ("25", (25,)),
        ("25.0.2-ea", (25, 0, 2)),
        ("", None),
    ],
)
def test_versions_begin_with_the_major_one(text: str, numbers: tuple[int, ...] | None) -> None:
    assert java.parse_version(text) == numbers


def test_java_home_is_used_before_any_other(tmp_path: Path, packaged: Path) -> None:
    home = install(tmp_path / "mine", "21.0.1")
    on_path = install(tmp_path / "other", "17.0.1")
    found = java.search({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}).require()
    assert found.home == home
    assert java.home_for_spark(found) == home


def test_java_on_path_is_used_when_java_home_is_too_old(tmp_path: Path, packaged: Path) -> None:
    old = install(tmp_path / "old", "11.0.2")
    on_path = install(tmp_path / "other", "17.0.1")
    search = java.search({"JAVA_HOME": str(old), "PATH": str(on_path / "bin")})
    assert [found.home for found in search.seen] == [old, on_path]
    assert search.require().home == on_path


def test_a_java_without_a_release_file_is_asked(tmp_path: Path, packaged: Path) -> None:
    home = tmp_path / "quiet"
    said = f'printf "    java.home = {home}\\n    java.version = 17.0.9\\n" >&2'
    install(home, "0", says=said)
    (home / "release").unlink()
    found = java.search({"PATH": str(home / "bin")}).require()
    assert (found.home, found.version) == (home, (17, 0, 9))


def test_the_packaged_java_serves_when_there_is_no_other(packaged: Path) -> None:
    assert java.search(NO_JAVA).require().home == packaged


def test_no_java_at_all_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "packaged_home", lambda: None)
    with pytest.raises(CannotStartSpark, match=r"there is no Java.*pip install 'topics\[spark\]'"):
        java.search(NO_JAVA).require()


def test_only_old_javas_are_an_error_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "packaged_home", lambda: None)
    old = install(tmp_path / "old", "1.8.0_402")
    with pytest.raises(CannotStartSpark, match=r"is Java 8\.0, too old"):
        java.search({"JAVA_HOME": str(old), **NO_JAVA}).require()


def test_the_launcher_drops_the_module_that_a_trimmed_jdk_lacks(
    tmp_path: Path, packaged: Path
) -> None:
    home = java.home_for_spark(java.search(NO_JAVA).require(), cache=tmp_path / "cache")
    said = start(home, "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", "$x")
    assert said == ["-XX:+UseParallelGC", "-cp", "a b", "Main", "$x"]
    assert (home / "lib").resolve() == packaged / "lib"
    assert java.home_for_spark(java.search(NO_JAVA).require(), cache=tmp_path / "cache") == home


def test_a_collector_that_was_chosen_is_not_joined_by_another(
    tmp_path: Path, packaged: Path
) -> None:
    home = java.home_for_spark(java.search(NO_JAVA).require(), cache=tmp_path / "cache")
    assert start(home, "-XX:+UseSerialGC", "Main") == ["-XX:+UseSerialGC", "Main"]
    assert start(home, "Main", env={"JAVA_TOOL_OPTIONS": "-XX:+UseZGC"}) == ["Main"]


def test_the_launcher_refuses_the_collector_that_corrupts_data(
    tmp_path: Path, packaged: Path
) -> None:
    home = java.home_for_spark(java.search(NO_JAVA).require(), cache=tmp_path / "cache")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        start(home, "-XX:+UseG1GC", "Main")
    assert "corrupts compressed data under G1" in refused.value.stderr


@pytest.mark.parametrize("version", ["25", "25.0.0", "25.0.1", "25.0.2"])
def test_a_session_refuses_g1_on_versions_that_corrupt_data(tmp_path: Path, version: str) -> None:
    found = java.examine(install(tmp_path / "java", version), source="here")
    assert found is not None
    assert found.needs_launcher
    option = {"spark.executor.extraJavaOptions": "-Xss4m -XX:+UseG1GC"}
    with pytest.raises(CannotStartSpark, match="extraJavaOptions asks for the G1"):
        java.refuse_g1(found, option, {})
    with pytest.raises(CannotStartSpark, match="JDK_JAVA_OPTIONS asks for the G1"):
        java.refuse_g1(found, {}, {"JDK_JAVA_OPTIONS": "-XX:+UseG1GC"})


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "25.0.3", "26"])
def test_other_versions_may_use_g1_and_start_as_they_are(tmp_path: Path, version: str) -> None:
    found = java.examine(install(tmp_path / "java", version), source="here")
    assert found is not None
    assert not found.needs_launcher
    java.refuse_g1(found, {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}, {})
