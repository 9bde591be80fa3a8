"""`topics serve` from outside: how it starts, what it says, how it ends."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import httpx
import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerFactory, ServerProcess, wait_until


def write(server: ServerProcess, topic: str, count: int = 1, **config: object) -> dict[str, object]:
    body = {"records": [{"data": n} for n in range(count)], "config": config}
    answer = httpx.post(f"{server.url}/v0/topics/{topic}", json=body, timeout=PATIENCE_S)
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, object] = answer.json()
    return found


# Start


def test_the_port_file_holds_the_bound_address(server: ServerProcess) -> None:
    assert server.port != 0
    assert httpx.get(f"{server.url}/v0/health", timeout=PATIENCE_S).json()["status"] == "ok"


def test_the_port_file_holds_nothing_else(server_factory: ServerFactory, tmp_path: Path) -> None:
    path = tmp_path / "address"
    server = server_factory(flags=["--port-file", str(path)], start=False)
    server.launch()
    wait_until(path.exists, server)
    host, _, port = path.read_text().partition(":")
    assert host == "127.0.0.1"
    assert port.isdecimal()
    assert [found.name for found in tmp_path.glob("address*")] == ["address"]


def test_a_start_without_keys_warns_loudly(server: ServerProcess) -> None:
    assert "NO API KEYS ARE SET" in server.stderr


def test_a_flag_wins_over_its_variable(server_factory: ServerFactory, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    server = server_factory(flags=["--data-dir", str(elsewhere)])
    write(server, "t")
    assert (elsewhere / "FORMAT").exists()
    assert not server.data_dir.exists()


def test_a_switch_can_be_turned_off_by_a_flag(server_factory: ServerFactory) -> None:
    env = {"TOPICS_API_KEYS": "k", "TOPICS_PROBE_AUTH": "1"}
    server = server_factory(env=env, flags=["--no-probe-auth"])
    assert httpx.get(f"{server.url}/v0/ready", timeout=PATIENCE_S).status_code == 200


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TOPICS_WAL_SHARDS": "many"}, ["TOPICS_WAL_SHARDS", "'many'", "an integer"]),
        ({"TOPICS_PORT": "70000"}, ["TOPICS_PORT", "'70000'", "65535"]),
        ({"TOPICS_API_KEYS": "k:everything"}, ["TOPICS_API_KEYS", "read, write"]),
        ({"TOPICS_HOST": "0.0.0.0"}, ["TOPICS_HOST", "0.0.0.0", "loopback"]),
        ({"TOPICS_TLS_CERT": "/nowhere"}, ["TOPICS_TLS_KEY", "TOPICS_TLS_CERT"]),
        (
            {"TOPICS_TLS_CERT": "/nowhere", "TOPICS_TLS_KEY": "/nowhere"},
            ["TOPICS_TLS_CERT", "/nowhere"],
        ),
        (
            {"TOPICS_TEST_HOOKS": "1", "TOPICS_CRASHPOINT": "nowhere:1"},
            ["TOPICS_CRASHPOINT", "nowhere"],
        ),
    ],
)
def test_a_bad_setting_refuses_to_start_and_says_what_is_allowed(
    server_factory: ServerFactory, env: dict[str, str], words: list[str]
) -> None:
    server = server_factory(env=env, start=False)
    server.launch()
    assert server.wait() == 2
    assert all(word in server.stderr for word in words), server.stderr
    assert "Traceback" not in server.stderr
    assert not server.data_dir.exists()


def test_an_unknown_flag_is_a_usage_error(server_factory: ServerFactory) -> None:
    server = server_factory(flags=["--no-such-flag"], start=False)
    server.launch()
    assert server.wait() == 2
    assert "--no-such-flag" in server.stderr


def test_a_public_bind_without_keys_needs_the_override(server_factory: ServerFactory) -> None:
    env = {"TOPICS_HOST": "0.0.0.0", "TOPICS_ALLOW_INSECURE_NO_AUTH": "1"}
    server = server_factory(env=env, start=False)
    server.launch()
    server.wait_bound()
    assert "EVERYBODY" in server.stderr


def test_a_taken_port_ends_the_start(server_factory: ServerFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = server_factory(env={"TOPICS_PORT": str(port)}, start=False)
        server.launch()
        assert server.wait() == 1
    assert f"cannot listen on 127.0.0.1:{port}" in server.stderr
    assert "Traceback" not in server.stderr


def test_a_port_file_that_cannot_be_written_ends_the_start(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_PORT_FILE": "/nowhere/at/all"}, start=False)
    server.launch()
    assert server.wait() == 1
    assert "/nowhere/at/all" in server.stderr


def test_a_port_file_that_cannot_be_put_in_place_leaves_nothing(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    server = server_factory(env={"TOPICS_PORT_FILE": str(folder)}, start=False)
    server.launch()
    assert server.wait() == 1
    assert not Path(f"{folder}.tmp").exists()


def test_a_directory_that_everybody_can_write_to_is_told_of(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    data, cold = tmp_path / "open", tmp_path / "cold"
    for path in (data, cold):
        path.mkdir()
        path.chmod(0o777)
    server = server_factory(env={"TOPICS_COLD_DIR": str(cold)}, data_dir=data)
    for path in (data, cold):
        assert f"every user of this machine can write to {path}" in server.stderr


def test_pr01_a_second_server_on_the_directory_is_refused_and_the_first_unharmed(
    server: ServerProcess, server_factory: ServerFactory
) -> None:
    write(server, "t")
    second = server_factory(start=False, data_dir=server.data_dir)
    second.launch()
    assert second.wait() == 4
    line = json.loads(second.stderr.splitlines()[-1])
    assert set(line) == {"refused", "file", "offset", "message"}
    assert not (second.root / "port").exists(), "it must not listen"
    write(server, "t")


# Recovery


def recovering(server_factory: ServerFactory, go: Path) -> ServerProcess:
    """A server that has a hundred records to recover and waits for the file `go` on the way."""
    first = server_factory()
    write(first, "t", 100)
    first.kill()
    env = {"TOPICS_TEST_HOOKS": "1", "TOPICS_HOLDPOINT": f"rec.scan:{go}"}
    server = server_factory(env=env, start=False, data_dir=first.data_dir)
    server.launch()
    server.wait_bound()
    wait_until(Path(f"{go}.reached").exists, server)
    return server


def test_pr11_requests_during_recovery_are_told_to_wait(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    server = recovering(server_factory, go)
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        assert http.get("/v0/health").status_code == 200
        assert http.get("/v0/openapi.json").status_code == 200
        assert http.get("/v0/metrics").status_code == 200
        for path in ("/v0/ready", "/readyz", "/v0/topics", "/v0/topics/t", "/v0/nowhere"):
            answer = http.get(path)
            assert answer.status_code == 503, path
            assert answer.headers["retry-after"] == "1"
            error = answer.json()["error"]
            assert error["code"] == "not_ready"
            assert 0.0 <= error["detail"]["replay_progress"] <= 1.0
        go.touch()
        server.wait_ready()
        assert http.get("/v0/topics/t").json()["count"] == 100


def test_a_signal_during_recovery_ends_it_and_changes_nothing(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    server = recovering(server_factory, go)
    server.signal(signal.SIGTERM)

    def refusal() -> str:
        answer = httpx.get(f"{server.url}/v0/topics/t", timeout=PATIENCE_S)
        assert answer.status_code == 503
        return str(answer.json()["error"]["code"])

    wait_until(lambda: refusal() == "shutting_down", server)
    go.touch()
    assert server.wait() == 0
    assert "stopped before recovery was complete" in server.stderr
    assert "Traceback" not in server.stderr
    again = server_factory(data_dir=server.data_dir)
    assert httpx.get(f"{again.url}/v0/topics/t", timeout=PATIENCE_S).json()["count"] == 100


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_acked_records_are_there_after_a_restart(server: ServerProcess, how: str) -> None:
    write(server, "t", 500)
    write(server, "safe", 5, durability="fsync")
    getattr(server, how)()
    server.start()
    assert httpx.get(f"{server.url}/v0/topics/t", timeout=PATIENCE_S).json()["count"] == 500
    assert httpx.get(f"{server.url}/v0/topics/safe", timeout=PATIENCE_S).json()["head_seq"] == 5


# Shutdown


def test_a_signal_ends_it_cleanly_with_exit_code_0(server: ServerProcess) -> None:
    write(server, "t")
    assert server.stop() == 0
    assert "Traceback" not in server.stderr
    said = [server.stderr.find(words) for words in ("shutting down", "last checkpoint", "stopped")]
    assert -1 not in said
    assert said == sorted(said), "an operator can tell what is being waited for"


def test_an_idle_keep_alive_connection_does_not_hold_up_the_end(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        assert http.get("/v0/health").status_code == 200
        assert server.stop() == 0


def test_pr12_a_running_request_finishes_while_new_ones_are_refused(server: ServerProcess) -> None:
    write(server, "t")
    body = b'{"records":[{"data":"late"}]}'
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_S) as running:
        running.sendall(
            b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body[:10])
        )
        wait_until(
            lambda: httpx.get(f"{server.url}/v0/ready", timeout=PATIENCE_S).status_code == 200,
            server,
        )
        server.signal(signal.SIGTERM)
        wait_until(
            lambda: httpx.get(f"{server.url}/v0/ready", timeout=PATIENCE_S).status_code == 503,
            server,
        )
        refused = httpx.get(f"{server.url}/v0/topics", timeout=PATIENCE_S)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "shutting_down"
        assert refused.headers["retry-after"] == "1"
        assert httpx.get(f"{server.url}/v0/health", timeout=PATIENCE_S).status_code == 200
        running.sendall(body[10:])
        assert b"200 OK" in running.recv(65536)
    assert server.wait() == 0
    server.start()
    assert httpx.get(f"{server.url}/v0/topics/t", timeout=PATIENCE_S).json()["count"] == 2


def test_sighup_without_tls_changes_nothing(server: ServerProcess) -> None:
    server.signal(signal.SIGHUP)
    assert httpx.get(f"{server.url}/v0/health", timeout=PATIENCE_S).status_code == 200
    assert server.is_running
