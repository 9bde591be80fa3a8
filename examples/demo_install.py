"""Install Spark behind the demo: it is large, and the rest of the demo does not need it."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETUP = [sys.executable, str(ROOT / "tools" / "setup.py"), "base", "spark"]
NOTICE_EVERY_S = 5.0


class Installation:
    """`tools/setup.py` in a process of its own; its output goes to a file."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("w") as out:
            self._process = subprocess.Popen(SETUP, stdout=out, stderr=subprocess.STDOUT)

    def is_needed(self) -> bool:
        """Whether there is anything to install; known within a moment."""
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return True
        return self._process.returncode != 0

    def wait(self) -> None:
        """Wait for the end, saying now and then how far it is."""
        while True:
            try:
                code = self._process.wait(NOTICE_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                print(f"  {self._last_word()}", flush=True)
        if code != 0:
            sys.exit(
                f"Spark could not be installed, so the demo ends here; `make demo SPARK=0` leaves "
                f"it out.\n{self._log.read_text()}"
            )

    def stop(self) -> None:
        """Leave no process behind when the demo ends early."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _last_word(self) -> str:
        said = self._log.read_text().splitlines()
        return said[-1] if said else "setup: spark: beginning"


def wait_with_words(installation: Installation) -> None:
    """The part of the demo that has nothing to show but patience."""
    began = time.monotonic()
    print("\nWaiting for Spark to be installed", flush=True)
    installation.wait()
    print(f"  installed after {time.monotonic() - began:.0f} s more", flush=True)
