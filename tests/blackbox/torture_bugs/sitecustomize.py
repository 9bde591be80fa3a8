"""A server with a bug: replay passes over deletes. On the path of a process it is planted there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

CATALOG = "topics.core.catalog"


class _Planter(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        apply = module._apply_to

        def forgetful(topic: object, fact: object, generation: int) -> None:
            if type(fact).__name__ != "Deleted" or "recovery" not in _callers():
                apply(topic, fact, generation)

        module._apply_to = forgetful  # type: ignore[attr-defined]  # the point of it


def _callers() -> str:
    frame, names = sys._getframe(), []
    while frame.f_back is not None:
        frame = frame.f_back
        names.append(frame.f_globals.get("__name__", ""))
    return " ".join(names)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != CATALOG:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Planter(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
