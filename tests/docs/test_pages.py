"""Every code block of the documentation runs and prints what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.docs.pages import blocks_of, fits, pattern_of, run_page

from topics.cli._app import app

TESTS = Path(__file__).resolve().parents[1]
DOCS = TESTS.parent / "docs"
MAP = DOCS / "ARCHITECTURE.md"
FOLDERS = ("tutorials", "howto", "operations")
PAGES = [
    DOCS / "index.md",
    DOCS / "client.md",
    DOCS / "testing.md",
    *(page for name in FOLDERS for page in sorted((DOCS / name).glob("*"))),
]
WITH_CODE = [page for page in PAGES if blocks_of(page.read_text())]
RUN_ELSEWHERE = [DOCS / "cli.md", *(DOCS / "spark").glob("*.md")]
"""By the tests of the command line, and by those with a Spark."""


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_code_of_a_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path) > 0


def test_no_page_with_code_is_left_out() -> None:
    known = {*WITH_CODE, *RUN_ELSEWHERE}
    pages = (page for page in DOCS.rglob("*.md") if page not in known)
    assert [page for page in pages if blocks_of(page.read_text())] == []


def test_what_a_page_promises_is_compared_to_the_letter(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="promises"):
        run_page(page, tmp_path)


OPTIONS_OF_OTHERS = {"--fresh"}
"""Of the program that runs the tests."""
ERRORS = (
    '{"error":{"code":"invalid_request","message":"no"}}',
    '{"error":{"code":"topic_not_found","message":"no","detail":{"topic":"orders"}}}',
    json.dumps({"error": {"code": "internal", "message": "no"}}, indent=4),
    "topics: no answer from http://127.0.0.1:4000",
    "Traceback (most recent call last):\nValueError: no",
    "",
)
"""What a call, a command or a program says that failed."""


def promises() -> Iterator[tuple[str, str]]:
    for page in sorted(DOCS.rglob("*.md")):
        for block in blocks_of(page.read_text()):
            if block.promised is not None:
                yield f"{page.relative_to(DOCS)}:{block.line}", block.promised


@pytest.mark.parametrize("error", ERRORS)
def test_no_page_promises_what_would_fit_an_error(error: str) -> None:
    assert len(list(promises())) > 50
    assert [where for where, promised in promises() if pattern_of(promised).fullmatch(error)] == []


@pytest.mark.parametrize("promised", ["...", "{...}", '{"error"...}'])
def test_an_error_is_noticed_however_little_a_page_promises(promised: str) -> None:
    error, *_ = ERRORS
    assert fits(error, promised) == ("error" in promised)
    assert fits('{"topic":"orders"}', "{...}")


def test_an_error_is_noticed_where_a_page_promises_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```python\nprint({ERRORS[0]!r})\n```\n")
    with pytest.raises(AssertionError, match="does not tell of"):
        run_page(page, tmp_path)


@pytest.mark.parametrize("name", ["guarantees.md", "testing.md"])
def test_every_test_that_is_named_as_proof_exists(name: str) -> None:
    named = re.findall(r"`(tests/[\w/.]+|test_\w+\.py)`", (DOCS / name).read_text())
    assert len(named) > 5
    folder, paths = Path(), []
    for test in named:
        # A bare name is in the folder of the one before it, as a reader takes it.
        paths.append(Path(test) if test.startswith("tests/") else folder / test)
        folder = paths[-1].parent
    assert [path for path in paths if not (DOCS.parent / path).exists()] == []


@pytest.mark.parametrize("name", ["security.md", "guarantees.md"])
def test_every_row_of_a_table_of_proofs_names_tests_that_exist(name: str) -> None:
    """As `folder/file.py::test`, as a whole file, or by its name alone."""
    text = (DOCS / name).read_text()
    rows = re.findall(r"^\|.*\|.*\| *(.*?) *\|$", text, re.MULTILINE)
    proofs = [row for row in rows if re.search(r"`[\w/]*test_", row)]
    assert len(proofs) > 10
    defined = {
        (str(path.relative_to(TESTS)), found)
        for path in TESTS.rglob("test_*.py")
        for found in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = [reference for row in proofs for reference in re.findall(r"`([^`]+)`", row)]
    missing = []
    for reference in named:
        path, _, test = reference.removeprefix("tests/").rpartition("::")
        if path:
            is_there = (path, test) in defined
        elif test.startswith("test_") and "." not in test:
            is_there = any(found == test for _, found in defined)
        elif "/" in test and test.endswith(".py"):
            is_there = (TESTS / reference.removeprefix("tests/")).exists()
        else:
            continue  # a file named without its folder, or a command
        if not is_there:
            missing.append(reference)
    assert missing == []


def options_of(command: click.Command) -> set[str]:
    """Every option of a command and of those below it."""
    found = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= options_of(below)
    return found


def test_every_option_of_the_command_line_that_is_named_exists() -> None:
    known = {*options_of(app), "--help", *OPTIONS_OF_OTHERS}
    pages = [path for path in DOCS.rglob("*.md") if "adr" not in path.parts]
    named = [
        (str(page.relative_to(DOCS)), option)
        for page in pages
        for code in re.findall(r"`((?:--|topics (?!bench))[^`\n]*)`", page.read_text())
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)
    ]
    assert len(named) > 20
    assert [where for where in named if where[1] not in known] == []


def test_the_map_of_the_code_names_files_that_exist() -> None:
    named = re.findall(r"`([a-z]+/[\w/]*\.py|[a-z]+/\w+/|[a-z]+/)`", MAP.read_text())
    assert len(named) > 20
    roots = (DOCS.parent / "src" / "topics", DOCS.parent)
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize(
    "page",
    [DOCS / "performance.md", *sorted((DOCS / "adr").glob("0*.md"))],
    ids=lambda page: page.name,
)
def test_measurements_and_decisions_name_files_that_exist(page: Path) -> None:
    named = re.findall(r"`([a-z]+/[\w/]*\.py)`", page.read_text())
    roots = (DOCS.parent / "src" / "topics", DOCS.parent)
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


def test_the_overview_for_language_models_names_pages_that_exist() -> None:
    named = re.findall(r"\]\(([^)]+)\)", (DOCS / "llms.txt").read_text())
    assert named
    assert [name for name in named if not (DOCS / name).exists()] == []
