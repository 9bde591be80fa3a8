"""`GET /console/…`: the files of the console, and what leads browsers there."""

from __future__ import annotations

from topics import console
from topics.engine.effects import Io, Op
from topics.errors import NotFound
from topics.http.api.call import Call
from topics.http.api.routing import Resource, Route
from topics.http.messages import Request, Response

PLACE = b"/console/"

HEADERS = (
    (b"cache-control", b"no-cache"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def show(call: Call) -> None:
    """One file of the console, or nothing when the browser has it already."""
    path = call.request.path[len(PLACE) :].decode("latin-1") or console.INDEX

    def answer(asset: console.Asset) -> None:
        headers = (*HEADERS, (b"etag", asset.etag))
        if call.header(b"if-none-match") == asset.etag:
            call.reply(Response(304, content_type=None, headers=headers))
        else:
            call.reply(Response(200, asset.body, content_type=asset.content_type, headers=headers))

    call.run(_find(path), answer)


def _find(path: str) -> Op[console.Asset]:
    # On a thread: the first request reads all the files.
    found: console.Asset | None = yield Io(lambda: console.assets().get(path))
    if found is None:
        raise NotFound(f"the path {PLACE.decode()}{path}")
    return found


FILES = Resource({"GET": Route(show)}, open=True, always=True, is_probe=True)
"""The page needs no key, only its calls do. It is served while the server recovers, and for links
from other pages, because the files hold no data."""

TO_CONSOLE = Response(302, content_type=None, headers=((b"location", PLACE),))


def is_browser_at_root(request: Request) -> bool:
    """Whether a browser asks for `/`. Programs that ask for it get 404."""
    is_page = b"text/html" in request.headers.get(b"accept", b"")
    return is_page and request.path == b"/" and request.method in ("GET", "HEAD")
