"""Whatever is left out of the coverage of core and storage says why, beside the code."""

import re
from pathlib import Path

import pytest

import topics

MEASURED = ("core", "storage")
_PRAGMA = re.compile(r"#\s*pragma[:\s]?\s*no\s*(cover|branch)(?P<reason>.*)", re.IGNORECASE)
_REASON = re.compile(r" - \w+( \S+){3,}")
"""A dash and a few words: less than that explains nothing."""


def unexplained(text: str) -> list[str]:
    """Lines with a pragma that gives no reason."""
    found = ((line, _PRAGMA.search(line)) for line in text.splitlines())
    return [line for line, pragma in found if pragma and not _REASON.fullmatch(pragma["reason"])]


@pytest.mark.parametrize("package", MEASURED)
def test_every_line_left_out_of_coverage_gives_its_reason(package: str) -> None:
    sources = sorted(Path(topics.__file__).parent.joinpath(package).rglob("*.py"))
    assert sources
    found = {str(path): unexplained(path.read_text()) for path in sources}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "    else:  # pragma: no cover",
        "    else:  # pragma: no branch",
        "    else:  #pragma:no cover",
        "    else:  # PRAGMA NO COVER",
        "    else:  # pragma: no cover - why",
        "    else:  # pragma: no cover because nothing comes here",
    ],
)
def test_a_bare_pragma_is_noticed(line: str) -> None:
    assert unexplained(f"x = 1\n{line}\n") == [line]


def test_a_reason_in_a_few_words_is_enough() -> None:
    assert unexplained("else:  # pragma: no cover - the tests run on Linux\n") == []
