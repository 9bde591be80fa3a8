"""A server's address: its parts, TLS on the way to it, and errors of connecting."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from topics.errors import InvalidRequest, Unreachable, Untrusted

if TYPE_CHECKING:
    import ssl


def split_address(url: str) -> SplitResult | None:
    """The parts of a server's address; None for what cannot be one."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        possible = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:  # a bracket too few, a port that is no number, a name too long
        return None
    return parts if possible else None


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Certificates are checked, against `ca_file` or against those the system trusts."""
    import ssl  # noqa: PLC0415 - slow to import, and most servers are near

    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidRequest(
            f"ca_file must be a PEM file with certificates, got {ca_file} ({error})"
        ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def cannot_connect(url: str, error: OSError, *, is_tls: bool) -> Unreachable:
    """The error of a connection that could not be made."""
    if isinstance(error, TimeoutError):
        return Unreachable(url, reason="it took too long")
    reason = error.strerror or str(error) or type(error).__name__
    return (Untrusted if is_tls and _is_final(error) else Unreachable)(url, reason=reason)


def _is_final(error: OSError) -> bool:
    """Whether TLS itself failed. A server that ends during the handshake may come back."""
    import ssl  # noqa: PLC0415 - as above

    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
