"""TLS on the same port: ALPN, both versions of HTTP, and new certificates without a break."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerFactory, ServerProcess, wait_until


def make_certificate(directory: Path, serial: int) -> None:
    """A self-signed pair for 127.0.0.1, in place of any other."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-set_serial", str(serial)),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", directory / "key.pem", "-out", directory / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    directory = tmp_path / "certificates"
    directory.mkdir()
    make_certificate(directory, serial=1)
    return directory


@pytest.fixture
def tls_server(server_factory: ServerFactory, certificates: Path) -> ServerProcess:
    return server_factory(
        env={
            "TOPICS_TLS_CERT": str(certificates / "cert.pem"),
            "TOPICS_TLS_KEY": str(certificates / "key.pem"),
        }
    )


def connect(server: ServerProcess, *protocols: str) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    raw = socket.create_connection((server.host, server.port), timeout=PATIENCE_S)
    return context.wrap_socket(raw)


def serial_of(connection: ssl.SSLSocket, scratch: Path) -> int:
    found = connection.getpeercert(binary_form=True)
    assert found is not None
    path = scratch / "seen.pem"
    path.write_text(ssl.DER_cert_to_PEM_cert(found))
    shown = subprocess.run(
        ["openssl", "x509", "-in", path, "-noout", "-serial"],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(shown.stdout.strip().partition("=")[2], 16)


def get(connection: ssl.SSLSocket, path: str) -> bytes:
    connection.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
        received = connection.recv(65536)
        assert received, answer
        answer += received
    return answer


def curl(server: ServerProcess, *options: str) -> str:
    url = f"{server.url}/v0/health"
    command = ["curl", "-sS", "-k", "-o", "/dev/null", "-w", "%{http_version}", *options, url]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (("h2", "http/1.1"), "h2"),
        (("http/1.1", "h2"), "h2"),
        (("http/1.1",), "http/1.1"),
        ((), None),
    ],
)
def test_alpn_prefers_http2(
    tls_server: ServerProcess, offered: tuple[str, ...], chosen: str | None
) -> None:
    with connect(tls_server, *offered) as connection:
        assert connection.selected_alpn_protocol() == chosen


def test_curl_speaks_both_versions(tls_server: ServerProcess) -> None:
    assert curl(tls_server, "--http2") == "2"
    assert curl(tls_server, "--http1.1") == "1.1"


def test_plain_text_gets_nothing_on_a_tls_port(tls_server: ServerProcess) -> None:
    with socket.create_connection((tls_server.host, tls_server.port), timeout=PATIENCE_S) as plain:
        plain.sendall(b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"HTTP/1.1 200" not in plain.recv(1000)


def test_sighup_brings_a_new_certificate_and_drops_nobody(
    tls_server: ServerProcess, certificates: Path
) -> None:
    with connect(tls_server, "http/1.1") as old:
        assert serial_of(old, certificates) == 1
        make_certificate(certificates, serial=2)
        tls_server.signal(signal.SIGHUP)
        wait_until(lambda: "certificate reloaded" in tls_server.stderr, tls_server)
        assert b"200 OK" in get(old, "/v0/health"), "the open connection goes on"
        with connect(tls_server, "http/1.1") as new:
            assert serial_of(new, certificates) == 2


def encrypt_key(directory: Path) -> None:
    """Put a pass phrase on the key."""
    path = str(directory / "key.pem")
    encrypted = subprocess.run(
        ["openssl", "pkey", "-in", path, "-aes256", "-passout", "pass:word"],
        check=True,
        capture_output=True,
    )
    Path(path).write_bytes(encrypted.stdout)


def spoil_key(directory: Path) -> None:
    (directory / "key.pem").write_text("nonsense")


def test_an_encrypted_key_is_refused_without_asking_anybody(
    server_factory: ServerFactory, certificates: Path
) -> None:
    encrypt_key(certificates)
    pair = {"CERT": "cert.pem", "KEY": "key.pem"}
    env = {f"TOPICS_TLS_{name}": str(certificates / file) for name, file in pair.items()}
    server = server_factory(env=env, start=False)
    server.launch()
    assert server.wait() == 2
    assert "TOPICS_TLS_KEY" in server.stderr
    assert "the key is encrypted" in server.stderr
    assert "Enter PEM pass phrase" not in server.stderr


@pytest.mark.parametrize("spoil", [spoil_key, encrypt_key])
def test_a_bad_new_certificate_leaves_the_old_one(
    tls_server: ServerProcess, certificates: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(certificates)
    tls_server.signal(signal.SIGHUP)
    wait_until(lambda: "not reloaded" in tls_server.stderr, tls_server)
    with connect(tls_server, "http/1.1") as connection:
        assert serial_of(connection, certificates) == 1
        body = get(connection, "/v0/ready").partition(b"\r\n\r\n")[2]
        assert json.loads(body)["status"] == "ready"


def test_a_stop_ends_tls_connections_too(tls_server: ServerProcess) -> None:
    with connect(tls_server, "http/1.1") as connection:
        get(connection, "/v0/health")
        assert tls_server.stop() == 0
