"""The demo ends by itself, says what it did and leaves nothing behind.

Its last part, with Spark, is tested where the Spark tests are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def test_the_demo_runs_to_its_end_and_cleans_up(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, str(DEMO), "--no-spark"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    assert told.stdout.splitlines()[-1].startswith("Done in ")
    assert "killed with SIGKILL" in told.stdout
    assert list(tmp_path.iterdir()) == []
