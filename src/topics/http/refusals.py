"""Answers the transport gives by itself, in the same JSON envelope as every other error."""

from topics.errors import (
    Internal,
    InvalidRequest,
    MethodNotAllowed,
    PayloadTooLarge,
    Throttled,
    UnsupportedMediaType,
)
from topics.http.api.errors import refusal
from topics.http.messages import Response
from topics.wire.responses import envelope


def _envelope(status: int, code: str, message: str) -> Response:
    return Response(status, envelope(code, message))


def malformed(message: str) -> Response:
    """400: the bytes are not a request we can understand."""
    return _envelope(400, InvalidRequest.code, message)


def too_slow(what: str) -> Response:
    """408: the request did not arrive in time."""
    return _envelope(408, InvalidRequest.code, f"the {what} took too long to arrive")


def head_too_large(max_bytes: int) -> Response:
    """431: more request line and headers than we hold."""
    return _envelope(
        431, InvalidRequest.code, f"the request headers are larger than {max_bytes} bytes"
    )


def body_too_large(max_bytes: int) -> Response:
    """413: more body than the limit, before or after decoding."""
    return _envelope(413, PayloadTooLarge.code, str(PayloadTooLarge(max_bytes=max_bytes)))


def throttled(error: Throttled) -> Response:
    """429: too many bytes of requests are in memory."""
    return refusal(error)


def unknown_coding(coding: bytes) -> Response:
    """415: a content coding other than gzip."""
    error = UnsupportedMediaType(content_coding=coding[:100].decode("latin-1"))
    return _envelope(415, error.code, str(error))


def unknown_method() -> Response:
    """405: a method HTTP does not know, so no path here can allow it."""
    return _envelope(405, MethodNotAllowed.code, "this method is not known here")


def bad_version(version: str) -> Response:
    """505: a version of HTTP this connection does not speak."""
    return _envelope(505, InvalidRequest.code, f"HTTP/{version} is not spoken here")


def internal() -> Response:
    """500: the application failed; the cause is in the log, never in the answer."""
    return _envelope(500, Internal.code, "the server failed to handle this request")
