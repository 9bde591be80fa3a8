"""A batch reaches its Delta table once, however often it is repeated, and names nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from topics.spark.errors import FlowFailed
from topics.spark.flows.tables import (
    TableWriter,
    TaskFiles,
    commit_files,
    remove_files,
    was_committed,
    write_files,
)

QUERY = "query-1"


def rows(*numbers: int, text: str = "someone@example.org") -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": pa.array(numbers, pa.int64()), "who": [text] * len(numbers)})


def written(table: Path, *numbers: int, batch: int, query: str = QUERY) -> TaskFiles:
    return write_files(str(table), rows(*numbers), query=query, batch=str(batch))


def ids(table: Path) -> list[int]:
    found: list[int] = DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def files(table: Path) -> int:
    return len(list(table.glob("*.parquet")))


def test_the_files_of_a_batch_become_one_commit(tmp_path: Path) -> None:
    parts = [written(tmp_path, 1, 2, batch=0), written(tmp_path, 3, batch=0)]
    commit_files(str(tmp_path), parts, batch=0)
    assert ids(tmp_path) == [1, 2, 3]
    table = DeltaTable(str(tmp_path))
    assert table.version() == 1  # made, and one commit
    commit_files(str(tmp_path), [written(tmp_path, 4, batch=1)], batch=1)
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_a_repeated_batch_changes_nothing_and_leaves_no_files(tmp_path: Path) -> None:
    commit_files(str(tmp_path), [written(tmp_path, 1, 2, batch=0)], batch=0)
    # After a crash the same batch may come in other pieces.
    again = [written(tmp_path, 1, batch=0), written(tmp_path, 2, batch=0)]
    commit_files(str(tmp_path), again, batch=0)
    assert ids(tmp_path) == [1, 2]
    assert files(tmp_path) == 1


def test_the_same_number_of_another_query_is_another_batch(tmp_path: Path) -> None:
    commit_files(str(tmp_path), [written(tmp_path, 1, batch=0)], batch=0)
    commit_files(str(tmp_path), [written(tmp_path, 2, batch=0, query="query-2")], batch=0)
    assert ids(tmp_path) == [1, 2]


def test_a_batch_without_rows_makes_no_table(tmp_path: Path) -> None:
    nothing = write_files(str(tmp_path), iter(()), query=QUERY, batch="0")
    empty = write_files(str(tmp_path), rows(), query=QUERY, batch="0")
    commit_files(str(tmp_path), [nothing, empty], batch=0)
    assert list(tmp_path.iterdir()) == []


def test_an_abort_removes_what_no_log_names(tmp_path: Path) -> None:
    part = written(tmp_path, 1, batch=0)
    TableWriter(str(tmp_path)).abort([part, None], 0)
    assert files(tmp_path) == 0


def test_an_abort_after_a_commit_that_arrived_takes_nothing_away(tmp_path: Path) -> None:
    part = written(tmp_path, 1, batch=0)
    commit_files(str(tmp_path), [part], batch=0)
    TableWriter(str(tmp_path)).abort([part], 0)
    assert ids(tmp_path) == [1]
    assert was_committed(str(tmp_path), [part], 0)


def test_removing_twice_is_no_error(tmp_path: Path) -> None:
    part = written(tmp_path, 1, batch=0)
    remove_files(str(tmp_path), [part])
    remove_files(str(tmp_path), [part])


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    commit_files(str(tmp_path), [written(tmp_path, 1, batch=0)], batch=0)
    other = iter([pa.record_batch({"id": ["text"], "who": ["x"]})])
    part = write_files(str(tmp_path), other, query=QUERY, batch="1")
    with pytest.raises(FlowFailed, match="name another table"):
        commit_files(str(tmp_path), [part], batch=1)
    assert ids(tmp_path) == [1]


def test_a_column_of_text_may_have_the_name_of_one_of_a_topic(tmp_path: Path) -> None:
    names = {"seq": ["someone@example.org"], "ts": ["today"]}
    part = write_files(str(tmp_path), iter([pa.record_batch(names)]), query=QUERY, batch="0")
    commit_files(str(tmp_path), [part], batch=0)
    (file,) = tmp_path.glob("*.parquet")
    group = pq.read_metadata(file).row_group(0)
    assert not any(group.column(n).is_stats_set for n in range(group.num_columns))
    log = "".join(path.read_text() for path in (tmp_path / "_delta_log").glob("*.json"))
    assert "someone" not in log
    assert "today" not in log


def test_no_text_gets_into_statistics(tmp_path: Path) -> None:
    """Neither in the log, nor in the footers, nor when somebody compacts the table."""
    commit_files(str(tmp_path), [written(tmp_path, 1, batch=0)], batch=0)
    commit_files(str(tmp_path), [written(tmp_path, 2, batch=1)], batch=1)
    DeltaTable(str(tmp_path)).optimize.compact()
    log = "".join(path.read_text() for path in (tmp_path / "_delta_log").glob("*.json"))
    assert "someone" not in log
    adds = [json.loads(line)["add"] for line in log.splitlines() if '"add"' in line]
    assert {json.loads(add["stats"])["numRecords"] for add in adds} == {1, 2}
    assert ids(tmp_path) == [1, 2]
