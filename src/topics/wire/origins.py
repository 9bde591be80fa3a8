"""Host names and web origins as headers spell them: `Host`, `:authority` and `Origin`.

A port left out is the default of the scheme, names are compared in lower case, and the dot at the
end of a full name is dropped. Everything else that is not plainly a host or an origin is neither.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_PORT = re.compile(r"[0-9]{1,5}")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#@\s]+)")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOCALHOST = "localhost"


class Authority(NamedTuple):
    """A host, in lower case and an IPv6 address in brackets, with its port if one is given."""

    host: str
    port: int | None

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP literal, which no DNS entry can make point elsewhere."""
        return _is_address(self.host)

    @property
    def is_localhost(self) -> bool:
        """Whether the host is a name that every browser keeps on its own machine."""
        return self.host == _LOCALHOST or self.host.endswith(f".{_LOCALHOST}")


class Origin(NamedTuple):
    """Where a web page comes from."""

    scheme: str
    authority: Authority

    @property
    def text(self) -> str:
        """The one spelling that browsers send."""
        host, port = self.authority
        if port is None or port == _DEFAULT_PORTS.get(self.scheme):
            return f"{self.scheme}://{host}"
        return f"{self.scheme}://{host}:{port}"

    def is_of(self, authority: Authority) -> bool:
        """Whether a page of this origin asks the server it came from."""
        default = _DEFAULT_PORTS.get(self.scheme)
        mine, theirs = self.authority, authority
        return mine.host == theirs.host and (mine.port or default) == (theirs.port or default)


def parse_authority(text: str) -> Authority | None:
    """`host` or `host:port`; None when the text is neither."""
    text = text.strip().lower()
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        host += bracket
        if not bracket or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
        host = host.removesuffix(".")
    if port and (not _PORT.fullmatch(port) or int(port) > 65535):
        return None
    if not _is_address(host) and not _NAME.fullmatch(host):
        return None
    return Authority(host, int(port) if port else None)


def parse_origin(text: str) -> Origin | None:
    """`scheme://host` or `scheme://host:port`; None for anything else, `null` included."""
    match = _ORIGIN.fullmatch(text.strip().lower())
    authority = parse_authority(match[2]) if match else None
    if match is None or authority is None:
        return None
    return Origin(match[1], authority)


def _is_address(host: str) -> bool:
    try:
        if host.startswith("["):
            IPv6Address(host[1:-1])
        else:
            IPv4Address(host)
    except ValueError:
        return False
    return True
