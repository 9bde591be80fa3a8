"""A stop takes a bounded time, whatever the disk does: the log has what no checkpoint holds."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.blackbox.conftest import ServerFactory, ServerProcess, wait_until

SLOW_DISK = Path(__file__).parent / "slow_disk"
TOPICS = 40
SYNC_S = 0.5


def call(server: ServerProcess, method: str, path: str, body: object = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(server.url + path, data=data, method=method)
    asked.add_header("content-type", "application/json")
    with urllib.request.urlopen(asked, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


@pytest.mark.parametrize("impatient", [False, True], ids=["patient", "impatient"])
def test_a_stop_on_a_slow_disk_gives_its_checkpoint_up_and_loses_nothing(
    server_factory: ServerFactory, tmp_path: Path, *, impatient: bool
) -> None:
    """The segments alone would take 80 syncs; only the log's last ones are waited for."""
    slow = tmp_path / "slow"
    limit_ms = "600000" if impatient else "500"
    server = server_factory(
        env={
            "PYTHONPATH": str(SLOW_DISK),
            "SLOW_DISK": str(slow),
            "SLOW_SYNC_S": str(SYNC_S),
            "TOPICS_WAL_SHARDS": "1",
            "TOPICS_STOP_CHECKPOINT_MS": limit_ms,
        }
    )
    for number in range(TOPICS):
        call(server, "POST", f"/v0/topics/t{number}", {"records": [{"data": number}] * 3})
    slow.touch()
    server.signal(signal.SIGTERM)
    if impatient:
        wait_until(lambda: "last checkpoint" in server.stderr, server)
        server.signal(signal.SIGTERM)
    began = time.monotonic()
    assert server.wait() == 0
    assert time.monotonic() - began < 2 * TOPICS * SYNC_S, (
        "it waited for the syncs of every segment"
    )
    assert "the log has everything and the next start reads it" in server.stderr
    assert "stopped" in server.stderr
    slow.unlink()
    assert not list((server.data_dir / "meta").glob("snapshot.*"))
    server.start()
    for number in range(TOPICS):
        page = call(server, "GET", f"/v0/topics/t{number}")
        assert page["head_seq"] == 3
    ack = call(server, "POST", "/v0/topics/t7", {"records": [{"data": "next"}]})
    assert ack["first_seq"] == 4, "no seq is skipped"
