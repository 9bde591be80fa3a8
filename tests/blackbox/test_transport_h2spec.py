"""The conformance suite for HTTP/2 servers, when it is installed.

`go install github.com/summerwind/h2spec/cmd/h2spec@latest` puts it in place.
"""

import shutil
import subprocess

import pytest
from tests.blackbox.transport_server import serving


def test_h2spec_finds_nothing_wrong() -> None:
    h2spec = shutil.which("h2spec")
    if h2spec is None:
        pytest.skip("h2spec is not installed")
    with serving() as served:
        run = subprocess.run(
            [h2spec, "-h", served.host, "-p", str(served.port), "-o", "5"],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert run.returncode == 0, run.stdout[-4000:]
    assert " 0 failed" in run.stdout
