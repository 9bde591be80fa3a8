import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.object_server import ObjectServer, Proxy, environment, object_server, proxy_before

from topics.storage.objects.interface import Objects
from topics.storage.objects.opening import open_objects
from topics.storage.objects.remote import Patience

QUICK = Patience(request_s=1.0, connect_s=1.0, retries=2, retry_s=5.0)


@pytest.fixture(scope="session")
def server() -> Iterator[ObjectServer]:
    with object_server() as found:
        yield found


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, server: ObjectServer, tmp_path: Path) -> ObjectServer:
    """The server, with the environment set up for it and nothing else in it."""
    for name in os.environ:
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment(server.port).items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def proxy(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxy_before(s3) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{found.port}")
        yield found


@pytest.fixture
def behind_proxy(proxy: Proxy, s3: ObjectServer) -> Objects:
    return open_objects(f"s3://{s3.make_bucket()}/backup", patience=QUICK)
