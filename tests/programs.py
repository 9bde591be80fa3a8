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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSTALL_S = 600
TRIES = 3
PAUSE_S = 5.0
# Another program may be installing, and an archive may not answer at once.
PATIENT = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=5")


def debian_program(name: str, *, package: str) -> str:
    """Where the program is; installed from its package if it has to be and can be."""
    found = _find(name)
    if found is not None:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise AssertionError(f"this test needs {name}: install Debian's package {package}")
    with _alone():
        install = [apt, "install", *PATIENT, "-y", "-qq", "--no-install-recommends", package]
        said = "" if _find(name) else _insist(install, [apt, "update", *PATIENT, "-qq"])
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
        refresh = ["apt-get", "update", *PATIENT, "-qq"]
        said = _insist(fetch, refresh if os.geteuid() == 0 else None)
    assert fetched.exists(), f"this test needs promtool (make promtool):\n{said}"
    return str(fetched)


def _insist(command: list[str], remedy: list[str] | None) -> str:
    """Run a command, and again after the remedy while it fails; what it said last."""
    for tries_left in reversed(range(TRIES)):
        code, said = _run(command)
        if code == 0 or not tries_left:
            break
        if remedy is not None:
            _run(remedy)
        time.sleep(PAUSE_S if tries_left < TRIES - 1 else 0)  # the remedy alone may do
    return said[-2000:]


def _run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@contextmanager
def _alone() -> Iterator[None]:
    """Other workers of this run may want the same."""
    with (Path(tempfile.gettempdir()) / "topics-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
