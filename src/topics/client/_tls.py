"""TLS, the same for both shells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Certificates are checked, against `ca_file` or against those the system trusts."""
    import ssl  # noqa: PLC0415 - slow to import, and most servers are near

    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context
