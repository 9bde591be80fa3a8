"""A client that looks at every answer: what holds for all of them is checked on each.

`Api.call` sends one request and gives httpx's response, after seeing that it speaks the version
it was asked in, is compact JSON of integers with the right type, and, if it is a refusal, that it
has the envelope and the headers of one. `good` and `refused` take such a response apart.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx

if TYPE_CHECKING:
    from tests.blackbox.conftest import ServerProcess

T = TypeVar("T")
JSON_TYPE = "application/json"
VERSIONS = ("HTTP/1.1", "HTTP/2")
_PATIENCE_S = 90.0
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


class Refusal(NamedTuple):
    """The parts of a refusal that programs look at."""

    status: int
    code: str
    detail: dict[str, Any] | None = None


class Api:
    """One client of one server, in one version of HTTP, with one key."""

    def __init__(self, server: ServerProcess, *, version: str = "HTTP/1.1", key: str = "") -> None:
        self.server = server
        self.version = version
        self.http = httpx.Client(
            base_url=server.url,
            http1=version != "HTTP/2",
            http2=version == "HTTP/2",
            timeout=_PATIENCE_S,
            trust_env=False,
            verify=False,
            headers={"accept-encoding": "identity", "accept": "*/*"},
        )
        if key:
            self.http.headers["authorization"] = f"Bearer {key}"

    def close(self) -> None:
        self.http.close()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str | None = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request; `body` is JSON as text or bytes, or an object to be made JSON."""
        sent = dict(headers or {})
        if body is not None and kind is not None:
            sent["content-type"] = kind
        answer = self.http.request(method, path, content=_content(body), headers=sent)
        self._check(answer)
        return answer

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, body: object = None) -> httpx.Response:
        return self.call("POST", path, body)

    def put(self, path: str, body: object = None) -> httpx.Response:
        return self.call("PUT", path, body)

    def delete(self, path: str) -> httpx.Response:
        return self.call("DELETE", path)

    # Shorthands for what most tests need before they can begin

    def make(self, topic: str, **config: object) -> dict[str, Any]:
        return good(self.put(f"/v0/topics/{topic}", config))

    def write(self, topic: str, *datas: object, **more: object) -> dict[str, Any]:
        """One write, a record per data."""
        return self.append(topic, [{"data": data} for data in datas], **more)

    def append(self, topic: str, records: list[dict[str, Any]], **more: object) -> dict[str, Any]:
        return good(self.post(f"/v0/topics/{topic}", {"records": records, **more}))

    def diff(self, topic: str, **options: object) -> dict[str, Any]:
        return good(self.post(f"/v0/topics/{topic}/diff", options))

    def state(self, topic: str) -> dict[str, Any]:
        return good(self.get(f"/v0/topics/{topic}"))

    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/v0/metrics", accept=JSON_TYPE).json()
        return found

    def _check(self, answer: httpx.Response) -> None:
        assert answer.http_version == self.version
        if "TOPICS_CORS_ORIGINS" not in self.server.env:
            assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["x-request-id"]
        kind = answer.headers.get("content-type", "")
        if answer.request.method != "HEAD" and kind == JSON_TYPE:
            assert_compact(answer.content)
        if answer.status_code >= 400 and answer.request.method != "HEAD":
            refused(answer)


def _content(body: object) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def assert_compact(text: bytes) -> None:
    """JSON without a space outside its strings."""
    assert not re.search(rb"\s", _STRING.sub(b'""', text)), text[:200]


def good(answer: httpx.Response) -> dict[str, Any]:
    """The body of a success, which reports how long it took and never looks like a refusal."""
    assert answer.status_code in (200, 201), answer.text
    assert answer.headers["content-type"] == JSON_TYPE
    body: dict[str, Any] = answer.json()
    assert not {"error", "ok", "status"} & set(body)
    assert isinstance(body["performance"]["server_total_ms"], int | float)
    return body


def refused(answer: httpx.Response) -> Refusal:
    """What a refusal says; it has the envelope, and the headers that go with its status."""
    assert answer.status_code >= 400, answer.text
    assert answer.headers["content-type"] == JSON_TYPE
    body = answer.json()
    assert list(body) == ["error"]
    error = body["error"]
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}
    assert error["message"]
    detail = error.get("detail")
    assert "detail" not in error or isinstance(detail, dict)
    wait_ms = (detail or {}).get("retry_after_ms", 1000)
    if answer.status_code in (429, 503):
        assert answer.headers["retry-after"] == str(max(1, -(-wait_ms // 1000)))
    else:
        assert "retry-after" not in answer.headers
    return Refusal(answer.status_code, error["code"], detail)


class Plain(NamedTuple):
    """An answer without any help from a library."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def code(self) -> str:
        found: str = json.loads(self.body)["error"]["code"]
        return found


def plain(
    server: ServerProcess,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Plain:
    """One request whose target goes out exactly as it is given."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=_PATIENCE_S)
    try:
        has_host = "host" in (headers or {})
        connection.putrequest(method, target, skip_host=has_host, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return Plain(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def burst(server: ServerProcess, method: str, paths: Sequence[str], body: object) -> None:
    """The same request to many paths, in a row on one connection; each has to succeed."""
    text = _content(body) or b""
    head = (
        f"HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON_TYPE}\r\ncontent-length: {len(text)}"
    )
    with socket.create_connection((server.host, server.port), timeout=_PATIENCE_S) as sock:
        for start in range(0, len(paths), 50):
            some = paths[start : start + 50]
            asked = [f"{method} {path} {head}\r\n\r\n".encode() + text for path in some]
            sock.sendall(b"".join(asked))
            answers = b""
            while len(statuses := re.findall(rb"HTTP/1\.1 (\d+) ", answers)) < len(some):
                received = sock.recv(1 << 16)
                assert received, "the server hung up"
                answers += received
            assert set(statuses) <= {b"200", b"201"}, answers


def eventually(look: Callable[[], T], is_so: Callable[[T], bool]) -> T:
    """Look until it is so, not longer than a test should wait; returns what was seen last."""
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.002)
    return seen


def seqs(page: Mapping[str, Any]) -> list[int]:
    return [record["$seq"] for record in page["records"]]


def datas(page: Mapping[str, Any]) -> list[Any]:
    return [record["data"] for record in page["records"]]
