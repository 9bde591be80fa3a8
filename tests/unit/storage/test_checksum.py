"""The checksum is the one the stored files were written with, or nothing starts."""

import runpy
import sys
from types import ModuleType

import pytest

from topics.storage import checksum


@pytest.mark.parametrize(
    "wrong", [{"xxh3_64_intdigest": len}, {"xxh3_64_digest": bytes}], ids=["number", "bytes"]
)
def test_a_library_that_computes_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object]
) -> None:
    other = ModuleType("xxhash")
    other.__dict__.update(
        {"xxh3_64_intdigest": checksum.h64, "xxh3_64_digest": checksum.h64_bytes, **wrong}
    )
    monkeypatch.setitem(sys.modules, "xxhash", other)
    with pytest.raises(ImportError, match="XXH3-64"):
        runpy.run_path(str(checksum.__file__))
