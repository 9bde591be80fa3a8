"""What an error becomes in HTTP; `wire.statuses` has the status of each code."""

from __future__ import annotations

from topics import errors
from topics.http.messages import Headers, Response
from topics.wire.responses import error_body
from topics.wire.statuses import STATUS


def internal(cause: Exception) -> errors.Internal:
    """The answer to a bug, which tells nothing of the cause; the cause is logged."""
    failure = errors.Internal()
    failure.__cause__ = cause
    return failure


def as_told(error: errors.TopicsError, *, is_limited: bool) -> errors.TopicsError:
    """The error without names that the caller may not know.

    A failure may name topics. A key that is limited to prefixes may not know them, so its error
    names the log as a whole, or nothing.
    """
    is_failure = isinstance(error, errors.Internal)
    if is_limited and is_failure and not isinstance(error, errors.LogFull | errors.LogFailed):
        return errors.Internal()
    return error


def refusal(error: errors.TopicsError) -> Response:
    """An error as an answer."""
    return Response(STATUS.get(error.code, 500), error_body(error), headers=_headers(error))


def _headers(error: errors.TopicsError) -> Headers:
    if isinstance(error, errors.Throttled):
        seconds = max(1, -(-error.retry_after_ms // 1000))
        return ((b"retry-after", b"%d" % seconds),)
    if isinstance(error, errors.NotReady | errors.ShuttingDown):
        return ((b"retry-after", b"1"),)
    if isinstance(error, errors.MethodNotAllowed):
        methods = [*error.allowed, *(("HEAD",) if "GET" in error.allowed else ())]
        return ((b"allow", ", ".join(methods).encode()),)
    if isinstance(error, errors.Unauthorized):
        return ((b"www-authenticate", b"Bearer"),)
    return ()
