"""From a file to a mapping: YAML with doubled keys refused, or a Python file that holds a flow."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml  # type: ignore[import-untyped]  # ships no types

from topics.errors import NotFound
from topics.spark.flows.errors import InvalidFlow

MAPPING, FUNCTION = "flow", "transform"


@dataclass(frozen=True)
class Function:
    """A Python function that makes the flow's rows from its sources."""

    path: Path
    name: str = FUNCTION


def load_mapping(file: Path) -> dict[str, Any]:
    """The keys of a flow file and their values, not judged yet."""
    if not file.exists():
        raise NotFound(f"the file {file}")
    if file.suffix == ".py":
        return _from_python(file)
    if file.suffix in (".yaml", ".yml"):
        return _from_yaml(file)
    raise InvalidFlow(f"{file} is neither YAML nor Python; name it *.yaml, *.yml or *.py")


def load_module(file: Path) -> ModuleType:
    """Run a Python file of the user's under a name that clashes with nothing."""
    name = f"topics_flow_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses in the file look for their module there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidFlow(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    return module


def _from_python(file: Path) -> dict[str, Any]:
    module = load_module(file)
    given = getattr(module, MAPPING, None)
    if not isinstance(given, dict) or not callable(getattr(module, FUNCTION, None)):
        raise InvalidFlow(
            f"{file} needs a mapping `{MAPPING}` with the keys from, to, ... and a function "
            f"`{FUNCTION}`"
        )
    for key in ("sql", "python"):
        if key in given:
            raise InvalidFlow(f"{file}: `{key}` has no place beside `{FUNCTION}`; leave it out")
    return {**given, "python": Function(file, FUNCTION)}


def _from_yaml(file: Path) -> dict[str, Any]:
    try:
        given = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidFlow(f"{file} is not YAML: {error}") from error
    if not isinstance(given, dict):
        raise InvalidFlow(f"{file} holds no flow; it needs the keys from, sql or python, and to")
    return given


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # its base has no types
    """YAML as everywhere, except that a key given twice is an error and not the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping
