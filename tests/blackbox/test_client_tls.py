"""The client over TLS: calls and live reads, and no talk with a server nobody vouches for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.blackbox.client_world import KINDS, SHELLS, doors
from tests.blackbox.conftest import ServerFactory
from tests.blackbox.test_serve_tls import make_certificate
from tests.unit.cli.runner import topics

from topics import errors


def test_calls_and_streams_go_over_tls_to_servers_that_are_trusted(
    server_factory: ServerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(tmp_path, serial=1)
    trusted = str(tmp_path / "cert.pem")
    env = {"TOPICS_TLS_CERT": trusted, "TOPICS_TLS_KEY": str(tmp_path / "key.pem")}
    server = server_factory(env=env)
    with doors() as opened:
        for shell, transport in KINDS:
            log = opened(shell, server.url, ca_file=trusted)
            topic = f"{shell}-{transport}"
            log.append(topic, [{"data": n, "meta": "x" * 10_000} for n in range(50)])
            assert log.state(topic).count == 50
            items = log.follow(topic, transport=transport)
            assert [next(items).data for _ in range(50)] == list(range(50))
            log.append(topic, {"data": "live"})
            assert next(items).data == "live"
            items.close()
        for shell in SHELLS:
            stranger = opened(shell, server.url, retries=10**6)  # which are not made
            with pytest.raises(errors.Untrusted, match=r"(?i)certificate.*ca_file"):
                stranger.topics()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))  # put back when the test ends
    assert topics("ls", "--url", server.url).code == 5
    assert "sync-sse" in topics("--ca-file", trusted, "ls", "--url", server.url).out
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    added = topics("context", "add", "own", "--url", server.url, "--ca-file", trusted, "--json")
    assert added.json["ca_file"] == trusted
    assert topics("doctor").code == topics("ls").code == 0
