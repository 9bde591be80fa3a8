"""Fetch promtool, the judge of Prometheus metrics, into .venv/bin; the tests then use it too.

`make promtool` runs this. The program comes out of Debian's package `prometheus`, which is only
downloaded and unpacked: nothing is installed and no service starts.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = ROOT / ".venv/bin/promtool"


def main() -> int:
    found = shutil.which("promtool") or (str(BINARY) if BINARY.exists() else None)
    if found is None:
        if shutil.which("apt-get") is None:
            print("promtool: needs Debian's apt-get, or promtool on the PATH", file=sys.stderr)
            return 1
        fetch()
        found = str(BINARY)
    print(f"promtool is {found}")
    return 0


def fetch() -> None:
    """Unpack the package in a folder of its own and keep the one program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        download = ["apt-get", "download", "-o", "Acquire::Retries=5", "-qq", "prometheus"]
        subprocess.run(download, cwd=folder, check=True)
        (package,) = folder.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package, folder / "unpacked"], check=True)
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / "unpacked/usr/bin/promtool", BINARY)


if __name__ == "__main__":
    raise SystemExit(main())
