"""A stream as a picture: the example runs as it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


def test_the_picture_of_a_stream_accounts_for_every_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "lag.png"
    story = load_example("plot_lag").main(out, 2)
    written = sum(count for _, count in story.written)
    read = sum(count for _, count, _ in story.batches)
    lost = sum(count for _, _, count in story.batches)
    assert written == 20_000
    assert lost > 0
    assert read + lost == written
    assert max(lag for _, lag in story.lag) > 0
    assert out.read_bytes().startswith(PNG)
    assert out.stat().st_size > 10_000


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look for their module there
    spec.loader.exec_module(module)
    return module
