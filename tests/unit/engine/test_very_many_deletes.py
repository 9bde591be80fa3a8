"""Topics of which very many single records are deleted: every step stays short."""

from __future__ import annotations

from unittest import mock

import pytest
from tests.unit.engine.builders import Store
from tests.unit.engine.test_filtered_reads import played

from topics.engine.reads import reading
from topics.engine.reads.reading import Query, Reader
from topics.engine.upkeep import checkpoint, topic_lines
from topics.storage.segments.writer import Slice

RECORDS = 1500


@pytest.fixture
def store() -> Store:
    """A topic of which every second record is deleted; all of it is in the log."""
    made = Store(settings={"wal_shards": 1, "cache_bytes": 1 << 16})
    tagged = [{"data": n, "tag": "odd" if n % 2 else "even"} for n in range(1, RECORDS + 1)]
    made.log.append("t", tagged)
    made.log.delete("t", match="odd")
    return made


def seqs(store: Store) -> list[int]:
    return [record.seq for record in store.log.read("t", limit=RECORDS).records]


EVEN = list(range(2, RECORDS + 1, 2))


def test_a_checkpoint_writes_very_many_records_between_deleted_ones_in_few_slices(
    store: Store,
) -> None:
    with mock.patch.object(checkpoint, "Slice", side_effect=Slice) as slices:
        store.log.checkpoint()
    assert slices.call_count == 2
    assert seqs(store) == EVEN
    store.kill()
    assert seqs(store) == EVEN
    assert store.topic("t").history.weigh(1, RECORDS)[0] == len(EVEN)


@pytest.mark.parametrize("few", [0, 2])
def test_a_snapshot_lists_very_many_deleted_runs_in_steps(
    store: Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(checkpoint, "FEW_PIECES", few)
    monkeypatch.setattr(checkpoint, "STEP_RUNS", 100)
    monkeypatch.setattr(topic_lines, "STEP_RUNS", 100)
    store.log.append("other", [{"data": 1}])
    with mock.patch.object(checkpoint, "_listed", side_effect=checkpoint._listed) as runs_and_keys:
        store.log.checkpoint()
    assert [call.kwargs["beside"] for call in runs_and_keys.mock_calls] == [few == 0, False]
    store.kill()
    assert list(store.topic("t").deleted) == [(seq, seq) for seq in range(1, RECORDS, 2)]


@pytest.mark.parametrize("is_in_segments", [False, True])
def test_a_page_of_records_between_deleted_ones_is_fetched_at_once(
    store: Store, *, is_in_segments: bool
) -> None:
    if is_in_segments:
        store.log.checkpoint()
    with mock.patch.object(Reader, "_fetch", autospec=True, side_effect=Reader._fetch) as fetches:
        assert [r.seq for r in store.log.read("t", limit=500).records] == EVEN[:500]
    assert fetches.call_count == 1


def test_a_page_that_has_to_be_fetched_record_by_record_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "FETCHES_BETWEEN_PAUSES", 2)
    store = Store()
    store.log.append("t", [{"data": n, "tag": "kept" if n % 50 else "gone"} for n in range(251)])
    store.log.delete("t", match="kept")
    page, pauses = played(store.log._engine.read("t", Query()))
    assert [record.seq for record in page.records] == [1, 51, 101, 151, 201, 251]
    assert pauses == 2
