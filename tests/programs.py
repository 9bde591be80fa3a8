"""Programs of the system that some tests need, and Debian has.

A test that needs one must not pass without it. On a machine where we are root and there is apt-get
the package is fetched once; anywhere else the test fails and says what to install.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSTALL_S = 600


def debian_program(name: str, *, package: str) -> str:
    """Where the program is; installed from its package if it has to be and can be."""
    found = _find(name)
    if found is not None:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise AssertionError(f"this test needs {name}: install Debian's package {package}")
    with _alone():
        install = [apt, "install", "-y", "-qq", "--no-install-recommends", package]
        said = "" if _find(name) else _run_one_of(install, [apt, "update", "-qq"])
    found = _find(name)
    assert found is not None, f"apt-get could not install {package}:\n{said}"
    return found


def _find(name: str) -> str | None:
    """On the path, or where packages put programs: a path may be narrower than that."""
    return shutil.which(name) or shutil.which(name, path=os.defpath)


def promtool() -> str:
    """Prometheus' own judge of metrics, out of Debian's package, of which nothing is installed."""
    fetched = ROOT / ".venv/bin/promtool"
    with _alone():
        found = shutil.which("promtool") or (str(fetched) if fetched.exists() else None)
        if found is not None:
            return found
        fetch = [sys.executable, str(ROOT / "tools/promtool.py")]
        refresh = ["apt-get", "update", "-qq"]
        said = _run_one_of(fetch, refresh if os.geteuid() == 0 else None)
    assert fetched.exists(), f"this test needs promtool (make promtool):\n{said}"
    return str(fetched)


def _run_one_of(command: list[str], remedy: list[str] | None) -> str:
    """Run a command, and once more after the remedy if it fails; what it said."""
    said = ""
    for attempt in (command, remedy, command) if remedy else (command,):
        done = subprocess.run(
            attempt,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
        said = done.stdout + done.stderr
        if done.returncode == 0 and attempt is command:
            break
    return said[-2000:]


@contextmanager
def _alone() -> Iterator[None]:
    """Other workers of this run may want the same."""
    with (Path(tempfile.gettempdir()) / "topics-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
