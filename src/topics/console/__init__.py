"""The console: a page for browsers, and the files it loads.

The page is a plain client of `/v0`. It is served as the files in `static` stand there: there is no
build step. `vendor` holds released files of other projects; `manifest.json` there names version,
licence and hash of each. Nothing else imports this package but the server's edge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

INDEX = "index.html"
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".json": b"application/json",
    ".txt": b"text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the console, as it is sent."""

    body: bytes
    content_type: bytes
    etag: bytes


@cache
def assets() -> Mapping[str, Asset]:
    """Every file by its path below `/console/`. Reads some 25 small files when first called."""
    return {path: _asset(path, found) for path, found in _walk(files(__name__) / "static", "")}


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + entry.name, entry))
    return found


def _asset(path: str, found: Traversable) -> Asset:
    body = found.read_bytes()
    suffix = path[path.rindex(".") :]
    # Weak: the same file may travel compressed.
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:20]}"'
    return Asset(body, _TYPES[suffix], etag.encode())
