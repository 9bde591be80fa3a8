"""gzip both ways, over both versions of HTTP."""

import gzip
import json
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from tests.blackbox.transport_server import WAIT_S, Served, serving

from topics.http.limits import Limits

LIMIT = 100_000


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(Limits(max_body_bytes=LIMIT, gzip_aside_bytes=50_000)) as own:
        yield own


@pytest.fixture(params=["1.1", "2"])
def client(served: Served, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    two = request.param == "2"
    with httpx.Client(base_url=served.url, http1=not two, http2=two, timeout=WAIT_S) as own:
        yield own


def post(client: httpx.Client, body: bytes, coding: str) -> tuple[int, bytes]:
    answer = client.post("/echo", content=body, headers={"content-encoding": coding})
    return answer.status_code, answer.content


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZip"])
def test_a_gzipped_body_is_decoded(client: httpx.Client, coding: str) -> None:
    assert post(client, gzip.compress(b"hello" * 1000), coding) == (200, b"hello" * 1000)


def test_several_members_are_one_body(client: httpx.Client) -> None:
    assert post(client, gzip.compress(b"ab") + gzip.compress(b"cd"), "gzip") == (200, b"abcd")


def test_identity_is_no_coding(client: httpx.Client) -> None:
    assert post(client, b"plain", "identity") == (200, b"plain")


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "gzip,br", "zstd"])
def test_any_other_coding_is_415(client: httpx.Client, coding: str) -> None:
    status, body = post(client, b"x", coding)
    assert (status, json.loads(body)["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "body",
    [
        b"not gzip at all",
        gzip.compress(b"hello")[:-1],
        gzip.compress(b"hello")[:5],
        gzip.compress(b"hello") + b"rubbish",
        gzip.compress(b"hello")[:-6] + b"\0\0\0\0\0\0",
    ],
    ids=["no gzip", "cut at the end", "cut in its head", "rubbish behind it", "wrong checksum"],
)
def test_malformed_or_cut_gzip_is_400(client: httpx.Client, body: bytes) -> None:
    status, answer = post(client, body, "gzip")
    assert (status, json.loads(answer)["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_a_body_of_no_bytes_needs_no_decoding(client: httpx.Client, coding: str) -> None:
    assert post(client, b"", coding) == (200, b"")


def test_a_bomb_is_413(client: httpx.Client) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < LIMIT
    status, answer = post(client, bomb, "gzip")
    assert (status, json.loads(answer)["error"]["code"]) == (413, "payload_too_large")


def test_exactly_the_limit_may_come_out(client: httpx.Client) -> None:
    assert post(client, gzip.compress(b"\0" * LIMIT), "gzip")[0] == 200
    assert post(client, gzip.compress(b"\0" * (LIMIT + 1)), "gzip")[0] == 413


def test_size_is_judged_before_damage(client: httpx.Client) -> None:
    pieces = (b"rubbish" * 100 for _ in range(LIMIT // 700 + 1))
    answer = client.post("/echo", content=pieces, headers={"content-encoding": "gzip"})
    assert answer.status_code == 413


@pytest.mark.parametrize("size", [1024, 49_000, 60_000, 1_000_000])
def test_a_response_worth_it_is_compressed_for_who_accepts_it(
    client: httpx.Client, size: int
) -> None:
    answer = client.get(f"/big?n={size}", headers={"accept-encoding": "br, gzip;q=0.5"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert int(answer.headers["content-length"]) < size
    assert answer.content == b"x" * size


@pytest.mark.parametrize(
    ("size", "accepted"),
    [(1023, "gzip"), (5000, "br"), (5000, "gzip;q=0"), (5000, "gzip;q=0, *"), (5000, "*;q=0")],
)
def test_other_responses_are_not(client: httpx.Client, size: int, accepted: str) -> None:
    answer = client.get(f"/big?n={size}", headers={"accept-encoding": accepted})
    assert "content-encoding" not in answer.headers
    assert "vary" not in answer.headers
    assert answer.content == b"x" * size


def test_head_describes_the_compressed_body(client: httpx.Client) -> None:
    accepts = {"accept-encoding": "*"}
    get = client.get("/big?n=5000", headers=accepts)
    head = client.head("/big?n=5000", headers=accepts)
    assert head.headers["content-length"] == get.headers["content-length"]
    assert head.headers["content-encoding"] == "gzip"
    assert head.content == b""


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_curl_reads_what_it_asked_for(served: Served, version: str) -> None:
    out = subprocess.run(
        ["curl", "-s", "--compressed", version, served.url + "/big?n=70000"],
        capture_output=True,
        check=True,
    ).stdout
    assert out == b"x" * 70_000
