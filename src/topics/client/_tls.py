"""TLS, the same for both shells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics.errors import InvalidRequest

if TYPE_CHECKING:
    import ssl


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
