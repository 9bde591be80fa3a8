"""The blocking client is made from the asyncio client and was not changed by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "make_sync.py"


def test_the_blocking_client_is_what_the_tool_makes() -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
