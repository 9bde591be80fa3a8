"""The import of Arrow leaves the interpreter as it found it, and is complete when it returns."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from topics.http.api import arrow_import

PROGRAM = """
import sys, threading
from topics.http.api import arrow_import

usual, during = sys.getswitchinterval(), []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            during.append(sys.getswitchinterval())

sys.meta_path.insert(0, Watch())
threads = [threading.Thread(target=arrow_import.load) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
loaded = "pyarrow.compute" in sys.modules and "topics.storage.frames.arrow" in sys.modules
print(loaded, round(min(during), 6), sys.getswitchinterval() == usual)
"""


def test_loading_is_done_once_with_quick_switches_which_end_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["True", str(arrow_import.SWITCH_S), "True"]


def test_the_libraries_that_are_read_before_exist_in_what_is_installed() -> None:
    for package, patterns in arrow_import._LIBRARIES.items():
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.origin is not None
        home = Path(found.origin).parent
        for pattern in patterns:
            if not pattern.startswith("../"):  # wheels bring these, systems have them elsewhere
                assert list(home.glob(pattern)), f"{package}: {pattern}"


def test_a_package_that_is_not_there_or_cannot_be_read_is_left_to_the_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrow_import._read("topics_of_nobody", ("*",))
    monkeypatch.setattr(Path, "glob", lambda *_: [Path("/nowhere/lib.so")])
    arrow_import._read("topics", ("*",))
