"""Arrow arrays made of buffers hold what they should, and no worker imports pandas for its rows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa

from topics.spark.source.arrays import NO_TEXT, always, literal, numbers, repeated, values_of

WORKER = """
import sys
import pyarrow as pa
from topics.spark.source.arrays import literal, numbers, repeated
from topics.spark.sink.chunks import RowEncoder, chunks
from topics.spark.lake.parquet import write_rows
from topics.spark.lake.epochs import EpochCommit
from topics.spark.lake.place import TablePath
from topics.spark.source.schema import COLUMNS, Projection
import numpy as np

names = repeated("a", 4)
ids = numbers(np.arange(1, 5))
both = pa.StructArray.from_arrays([ids, names], ["id", "name"])
lists = pa.ListArray.from_arrays(pa.Array.from_buffers(
    pa.int32(), 3, [None, pa.py_buffer(np.array([0, 1, 4], np.int32))]), both)
for column in (names, ids, both, lists):
    rows = pa.RecordBatch.from_arrays([column], ["data"])
    (chunk,) = chunks([rows], RowEncoder(0, "orders", as_text=True))
stored = pa.RecordBatch.from_arrays(
    [ids, ids.cast(pa.timestamp("us", "UTC")), names, names, names, names],
    ["seq", "ts", "node", "tag", "data", "meta"],
)
rows = Projection(COLUMNS).of_records(stored, topic="orders", epoch=1)
assert write_rows(TablePath.of(sys.argv[1]), "part-", iter([rows])).seen == [(1, [(1, 4)])]
print("pandas" in sys.modules)
"""


def test_arrays_hold_what_they_were_made_of() -> None:
    assert numbers(np.array([3, -1])).to_pylist() == [3, -1]
    assert repeated("ü1", 3).to_pylist() == ["ü1"] * 3
    assert repeated("", 2).to_pylist() == ["", ""]
    assert repeated("x", 0).to_pylist() == []
    assert literal("null").as_py() == "null"
    assert always("orders", 300).to_pylist() == ["orders"] * 300
    assert NO_TEXT.as_py() is None


def test_values_are_read_where_a_slice_begins() -> None:
    column = pa.array([1, 2, 3, 4], pa.int64())
    assert values_of(column.slice(1, 2), np.int64).tolist() == [2, 3]
    assert values_of(column.slice(4), np.int64).tolist() == []
    assert values_of(pa.array([7, None], pa.int32()), np.int32)[0] == 7


def test_no_worker_imports_pandas_for_rows_it_writes_or_reads(tmp_path: object) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "False"), ran.stderr
