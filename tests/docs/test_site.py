"""The documentation site builds, and every link in it leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert told.returncode == 0, told.stderr
    http = (tmp_path / "site" / "reference" / "http" / "index.html").read_text()
    assert "POST /v0/topics/{topic}" in http
    assert 'href="#writebody"' in http
    assert "idempotency_window_ms" in http
    assert "topics serve" in (tmp_path / "site" / "reference" / "cli" / "index.html").read_text()
    assert (
        "next_from_seq" in (tmp_path / "site" / "reference" / "python" / "index.html").read_text()
    )
    assert (tmp_path / "site" / "llms.txt").exists()
