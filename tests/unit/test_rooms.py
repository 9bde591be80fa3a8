"""How the source is laid out: small modules have a reason, a name of a class means one thing."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import topics

SOURCE = Path(topics.__file__).parent.parent
SMALL = 40
"""A module with fewer lines and one caller stands with its caller."""
ALONE = {
    "topics.cli.__main__": "run by `python -m`",
    "topics.cli.completion": "loaded by its name when the command is given",
    "topics.server.disk_room": "work on files, which the wiring of the server stays clear of",
    "topics.wire.requests.routers": "the package hands its bodies on to several callers",
}
TWICE = {
    ("topics.client.aio", "topics.embedded.log"): "signatures; `test_interface.py` compares them",
    ("topics.core.facts", "topics.storage.snapshots.lines"): "a fact and a format, which may part",
}
TWINS = {"Channel", "SseChannel", "WsChannel"}
"""The blocking and the asyncio kind of one thing: the first is generated from the second."""


@cache
def modules() -> list[tuple[str, Path, ast.Module]]:
    found = []
    for path in sorted(SOURCE.glob("*topics*/**/*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found.append((name.removesuffix(".__init__"), path, ast.parse(path.read_text())))
    return found


def imported_by(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_a_small_module_has_more_than_one_caller() -> None:
    callers: Counter[str] = Counter()
    small = set()
    for name, path, tree in modules():
        callers.update(set(imported_by(tree)))
        if path.name != "__init__.py" and len(path.read_text().splitlines()) < SMALL:
            small.add(name)
    assert {name for name in small if callers[name] < 2} == set(ALONE)


def test_the_name_of_a_class_is_used_once() -> None:
    places = defaultdict(list)
    for name, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1}.keys() == TWINS


def code_lines(path: Path, tree: ast.Module) -> list[tuple[int, str]]:
    """Lines that say something: no blank line, comment, import, or text in quotes."""
    lines = path.read_text().splitlines()
    silent: set[int] = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (
            is_text or isinstance(node, ast.Import | ast.ImportFrom)
        ):
            silent.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = ((at, line.strip()) for at, line in enumerate(lines, 1) if at not in silent)
    return [(at, line) for at, line in numbered if any(map(str.isalnum, line)) and line[0] != "#"]


def test_no_ten_lines_stand_twice_without_a_reason() -> None:
    seen: dict[tuple[str, ...], str] = {}
    twice = set()
    for name, path, tree in modules():
        if "by tools/make_sync.py" in path.read_text():
            continue  # generated from another module
        lines = code_lines(path, tree)
        for start in range(len(lines) - 9):
            window = tuple(line for _, line in lines[start : start + 10])
            if (first := seen.setdefault(window, name)) != name:
                twice.add((first, name))
    assert twice == TWICE.keys()
