"""What a program pays for importing the client: neither the server side nor numpy."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.blackbox.conftest import child_environment

CODE = """
import sys, time
begun = time.perf_counter()
{imports}
print(round((time.perf_counter() - begun) * 1000, 1))
print(*sorted(sys.modules))
"""
SERVER_SIDE = ("http", "server", "delivery", "queue", "engine", "storage", "core", "embedded")
FOREIGN = ("numpy", "pyarrow", "uvloop", "h2", "wsproto", "click", "rich", "prometheus_client")


@pytest.mark.parametrize(
    "imports",
    [
        "import topics.client.sync",
        "import topics.client.sync_http",
        "import topics.client.aio",
        'import topics; topics.open("http://127.0.0.1:1")',
        'import topics.aio; topics.aio.open("http://127.0.0.1:1")',
        "import topics.client.producer, topics.client.worker, topics.client.consumer",
    ],
)
def test_importing_the_client_loads_neither_server_nor_numpy(
    imports: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CODE.format(imports=imports)],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    took, modules = ran.stdout.split("\n", 1)
    with capsys.disabled():
        print(f"\n  {took} ms: {imports}")
    loaded = set(modules.split())
    assert "topics.client" in loaded
    unwanted = {
        name for name in loaded if name.startswith(tuple(f"topics.{s}" for s in SERVER_SIDE))
    }
    assert not unwanted
    assert not loaded & set(FOREIGN)


def test_the_blocking_client_does_without_asyncio() -> None:
    code = 'import sys, topics; topics.open("http://127.0.0.1:1"); print("asyncio" in sys.modules)'
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.strip() == "False"
