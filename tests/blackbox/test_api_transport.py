"""What holds for every path: methods, versions, types, codings, percent signs and queries."""

from __future__ import annotations

import gzip
import json
import subprocess

import pytest
from tests.blackbox.api_client import Api, Refusal, good, plain, refused
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerProcess
from tests.blackbox.event_client import EventStream, watch

METHODS: dict[str, set[str]] = {
    "/v0/topics": {"GET"},
    "/v0/topics/there": {"GET", "PUT", "POST", "DELETE"},
    "/v0/topics/there/diff": {"POST"},
    "/v0/topics/there/delete": {"POST"},
    "/v0/routers": {"GET"},
    "/v0/routers/there": {"GET", "PUT", "DELETE"},
    "/v0/watch": {"POST"},
    "/v0/watch/wid_x": {"GET"},
    "/v0/ws": {"GET"},
    "/v0/topics/there/claim": {"POST"},
    "/v0/topics/there/ack": {"POST"},
    "/v0/topics/there/nack": {"POST"},
    "/v0/topics/there/extend": {"POST"},
    "/v0/topics/there/work": {"GET"},
    "/v0/health": {"GET"},
    "/healthz": {"GET"},
    "/v0/ready": {"GET"},
    "/readyz": {"GET"},
    "/v0/metrics": {"GET"},
    "/v0/history": {"GET"},
    "/v0/key": {"GET"},
    "/v0/openapi.json": {"GET"},
    "/v0/topics/there/records": {"GET"},
    "/v0/topics/there/audit": {"GET"},
    "/v0/topics/there/cursors": {"GET"},
    "/v0/topics/there/cursors/c": {"GET", "PUT", "DELETE"},
    "/v0/topics/there/jobs": {"GET"},
    "/v0/topics/there/redrive": {"POST"},
    "/v0/topics/there/holes": {"POST"},
    "/v0/topics/there/plan": {"POST"},
    "/v0/stages/app/1/2/3": {"POST"},
    "/v0/stages/app/1/commit": {"POST"},
}
ALL_METHODS = {"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"}


# Paths and methods


@pytest.mark.parametrize("path", METHODS)
def test_every_endpoint_of_the_index_is_there(api: Api, path: str) -> None:
    for method in METHODS[path] - {"DELETE"}:
        answer = api.call(method, path, {} if method in ("PUT", "POST") else None)
        code = refused(answer).code if answer.status_code >= 400 else ""
        absent_thing = path == "/v0/watch/wid_x"
        assert code != "method_not_allowed"
        assert code != "not_found" or absent_thing or path.endswith("cursors/c")


@pytest.mark.parametrize("path", METHODS)
def test_any_other_method_is_not_allowed(api: Api, path: str) -> None:
    there = METHODS[path] | ({"HEAD"} if "GET" in METHODS[path] else set())
    for method in ALL_METHODS - METHODS[path]:
        answer = api.call(method, path)
        assert refused(answer) == Refusal(405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) == there


@pytest.mark.parametrize("path", METHODS)
def test_a_trailing_slash_is_another_path(api: Api, path: str) -> None:
    assert refused(api.get(path + "/")) == Refusal(404, "not_found")


@pytest.mark.parametrize(
    "path", ["/", "/v0", "/v1/topics", "/v0/nothing", "/v0/topics/a/b/c", "/console", "/metrics"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_an_unknown_path_is_not_found(api: Api, path: str, method: str) -> None:
    assert refused(api.call(method, path)) == Refusal(404, "not_found")


@pytest.mark.parametrize(
    "path",
    [path for path, methods in METHODS.items() if "GET" in methods],
)
def test_head_is_get_without_a_body(api: Api, path: str) -> None:
    get, head = api.get(path), api.call("HEAD", path)
    assert head.status_code == get.status_code
    assert head.content == b""
    assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize("path", [path for path in METHODS if "there" in path])
def test_a_star_is_a_name_like_any_other(api: Api, path: str) -> None:
    for method in METHODS[path]:
        body = b'{"source":"s","dest":"d"}' if method in ("PUT", "POST") else None
        answer = api.call(method, path.replace("there", "*"), body)
        assert answer.status_code in (200, 400, 404), answer.text


# Versions


@pytest.mark.parametrize(
    ("flags", "version"),
    [(["--http1.1"], "1.1"), (["--http2-prior-knowledge"], "2"), (["--http2"], "1.1")],
)
def test_curl_is_answered_in_the_version_it_speaks(
    shared_server: ServerProcess, flags: list[str], version: str
) -> None:
    write = ["-H", "content-type: application/json", "-d", '{"records":[{"data":1}]}']
    shown = ["-w", "\n%{http_version} %{http_code} %{content_type}"]
    for extra, status in ([], "404"), (write, "201"), ([], "200"):
        url = f"{shared_server.url}/v0/topics/curl-{version}{flags[0]}"
        command = ["curl", "-sS", *flags, *shown, *extra, url]
        found = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        body, last = found.stdout.rsplit("\n", 1)
        assert last == f"{version} {status} application/json"
        json.loads(body)


def test_both_versions_share_one_port_and_see_one_log(
    shared_server: ServerProcess, connect: Connect
) -> None:
    old, new = connect(shared_server), connect(shared_server, version="HTTP/2")
    old.write("both", 1)
    new.write("both", 2)
    assert old.diff("both")["records"] == new.diff("both")["records"]


# Types and codings


def test_every_kind_of_answer_has_its_type(api: Api) -> None:
    assert api.get("/v0/health").headers["content-type"] == "application/json"
    assert api.get("/v0/nothing").headers["content-type"] == "application/json"
    assert api.get("/v0/metrics").headers["content-type"] == "text/plain; version=0.0.4"


ZIPPED = gzip.compress(b'{"records":[{"data":"zipped"}]}', mtime=0)
HALF = b'{"records":[{"data":"in '


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", ZIPPED),
        ("x-gzip", ZIPPED),
        ("gzip", gzip.compress(HALF, mtime=0) + gzip.compress(b'two members"}]}', mtime=0)),
        ("identity", b'{"records":[{"data":1}]}'),
    ],
)
def test_a_coded_body_is_decoded(api: Api, topic: str, coding: str, body: bytes) -> None:
    answer = api.call("POST", f"/v0/topics/{topic}", body, headers={"content-encoding": coding})
    assert good(answer)["count"] == 1


@pytest.mark.parametrize(
    ("coding", "body", "expected"),
    [
        ("gzip", b'{"records":[{"data":1}]}', Refusal(400, "invalid_request")),
        ("gzip", ZIPPED[:-3], Refusal(400, "invalid_request")),
        ("gzip", ZIPPED + b"rubbish", Refusal(400, "invalid_request")),
        ("gzip", ZIPPED[:10], Refusal(400, "invalid_request")),
        ("br", ZIPPED, Refusal(415, "unsupported_media_type")),
        ("deflate", ZIPPED, Refusal(415, "unsupported_media_type")),
        ("zstd", ZIPPED, Refusal(415, "unsupported_media_type")),
        ("gzip, gzip", gzip.compress(ZIPPED, mtime=0), Refusal(415, "unsupported_media_type")),
        ("gzip, identity", ZIPPED, Refusal(415, "unsupported_media_type")),
    ],
)
def test_another_coding_or_a_broken_one_is_refused(
    api: Api, topic: str, coding: str, body: bytes, expected: Refusal
) -> None:
    answer = api.call("POST", f"/v0/topics/{topic}", body, headers={"content-encoding": coding})
    assert refused(answer) == expected
    assert refused(api.get(f"/v0/topics/{topic}")).code == "topic_not_found"


@pytest.mark.parametrize(
    ("accepted", "is_zipped"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("*", True),
        ("*;q=0.1", True),
        ("gzip;q=0", False),
        ("*;q=0", False),
        ("gzip;q=0.0, *;q=0", False),
        ("identity", False),
        ("br", False),
        ("", False),
    ],
)
def test_answers_are_zipped_for_those_who_accept_it(
    api: Api, accepted: str, is_zipped: bool
) -> None:
    api.write("large", "x" * 4000)
    answer = api.call(
        "POST", "/v0/topics/large/diff", {"limit": 1}, headers={"accept-encoding": accepted}
    )
    assert answer.headers.get("content-encoding") == ("gzip" if is_zipped else None)
    assert ("accept-encoding" in answer.headers.get("vary", "").lower()) or not is_zipped
    assert answer.json()["records"][0]["data"] == "x" * 4000


def test_only_answers_of_a_kilobyte_are_zipped(api: Api) -> None:
    shortest = len(api.post("/v0/topics/n/diff", {}).content)
    lengths = {}
    for extra in range((1020 - shortest) // 2, (1030 - shortest) // 2):
        path = f"/v0/topics/{'n' * extra}/diff"  # the refusal repeats the name
        unzipped = api.post(path, {})
        zipped = api.call("POST", path, {}, headers={"accept-encoding": "gzip"})
        assert zipped.json() == unzipped.json()
        lengths[len(unzipped.content)] = "content-encoding" in zipped.headers
    assert all(zipped is (length >= 1024) for length, zipped in lengths.items())
    assert set(lengths.values()) == {True, False}


def test_streams_are_never_zipped(
    shared_server: ServerProcess, topic: str, connect: Connect
) -> None:
    api = connect(shared_server)
    api.write(topic, "x" * 5000)
    made = watch(shared_server, topic)
    with EventStream(shared_server, made["stream_url"], {"accept-encoding": "gzip"}) as stream:
        assert stream.response.getheader("content-encoding") is None
        assert stream.until("record")[-1].data["records"][0]["data"] == "x" * 5000


# Percent signs and queries


def test_a_path_segment_is_decoded_once(shared_server: ServerProcess, connect: Connect) -> None:
    server, api = shared_server, connect(shared_server)
    api.write("jobs-a.b:c", 1)
    assert plain(server, "GET", "/v0/topics/jobs%2Da%2eb%3Ac").status == 200
    assert plain(server, "GET", "/v0/topics/jobs%252Da.b:c").code == "topic_not_found"
    assert plain(server, "GET", "/v0/topics/jobs-a.b:c%2Fdiff").code == "topic_not_found"
    api.make("src")
    json_type = {"content-type": "application/json"}
    body = b'{"source":"src","dest":"dst"}'
    made = plain(server, "PUT", "/v0/routers/src-%3Edst", headers=json_type, body=body)
    assert made.status == 201
    assert plain(server, "GET", "/v0/routers/src->dst").status == 200


@pytest.mark.parametrize("target", ["/v0/topics/%ff", "/v0/%c3%28", "/v0/topics/a/diff%80"])
def test_undecodable_paths_are_refused_with_the_envelope(
    shared_server: ServerProcess, target: str
) -> None:
    found = plain(shared_server, "GET", target)
    assert (found.status, found.code) == (400, "invalid_request")


@pytest.mark.parametrize("target", ["/v0/topics/50%", "/v0/topics/%zz", "/v0/topics/a%2"])
def test_a_broken_percent_sequence_in_a_path_stays_literal(
    shared_server: ServerProcess, target: str
) -> None:
    found = plain(shared_server, "GET", target)
    assert (found.status, found.code) == (404, "topic_not_found")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", True),
        ("1", True),
        ("false", False),
        ("0", False),
        ("TRUE", True),
        ("no", True),
        ("", True),
        ("%66alse", False),
        ("%zz", True),
        ("true&return_seqs=false", False),
        ("false&return_seqs=true", True),
    ],
)
def test_booleans_of_a_query_are_read_or_default(
    shared_server: ServerProcess, topic: str, value: str, expected: bool
) -> None:
    found = plain(
        shared_server,
        "POST",
        f"/v0/topics/{topic}?return_seqs={value}",
        headers={"content-type": "application/json"},
        body=b'{"records":[{"data":1}]}',
    )
    assert found.status == 201
    assert ("seqs" in json.loads(found.body)) is expected


def test_broken_percent_sequences_and_plus_signs_in_a_query(
    shared_server: ServerProcess, connect: Connect
) -> None:
    api = connect(shared_server)
    api.write("query-x", 1)
    for prefix, count in (("query%2Dx", 1), ("%zz", 0), ("query-x%", 0), ("query+x", 0)):
        found = json.loads(plain(shared_server, "GET", f"/v0/topics?prefix={prefix}").body)
        assert len(found["topics"]) == count, prefix
