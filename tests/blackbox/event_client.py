"""Event streams as a client sees them, byte for byte."""

from __future__ import annotations

import http.client
import json
import socket
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx
from tests.blackbox.conftest import ServerProcess

PATIENCE_S = 90.0


class Event(NamedTuple):
    """One frame: its lines as sent, and its parts."""

    raw: str
    id: str | None
    event: str | None
    data: Any

    @property
    def positions(self) -> dict[str, int]:
        assert self.id is not None
        found: dict[str, int] = json.loads(urlsafe_b64decode(self.id + "=" * (-len(self.id) % 4)))
        return found

    @property
    def is_beat(self) -> bool:
        return self.raw.startswith(": hb ")

    @property
    def seqs(self) -> list[int]:
        return [record["$seq"] for record in self.data["records"]]


class EventStream:
    """An open stream; `next` waits for a frame, never longer than a test should."""

    def __init__(
        self, server: ServerProcess, path: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
        self._connection.request("GET", path, headers=dict(headers or {}))
        self.response = self._connection.getresponse()
        self.status = self.response.status

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave, without waiting for anything more."""
        self.response.close()
        self._connection.close()

    def next(self) -> Event:
        """The next frame that is no heartbeat: those come when time passes, whatever happens."""
        while True:
            event = self.next_or_beat()
            if not event.is_beat:
                return event

    def next_or_beat(self) -> Event:
        lines: list[str] = []
        while True:
            line = self.response.readline()
            assert line, "the stream has ended"
            assert not line.endswith(b"\r\n")
            if line == b"\n":
                return _event("".join(lines))
            lines.append(line.decode())

    def until(self, name: str) -> list[Event]:
        """Everything up to the next frame of this name."""
        events = [self.next()]
        while events[-1].event != name:
            events.append(self.next())
        return events

    def rest(self) -> list[Event]:
        """Everything up to the end of the stream."""
        events = []
        while True:
            try:
                events.append(self.next())
            except AssertionError:
                return events


def _event(raw: str) -> Event:
    if raw.startswith(":"):
        return Event(raw, None, None, None)
    fields = dict(line.split(": ", 1) for line in raw.removesuffix("\n").split("\n"))
    data = json.loads(fields["data"]) if "data" in fields else None
    return Event(raw, fields.get("id"), fields.get("event"), data)


def write(server: ServerProcess, topic: str, *datas: object, **more: object) -> dict[str, Any]:
    body = {"records": [{"data": data} for data in datas], **more}
    answer = httpx.post(f"{server.url}/v0/topics/{topic}", json=body, timeout=PATIENCE_S)
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found


def put(server: ServerProcess, topic: str, **config: object) -> None:
    answer = httpx.put(f"{server.url}/v0/topics/{topic}", json=config, timeout=PATIENCE_S)
    answer.raise_for_status()


def watch(server: ServerProcess, *topics: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """A session on these topics, from the beginning unless `topics_map` says otherwise."""
    body = {"topics": options.pop("topics_map", None) or {name: {} for name in topics}, **options}
    answer = httpx.post(f"{server.url}/v0/watch", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def gauge(server: ServerProcess, name: str, key: str = "") -> int:
    headers = {"Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    found = httpx.get(f"{server.url}/v0/metrics", headers=headers, timeout=PATIENCE_S).json()
    value: int = found[name]
    return value


def wait_until_gauge(server: ServerProcess, name: str, value: int, key: str = "") -> None:
    """A closed socket is noticed a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := gauge(server, name, key)) != value:
        assert time.monotonic() < deadline, f"{name} is {found}, not {value}"
        time.sleep(0.01)


def stalled_socket(server: ServerProcess, path: str) -> socket.socket:
    """A client that asks for a stream and then does not read it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    sock.settimeout(PATIENCE_S)
    sock.connect((server.host, server.port))
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return sock
