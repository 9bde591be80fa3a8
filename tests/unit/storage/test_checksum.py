"""The checksum is the one the stored files were written with, or nothing starts."""

import runpy
import sys
from types import ModuleType

import pytest

from topics.storage import checksum


def test_a_library_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("xxhash")
    other.__dict__["xxh3_64_intdigest"] = len
    monkeypatch.setitem(sys.modules, "xxhash", other)
    with pytest.raises(ImportError, match="XXH3-64"):
        runpy.run_path(str(checksum.__file__))
