"""Request bodies: their type, their size, and which of several mistakes is reported."""

from __future__ import annotations

import gzip
import re
import socket
from collections.abc import Iterator

import pytest
from msgspec import inspect
from tests.blackbox.api_client import Api, Refusal, good, plain, refused
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerFactory, ServerProcess

from topics.wire.endpoints import ENDPOINTS as TABLE
from topics.wire.endpoints.parts import Endpoint
from topics.wire.near_misses import SHORTEST
from topics.wire.shapes import shape_of

LIMIT = 5000
SERVER_ENV = {
    "TOPICS_MAX_BODY_BYTES": str(LIMIT),
    "TOPICS_API_KEYS": "boss,reader:read,near:rw:near.",
}

NO_TYPE = Refusal(415, "unsupported_media_type")
BAD = Refusal(400, "invalid_request")

BODIES = {
    ("PUT", "/v0/topics/t"): b"{}",
    ("POST", "/v0/topics/t"): b'{"records":[{"data":1}]}',
    ("POST", "/v0/topics/t/diff"): b"{}",
    ("POST", "/v0/topics/t/delete"): b'{"before_seq":0}',
    ("PUT", "/v0/routers/r"): b'{"source":"t","dest":"u"}',
    ("POST", "/v0/watch"): b'{"topics":{"t":{}}}',
    ("POST", "/v0/topics/q/claim"): b'{"node":"n"}',
    ("POST", "/v0/topics/q/ack"): b'{"node":"n","seqs":[]}',
    ("POST", "/v0/topics/q/nack"): b'{"node":"n","seqs":[]}',
    ("POST", "/v0/topics/q/extend"): b'{"node":"n","seqs":[],"lease_ms":1000}',
    ("PUT", "/v0/topics/t/cursors/c"): b'{"seq":0}',
    ("POST", "/v0/topics/t/holes"): b'{"from_seq":0,"to_seq":1}',
    ("POST", "/v0/topics/t/plan"): b'{"from_seq":0,"to_seq":1,"target_bytes":1}',
    ("POST", "/v0/stages/a/1/0/0"): b'{"records":[]}',
    ("POST", "/v0/stages/a/1/commit"): b'{"parts":[]}',
}
MAY_BE_EMPTY = {("PUT", "/v0/topics/t"), ("POST", "/v0/topics/t/diff")}
ENDPOINTS = [*BODIES]
Level = tuple[tuple[str | int, ...], list[str]]


@pytest.fixture(scope="module", params=["HTTP/1.1", "HTTP/2"])
def api(request: pytest.FixtureRequest, shared_server: ServerProcess) -> Iterator[Api]:
    client = Api(shared_server, version=request.param, key="boss")
    client.write("t", 1)
    client.make("q", type="queue")
    yield client
    client.close()


# The type


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "application/json-patch"]
)
def test_a_type_that_begins_like_json_is_json(
    api: Api, endpoint: tuple[str, str], kind: str
) -> None:
    good(api.call(*endpoint, BODIES[endpoint], kind=kind))


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "Application/JSON", "x-application/json", "text/json"]
)
def test_any_other_type_is_unsupported_even_if_the_body_is_fine(
    api: Api, endpoint: tuple[str, str], kind: str | None
) -> None:
    assert refused(api.call(*endpoint, BODIES[endpoint], kind=kind)) == NO_TYPE


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_empty_body_is_an_empty_object_only_where_nothing_is_required(
    api: Api, endpoint: tuple[str, str]
) -> None:
    answers = [api.call(*endpoint, b"", kind=kind) for kind in (None, "application/json")]
    if endpoint in MAY_BE_EMPTY:
        assert [answer.status_code for answer in answers] == [200, 200]
        assert refused(api.call(*endpoint, b" ", kind=None)) == NO_TYPE
    elif endpoint[1].endswith("/claim"):
        assert [refused(answer) for answer in answers] == [BAD, BAD]
    else:
        assert [refused(answer) for answer in answers] == [NO_TYPE, BAD]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("body", [b" ", b"\n\t ", b"[]", b"1", b"null", b'"x"', b"{", b"{}x"])
def test_a_body_that_is_no_object_is_refused(
    api: Api, endpoint: tuple[str, str], body: bytes
) -> None:
    assert refused(api.call(*endpoint, body)) == BAD


# The size


def write_of(size: int) -> bytes:
    frame = b'{"records":[{"data":"%s"}]}'
    return frame % (b"x" * (size - len(frame) + 2))


def test_a_body_of_exactly_the_limit_is_taken(api: Api, topic: str) -> None:
    assert good(api.post(f"/v0/topics/{topic}", write_of(LIMIT)))["count"] == 1
    over = api.post(f"/v0/topics/{topic}", write_of(LIMIT + 1))
    assert refused(over) == Refusal(413, "payload_too_large")
    assert api.state(topic)["head_seq"] == 1


def test_the_limit_holds_for_what_comes_out_of_gzip(api: Api, topic: str) -> None:
    def send(size: int, level: int = 9) -> Refusal | None:
        body = gzip.compress(write_of(size), level)
        answer = api.call("POST", f"/v0/topics/{topic}", body, headers={"content-encoding": "gzip"})
        return refused(answer) if answer.status_code >= 400 else None

    assert send(LIMIT) is None
    assert send(LIMIT + 1) == Refusal(413, "payload_too_large")
    assert send(3 << 20) == Refusal(413, "payload_too_large")
    assert send(LIMIT, level=0) == Refusal(413, "payload_too_large"), "the encoded size counts too"


def test_a_chunked_body_is_measured_too(shared_server: ServerProcess) -> None:
    chunk = b"%x\r\n%b\r\n"
    head = {
        "transfer-encoding": "chunked",
        "content-type": "application/json",
        "authorization": "Bearer boss",
    }
    for size, status in ((LIMIT, 201), (LIMIT + 1, 413)):
        body = write_of(size)
        sent = chunk % (100, body[:100]) + chunk % (size - 100, body[100:]) + b"0\r\n\r\n"
        connection_answer = _chunked(shared_server, f"/v0/topics/chunked{size}", head, sent)
        assert connection_answer == status


def _chunked(server: ServerProcess, path: str, headers: dict[str, str], sent: bytes) -> int:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", *(f"{n}: {v}" for n, v in headers.items())]
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_S) as peer:
        peer.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + sent)
        return int(peer.recv(65536).split(b" ", 2)[1])


def test_a_limit_of_zero_refuses_every_body_that_is_not_empty(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory(env={"TOPICS_MAX_BODY_BYTES": "0"})
    api = connect(server)
    assert api.put("/v0/topics/t").status_code == 201
    assert refused(api.put("/v0/topics/t", b"{}")) == Refusal(413, "payload_too_large")
    assert api.post("/v0/topics/t/diff").status_code == 200


# Several mistakes at once: the first check of the order answers


def test_mistakes_are_reported_in_the_documented_order(shared_server: ServerProcess) -> None:
    large = b"x" * (LIMIT + 1)
    zipped = gzip.compress(b'{"nonsense":')
    steps: list[tuple[dict[str, str], bytes, int, str]] = [
        ({"content-encoding": "br"}, large, 401, "unauthorized"),
        ({"content-encoding": "br", "authorization": "Bearer reader"}, large, 403, "forbidden"),
        ({"content-encoding": "br", "authorization": "Bearer near"}, large, 403, "forbidden"),
        (
            {"content-encoding": "br", "authorization": "Bearer boss"},
            large,
            415,
            "unsupported_media_type",
        ),
        (
            {"content-encoding": "gzip", "authorization": "Bearer boss"},
            large,
            413,
            "payload_too_large",
        ),
        (
            {"content-encoding": "gzip", "authorization": "Bearer boss"},
            zipped[:-1],
            400,
            "invalid_request",
        ),
        (
            {"content-encoding": "gzip", "authorization": "Bearer boss"},
            zipped,
            415,
            "unsupported_media_type",
        ),
        (
            {
                "content-encoding": "gzip",
                "authorization": "Bearer boss",
                "content-type": "application/json",
            },
            zipped,
            400,
            "invalid_request",
        ),
        (
            {"authorization": "Bearer boss", "content-type": "application/json"},
            b'{"records":[{"data":1}],"create":false}',
            404,
            "topic_not_found",
        ),
    ]
    for headers, body, status, code in steps:
        found = plain(shared_server, "POST", "/v0/topics/far", headers=headers, body=body)
        assert (found.status, found.code) == (status, code), headers


@pytest.mark.parametrize("path", ["/v0/nothing", "/v0/topics/", "/"])
def test_a_key_is_asked_for_before_the_path_is_looked_up(
    shared_server: ServerProcess, path: str
) -> None:
    assert plain(shared_server, "GET", path).code == "unauthorized"
    key = {"authorization": "Bearer boss"}
    assert plain(shared_server, "GET", path, headers=key).code == "not_found"


def test_a_refused_upload_need_not_be_sent(shared_server: ServerProcess) -> None:
    """Whoever waits for 100 Continue is told no before the first byte of the body."""
    head = (
        b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000\r\n"
        b"expect: 100-continue\r\n%b\r\n"
    )
    for more, status in ((b"", b"401"), (b"authorization: Bearer boss\r\n", b"100")):
        with socket.create_connection(
            (shared_server.host, shared_server.port), timeout=PATIENCE_S
        ) as peer:
            peer.sendall(head % more)
            assert peer.recv(65536).split(b" ", 2)[1] == status


# Misspelt fields


def levels_of(kind: inspect.Type, path: tuple[str | int, ...] = ()) -> Iterator[Level]:
    """The objects in a body: where each stands, and its fields."""
    match kind:
        case inspect.StructType():
            yield path, [field.encode_name for field in kind.fields]
            for field in kind.fields:
                yield from levels_of(field.type, (*path, field.encode_name))
        case inspect.UnionType():
            for part in kind.types:
                yield from levels_of(part, path)
        case inspect.ListType() | inspect.VarTupleType():
            yield from levels_of(kind.item_type, (*path, 0))
        case inspect.DictType():
            yield from levels_of(kind.value_type, (*path, "t"))


def at(path: tuple[str | int, ...], found: object) -> object:
    if not path:
        return found
    inner = at(path[1:], found)
    return [inner] if path[0] == 0 else {path[0]: inner}


@pytest.mark.parametrize("endpoint", [each for each in TABLE if each.body], ids=lambda e: e.name)
def test_every_call_refuses_a_misspelling_of_each_of_its_fields(
    api: Api, endpoint: Endpoint
) -> None:
    assert endpoint.body is not None
    path = re.sub(r"\{(epoch|part|attempt)\}", "1", endpoint.path)
    path = re.sub(r"\{\w+\}", "misspelt", path)
    for place, names in levels_of(inspect.type_info(shape_of(endpoint.body))):
        for name in (name for name in names if len(name) >= SHORTEST):
            wrong = f"{name[0]}{name}"
            body = at(place, {wrong: 1})
            assert isinstance(body, dict)
            answer = api.call(endpoint.method, path, body)
            meant = {"field": wrong, "did_you_mean": name}
            assert refused(answer) == Refusal(400, "invalid_request", meant), body
    assert "misspelt" not in api.get("/v0/topics").text
