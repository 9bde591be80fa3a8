"""Run h2spec, the conformance suite for HTTP/2 servers, against a real `topics serve`.

`make h2spec` runs this. It needs Go on the PATH once, to install h2spec into a folder of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = "github.com/summerwind/h2spec/cmd/h2spec@latest"
START_SECONDS = 20


def main() -> int:
    h2spec = find_h2spec()
    if h2spec is None:
        print("h2spec needs Go: install it, or put h2spec itself on the PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        server = subprocess.Popen(
            [
                ROOT / ".venv/bin/topics",
                "serve",
                "--port=0",
                f"--port-file={port_file}",
                f"--data-dir={folder}/data",
            ]
        )
        try:
            host, _, port = wait_for(port_file).rpartition(":")
            return subprocess.call([h2spec, "-h", host, "-p", port, "-P", "/v0/health", "-o", "5"])
        finally:
            server.terminate()
            server.wait()


def find_h2spec() -> str | None:
    """h2spec from the PATH, or installed beside the virtual environment."""
    found = shutil.which("h2spec")
    if found is not None:
        return found
    binary = ROOT / ".venv/bin/h2spec"
    if not binary.exists():
        go = shutil.which("go")
        if go is None:
            return None
        environment = {**os.environ, "GOBIN": str(binary.parent)}
        subprocess.run([go, "install", MODULE], env=environment, check=True)
    return str(binary)


def wait_for(port_file: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not port_file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not start")
        time.sleep(0.05)
    return port_file.read_text().strip()


if __name__ == "__main__":
    raise SystemExit(main())
