"""What each error means in HTTP: the only place that knows a status for one."""

from __future__ import annotations

from topics import errors
from topics.http.messages import Headers, Response
from topics.wire.responses import error_body

STATUS: dict[type[errors.TopicsError], int] = {
    errors.InvalidRequest: 400,
    errors.BatchTooLarge: 400,
    errors.RecordTooLarge: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.TopicNotFound: 404,
    errors.RouterNotFound: 404,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.NotAcceptable: 406,
    errors.RouterCycle: 409,
    errors.TopicExistsIncompatible: 409,
    errors.TopicNotEmpty: 409,
    errors.NotAQueue: 409,
    errors.HeadMismatch: 409,
    errors.StaleEpoch: 409,
    errors.PayloadTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.TopicFull: 422,
    errors.Throttled: 429,
    errors.Internal: 500,
    errors.NotReady: 503,
    errors.ShuttingDown: 503,
}


def status_of(error: errors.TopicsError) -> int:
    """The status of an error; of its nearest listed ancestor when it is not listed itself."""
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500


def internal(cause: Exception) -> errors.Internal:
    """What a client is told of a bug: nothing; the log gets the cause."""
    failure = errors.Internal()
    failure.__cause__ = cause
    return failure


def as_told(error: errors.TopicsError, *, is_limited: bool) -> errors.TopicsError:
    """The error as a caller may know it.

    A failure may name topics that had a part in it. A key that is limited to prefixes may not know
    them, so it is told of the log as a whole, or nothing.
    """
    is_failure = isinstance(error, errors.Internal)
    if is_limited and is_failure and not isinstance(error, errors.LogFull | errors.LogFailed):
        return errors.Internal()
    return error


def refusal(error: errors.TopicsError) -> Response:
    """An error as an answer."""
    return Response(status_of(error), error_body(error), headers=_headers(error))


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
