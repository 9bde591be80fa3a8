"""A backup beside a running server, to a real S3 protocol, with kills of either side."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.blackbox.api_client import Api, eventually
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerFactory, child_environment
from tests.object_server import KEY, KEY_ID, ObjectServer, environment, object_server

import topics


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectServer]:
    with object_server() as found:
        yield found


class Command:
    """`topics ...` in a process, with what it needs to reach the object store."""

    def __init__(self, s3: ObjectServer, *words: object, crash: str = "") -> None:
        env = child_environment() | environment(s3.port)
        if crash:
            env |= {"TOPICS_TEST_HOOKS": "1", "TOPICS_CRASHPOINT": crash}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "topics.cli", *map(str, words), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            text=True,
        )

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert KEY not in out + err
        assert KEY_ID not in out + err
        return self.process.returncode, out, err


def done(s3: ObjectServer, *words: object) -> Any:  # noqa: ANN401 - what a command printed
    code, out, err = Command(s3, *words).end()
    assert code == 0, err
    return json.loads(out)


class Load:
    """Writes until it is stopped; what was acked."""

    def __init__(self, api: Api) -> None:
        self.acked = 0
        self._api = api
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._api.write("orders", *range(20))
            self.acked += 20

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self.acked


def held(directory: Path) -> int:
    with topics.open(directory, read_only=True) as log:
        return sum(isinstance(each, topics.Record) for each in log.scan("orders"))


def test_a_killed_backup_beside_a_running_server_goes_on_where_it_was(
    server_factory: ServerFactory, connect: Connect, s3: ObjectServer, tmp_path: Path
) -> None:
    server = server_factory(env={"TOPICS_WAL_SHARDS": "2", "TOPICS_SEGMENT_MAX_EVENTS": "200"})
    load = Load(connect(server))
    try:
        url = f"s3://{s3.make_bucket()}/logs"
        before = load.acked
        for crash in ("backup.object:2", "backup.publish:1", "backup.published:1"):
            code, _, _ = Command(s3, "backup", server.data_dir, url, crash=crash).end()
            assert code == -signal.SIGKILL
        eventually(lambda: load.acked, lambda acked: acked > before + 200)
        acked = load.acked
        taken = done(s3, "backup", server.data_dir, url)
        assert not taken["has_hole"]
    finally:
        load.stop()
    restored = done(s3, "restore", url, tmp_path / "restored")
    assert restored["records"] >= acked
    assert held(tmp_path / "restored") == restored["records"]
    assert done(s3, "restore", url, "--check")["damage"] == []
    assert done(s3, "backup", "verify", url)["damaged"] == []


def test_a_stream_loses_about_a_second_when_the_machine_is_gone(
    server_factory: ServerFactory, connect: Connect, s3: ObjectServer, tmp_path: Path
) -> None:
    server = server_factory()
    api = connect(server)
    api.write("orders", 1, 2, 3)
    url = f"s3://{s3.make_bucket()}"
    stream = Command(s3, "backup", server.data_dir, url, "--stream")
    try:
        assert stream.process.stdout is not None
        assert json.loads(stream.process.stdout.readline())["new_point"]
        api.write("orders", *range(50))
        written_ms = time.time() * 1000
        eventually(lambda: _covered_to(s3, url), lambda to_ms: to_ms >= written_ms)
        second = Command(s3, "backup", server.data_dir, url).end()
        assert second[0] == 4
        assert "another backup" in second[2]
    finally:
        stream.process.kill()
        stream.process.communicate()
    server.kill()
    done(s3, "restore", url, tmp_path / "restored")
    assert held(tmp_path / "restored") == 53


def _covered_to(s3: ObjectServer, url: str) -> int:
    return int(done(s3, "backup", "ls", url)["spans"][-1][1])
