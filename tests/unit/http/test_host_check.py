"""Which requests may come from a web page, and which answers a page can read."""

from __future__ import annotations

import pytest

from topics.http.host_check import (
    MAX_VERDICT_BYTES,
    MAX_VERDICTS,
    HostCheck,
    is_preflight,
    refusal_of,
)
from topics.http.messages import Request

FENCE = HostCheck(hosts=["topics.example.com"], origins=["https://app.example.com"])
LISTED = "https://app.example.com"


def asking(target: str = "/v0/topics", method: str = "GET", **headers: str) -> Request:
    sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return Request(method, target.encode(), sent, version="1.1", peer="")


def foreign(request: Request, *, has_keys: bool = False, fence: HostCheck = FENCE) -> str | None:
    found = fence.judge(request, has_keys=has_keys).foreign
    assert fence.judge(request, has_keys=has_keys).foreign == found, "remembered as it was"
    return found


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost:4000",
        "LOCALHOST",
        "a.localhost:1",
        "127.0.0.1:4000",
        "[::1]:4000",
        "10.1.2.3",
        "topics.example.com",
        "Topics.Example.com:4000",
    ],
)
def test_without_keys_a_host_no_page_can_borrow_is_answered(host: str) -> None:
    assert foreign(asking(host=host)) is None


def test_a_request_without_a_host_comes_from_no_browser() -> None:
    assert foreign(asking()) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.com:4000",
        "topics",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "x.topics.example.com",
        "localhost, localhost",
        "evil.com/.localhost",
        "user@localhost",
        "2130706433",
    ],
)
def test_without_keys_a_borrowed_host_is_refused(host: str) -> None:
    assert foreign(asking(host=host)) == "host"
    assert foreign(asking(host=host), has_keys=True) is None
    assert foreign(asking(host=host, origin=LISTED)) == "host", "whatever page asks"


def test_the_host_of_an_absolute_target_counts_beside_the_header() -> None:
    assert foreign(asking("http://evil.com:4000/v0/topics", host="localhost")) == "host"
    assert foreign(asking("http://localhost:4000/v0/topics", host="localhost")) is None
    assert foreign(asking("http://evil.com?x", host="localhost")) == "host"


@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.com",
        "null",
        "http://localhost:3000",
        "http://localhost",
        "",
        "https://b.app",
        f"{LISTED}:8443",
        "http://app.example.com",
        f"{LISTED}, {LISTED}",
        f"{LISTED}.evil.com",
    ],
)
def test_a_page_of_another_origin_is_refused_with_and_without_keys(
    origin: str, has_keys: bool
) -> None:
    request = asking(host="localhost:4000", origin=origin)
    assert foreign(request, has_keys=has_keys) == "origin"


@pytest.mark.parametrize("has_keys", [False, True])
def test_the_page_of_this_server_and_a_listed_one_are_answered(has_keys: bool) -> None:
    own = asking(host="localhost:4000", origin="http://localhost:4000")
    assert foreign(own, has_keys=has_keys) is None
    assert foreign(asking(host="localhost:4000", origin=LISTED), has_keys=has_keys) is None
    behind_tls = asking(host="topics.example.com", origin="https://topics.example.com")
    assert foreign(behind_tls, has_keys=has_keys) is None


def test_a_page_that_made_its_name_point_here_needs_a_key() -> None:
    rebound = asking(host="evil.com:4000", origin="http://evil.com:4000")
    assert foreign(rebound) == "host"
    assert foreign(rebound, has_keys=True) is None


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_foreign_page_loads_without_an_origin_is_refused(site: str) -> None:
    request = asking("/v0/topics/q/work?node=n", host="localhost:4000", sec_fetch_site=site)
    assert foreign(request) == "origin"
    assert foreign(request, has_keys=True) is None, "it has no key to send"
    assert foreign(asking(host="localhost", sec_fetch_site=site, origin=LISTED)) is None


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_what_a_person_or_our_own_page_loads_is_answered(site: str) -> None:
    assert foreign(asking(host="localhost:4000", sec_fetch_site=site)) is None


def test_only_a_listed_origin_is_echoed_and_caches_are_told_to_look() -> None:
    listed = FENCE.judge(asking(host="localhost", origin=LISTED), has_keys=True)
    assert listed.is_listed
    headers = dict(listed.headers)
    assert headers[b"access-control-allow-origin"] == LISTED.encode()
    assert headers[b"vary"] == b"Origin"
    exposed = headers[b"access-control-expose-headers"].lower()
    for name in (b"etag", b"topics-head-seq", b"retry-after", b"x-request-id"):
        assert name in exposed
    assert b"access-control-allow-credentials" not in headers
    own = FENCE.judge(asking(host="localhost"), has_keys=True)
    assert own.headers == ((b"vary", b"Origin"),)


def test_without_listed_origins_answers_carry_nothing_of_this() -> None:
    assert HostCheck().judge(asking(host="localhost"), has_keys=False).headers == ()


def test_refusals_name_the_setting_that_would_allow_the_request() -> None:
    host = refusal_of(asking(host="evil.com"), "host")
    assert host.detail == {"reason": "foreign_host"}
    assert "TOPICS_ALLOWED_HOSTS" in str(host)
    assert '"evil.com"' in str(host)
    origin = refusal_of(asking(origin="http://evil.com"), "origin")
    assert origin.detail == {"reason": "foreign_origin"}
    assert "TOPICS_CORS_ORIGINS" in str(origin)
    image = refusal_of(asking(sec_fetch_site="cross-site"), "origin")
    assert image.detail == {"reason": "foreign_origin"}
    assert "another site" in str(image)


def test_a_preflight_asks_for_a_method() -> None:
    assert is_preflight(asking(method="OPTIONS", access_control_request_method="PUT"))
    assert not is_preflight(asking(method="OPTIONS"))
    assert not is_preflight(asking(access_control_request_method="PUT"))


def test_remembered_verdicts_are_bounded_in_number_and_size() -> None:
    fence = HostCheck()
    for number in range(MAX_VERDICTS + 10):
        assert foreign(asking(host=f"h{number}"), fence=fence) == "host"
    assert len(fence._verdicts) <= MAX_VERDICTS
    fence._verdicts.clear()
    assert foreign(asking(host="h" * (MAX_VERDICT_BYTES + 1)), fence=fence) == "host"
    assert not fence._verdicts
