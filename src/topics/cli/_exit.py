"""What a command's exit code means, and which one an error gets."""

from __future__ import annotations

from topics.errors import TopicsError

OK, NO, USAGE, NOT_FOUND, REFUSED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

_BY_CODE = {
    "invalid_request": USAGE,
    "invalid_setting": USAGE,
    "invalid_option": USAGE,
    "topic_not_found": NOT_FOUND,
    "router_not_found": NOT_FOUND,
    "not_found": NOT_FOUND,
    "not_ready": UNREACHABLE,
    "shutting_down": UNREACHABLE,
    "unreachable": UNREACHABLE,
    "http_502": UNREACHABLE,
    "http_503": UNREACHABLE,
    "http_504": UNREACHABLE,
    "internal": NO,
    "flow_failed": NO,
    "sync_failed": NO,
    "import_failed": NO,
    "export_failed": NO,
    "spark_died": NO,
    "table_damaged": NO,
    "interrupted": INTERRUPTED,
}


def code_for(error: TopicsError | OSError) -> int:
    """The exit code of an error; what the log understood and would not do is a refusal."""
    if isinstance(error, TopicsError):
        return _BY_CODE.get(error.code, REFUSED)
    if isinstance(error, ConnectionError | TimeoutError):
        return UNREACHABLE
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NO
