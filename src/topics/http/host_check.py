"""Which requests a web page may make: `Host`, `Origin` and `Sec-Fetch-Site` are judged here.

A browser sends requests on behalf of every page it shows, also to servers of its own machine. Two
attacks follow from that. A foreign page asks directly: the browser then names the page in `Origin`,
or says `cross-site` for images and links. Or the page's own name is made to point here: then the
page has the right origin, and only the `Host` header tells.

Without keys nothing else would stop such a page, so both headers are judged. With keys the page
would need a key, which no browser adds by itself, so any host will do.

A verdict depends on these few headers alone and is remembered. Requests with a known head do not
come here at all: their verdict is part of what is known of the head.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from topics.errors import Forbidden
from topics.http.messages import Headers, Request, Response
from topics.wire.origins import Authority, parse_authority, parse_origin

MAX_VERDICTS = 1024
MAX_VERDICT_BYTES = 512

_FOREIGN_SITES: Final = (b"cross-site", b"same-site")
"""`same-site` is another port of the same host, or a neighbour below the same domain."""

_VARY: Final = (b"vary", b"Origin")
_EXPOSED: Final = (
    b"access-control-expose-headers",
    b"ETag, Retry-After, Topics-Head-Seq, Topics-Earliest-Seq, X-Request-Id, Allow, "
    b"WWW-Authenticate, Content-Encoding, Date",
)
PREFLIGHT: Final = Response(
    204,
    content_type=None,
    headers=(
        (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
        (
            b"access-control-allow-headers",
            b"Authorization, Content-Type, Content-Encoding, Accept, Idempotency-Key, "
            b"If-None-Match, Last-Event-ID, Cache-Control, X-Request-Id",
        ),
        (b"access-control-max-age", b"600"),
    ),
)
"""What a page of a listed origin may ask: everything, if it has the key for it."""


class Verdict(NamedTuple):
    """What the origin of a request means for it."""

    foreign: Literal["host", "origin"] | None
    """What is wrong with it, if it has to be refused."""
    headers: Headers
    """What every answer to it carries, refusals included: a page could not read it otherwise."""
    is_listed: bool
    """Whether it comes from a page of another origin that the operator trusts."""


class HostCheck:
    """The names this server answers to, and the pages it answers, besides its own."""

    __slots__ = ("_hosts", "_origins", "_verdicts")

    def __init__(self, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        """Both as `topics.wire.origins` spells them."""
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)
        self._verdicts: dict[tuple[bytes | bool | None, ...], Verdict] = {}

    def judge(self, request: Request, *, has_keys: bool) -> Verdict:
        """What holds for a request with these headers."""
        headers = request.headers
        host, origin = headers.get(b"host"), headers.get(b"origin")
        site = headers.get(b"sec-fetch-site")
        named = None if request.target[:1] == b"/" else _authority_of(request.target)
        key = (host, origin, site, named, has_keys)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._judge(host, origin, site, named, has_keys=has_keys)
            if sum(len(part) for part in key if isinstance(part, bytes)) <= MAX_VERDICT_BYTES:
                if len(self._verdicts) >= MAX_VERDICTS:
                    self._verdicts.clear()
                self._verdicts[key] = verdict
        return verdict

    def _judge(
        self,
        host: bytes | None,
        origin: bytes | None,
        site: bytes | None,
        named: bytes | None,
        *,
        has_keys: bool,
    ) -> Verdict:
        asked = parse_authority(_text(host)) if host else None
        page = parse_origin(_text(origin)) if origin is not None else None
        is_listed = page is not None and page.text in self._origins
        foreign: Literal["host", "origin"] | None = None
        if not has_keys and not (self._is_ours(host, asked) and self._is_named(named)):
            foreign = "host"
        elif not is_listed:
            is_own = page is not None and asked is not None and page.is_of(asked)
            if (origin is not None and not is_own) or (not has_keys and site in _FOREIGN_SITES):
                foreign = "origin"
        return Verdict(foreign, self._headers(origin if is_listed else None), is_listed)

    def _is_ours(self, host: bytes | None, asked: Authority | None) -> bool:
        if not host:
            return True  # no browser leaves it out
        return asked is not None and (
            asked.is_address or asked.is_localhost or asked.host in self._hosts
        )

    def _is_named(self, named: bytes | None) -> bool:
        """Whether a target that brings a host of its own, which then counts too, names ours."""
        return named is None or self._is_ours(named, parse_authority(_text(named)))

    def _headers(self, listed: bytes | None) -> Headers:
        if not self._origins:
            return ()
        if listed is None:
            return (_VARY,)  # or a cache would give this answer to a page that is listed
        return ((b"access-control-allow-origin", listed), _EXPOSED, _VARY)


def is_preflight(request: Request) -> bool:
    """Whether a browser asks what a page may ask."""
    return request.method == "OPTIONS" and b"access-control-request-method" in request.headers


def refusal_of(request: Request, foreign: Literal["host", "origin"]) -> Forbidden:
    """Why a request is refused, and which setting would allow it."""
    if foreign == "host":
        return Forbidden.foreign_host(_text(request.headers.get(b"host", b"")))
    origin = request.headers.get(b"origin")
    return Forbidden.foreign_origin(None if origin is None else _text(origin))


def _authority_of(target: bytes) -> bytes | None:
    """The host of a target in absolute form, `http://host/path`; None for one without."""
    _, found, rest = target.partition(b"://")
    return rest.partition(b"/")[0].partition(b"?")[0] if found else None


def _text(value: bytes) -> str:
    return value.decode("latin-1")
