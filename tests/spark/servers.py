"""Servers for Spark tests: ones that come back at the same address, and a few calls to them."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Sequence
from typing import Any

from tests.blackbox.conftest import ServerFactory, ServerProcess

from topics.client.sync_http import Http

Json = dict[str, Any]


class Server:
    """A server process and a client of it."""

    def __init__(self, process: ServerProcess, token: str | None = None) -> None:
        self.process = process
        self.http = Http(process.url, token=token)

    @property
    def url(self) -> str:
        return self.process.url

    def call(self, method: str, path: str, body: object = None) -> Json:
        sent = None if body is None else json.dumps(body).encode()
        answer = self.http.request(method, path, body=sent, idempotent=True)
        found: Json = json.loads(answer.body)
        return found

    def create(self, topic: str, **config: object) -> None:
        self.call("PUT", f"/v0/topics/{topic}", config)

    def append(self, topic: str, count: int, *, tag: str = "c", size: int = 20) -> int:
        """Write numbered records; returns the last seq."""
        records = [
            {"data": {"n": n, "x": "x" * size}, "tag": f"{tag}:{n % 5}"} for n in range(count)
        ]
        return int(self.call("POST", f"/v0/topics/{topic}", {"records": records})["last_seq"])

    def delete(self, topic: str, **selector: object) -> int:
        return int(self.call("POST", f"/v0/topics/{topic}/delete", selector)["deleted"])

    def drop(self, topic: str) -> None:
        self.call("DELETE", f"/v0/topics/{topic}")

    def head(self, topic: str) -> int:
        return int(self.call("GET", f"/v0/topics/{topic}")["head_seq"])

    def audit(self, topic: str) -> Json:
        return self.call("GET", f"/v0/topics/{topic}/audit")

    def skipped(self, topic: str) -> Sequence[int]:
        """Seqs that were never given to a record."""
        body = {"from_seq": 1, "to_seq": self.head(topic)}
        runs = self.call("POST", f"/v0/topics/{topic}/holes", body)["runs"]
        return [seq for lo, hi, kind in runs if kind == "skipped" for seq in range(lo, hi + 1)]

    def restart(self) -> None:
        """Kill it and have it back where it was; for servers of `start`."""
        assert self.process.env["TOPICS_PORT"] == str(self.process.port)
        self.process.restart()

    def close(self) -> None:
        self.http.close()


def start(server_factory: ServerFactory, **env: str) -> Server:
    """A server that can be restarted at its address."""
    return Server(server_factory(env={"TOPICS_PORT": str(lasting_port()), **env}))


def lasting_port() -> int:
    """A free port that no program is given by chance while its server is away."""
    while True:
        port = random.randrange(12_000, 30_000)  # below those the system hands out
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
