"""Names made from numbers, and numbers read back from names."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.storage import layout

U64 = st.integers(0, (1 << 64) - 1)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (layout.topic_name(10), "0000000A"),
        (layout.topic_name(0x1234567890), "1234567890"),
        (layout.deleted_topic_name(10), "0000000A.deleted"),
        (layout.segment_name(1, "data"), "seg-0000000000000001.data"),
        (layout.wal_name(1024), "wal-0000000000001024.log"),
        (layout.snapshot_name(7), "snapshot.0007.bin"),
        (layout.snapshot_name(12345), "snapshot.12345.bin"),
        (layout.group_key(0, 1), ""),
        (layout.group_key(0, 8), "shard-00"),
        (layout.stage_name(3, 1), "3-1.stage"),
        (layout.stage_dir_name("topics", 9), "814b3cb24f7b122e-9"),
    ],
)
def test_names_have_their_documented_form(made: str, name: str) -> None:
    assert made == name


@given(number=U64)
def test_every_number_comes_back_from_its_name(number: int) -> None:
    assert layout.parse_topic(layout.topic_name(number)) == number
    assert layout.parse_deleted_topic(layout.deleted_topic_name(number)) == number
    assert layout.parse_wal(layout.wal_name(number)) == number
    assert layout.parse_snapshot(layout.snapshot_name(number)) == number
    assert layout.parse_stage(layout.stage_name(number, number)) == (number, number)
    for part in layout.SEGMENT_PARTS:
        assert layout.parse_segment(layout.segment_name(number, part)) == (number, part, 0)
        anew = layout.segment_name(number, part, version=3)
        assert layout.parse_segment(anew) == (number, part, 3)


@given(app=st.text(max_size=20), epoch=U64)
def test_a_stage_directory_names_its_epoch_but_not_its_app(app: str, epoch: int) -> None:
    name = layout.stage_dir_name(app, epoch)
    parsed = layout.parse_stage_dir(name)
    assert parsed is not None
    assert parsed[1] == epoch
    assert len(name.split("-")[0]) == 16


def test_a_dropped_topic_is_not_taken_for_a_live_one() -> None:
    assert layout.parse_topic("0000000A.deleted") is None
    assert layout.parse_deleted_topic("0000000A") is None


@pytest.mark.parametrize(
    ("parse", "name"),
    [
        (layout.parse_topic, "A"),
        (layout.parse_topic, "0000000a"),
        (layout.parse_topic, "00000000A"),
        (layout.parse_topic, "1FFFFFFFFFFFFFFFF"),
        (layout.parse_wal, "wal-1024.log"),
        (layout.parse_wal, "wal-00000000000001024.log"),
        (layout.parse_wal, "wal-0000000000001024.log.tmp"),
        (layout.parse_wal, "wal-0000000000001024.log\n"),
        (layout.parse_wal, "wal-٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log"),  # noqa: RUF001 - digits, but not ours
        (layout.parse_wal, "wal-99999999999999999999.log"),
        (layout.parse_wal, layout.WAL_SPARE),
        (layout.parse_segment, "seg-0000000000000001.dat"),
        (layout.parse_segment, "seg-0000000000000001.data.tmp"),
        (layout.parse_segment, "seg-00000000000000001.data"),
        (layout.parse_snapshot, "snapshot.7.bin"),
        (layout.parse_snapshot, "snapshot.00007.bin"),
        (layout.parse_group, "shard-0"),
        (layout.parse_group, "shard-001"),
        (layout.parse_stage_dir, "814b3cb24f7b122e-09"),
        (layout.parse_stage_dir, "814b3cb24f7b122-9"),
        (layout.parse_stage, "03-1.stage"),
        (layout.parse_stage, "3-01.stage"),
        (layout.parse_stage, "3.stage"),
    ],
)
def test_a_name_we_would_not_have_made_is_no_name(
    parse: Callable[[str], object], name: str
) -> None:
    assert parse(name) is None


@given(name=st.text(max_size=40))
def test_any_text_is_parsed_without_an_error(name: str) -> None:
    for parse in (
        layout.parse_topic,
        layout.parse_deleted_topic,
        layout.parse_segment,
        layout.parse_wal,
        layout.parse_group,
        layout.parse_snapshot,
        layout.parse_stage_dir,
        layout.parse_stage,
    ):
        parse(name)


def test_paths_lie_where_the_layout_says() -> None:
    path = f"{layout.topic_dir('/d', 10)}/{layout.segment_name(1, 'idx')}"
    assert path == "/d/topics/0000000A/seg-0000000000000001.idx"
    assert layout.deleted_topic_dir("/d", 10) == "/d/topics/0000000A.deleted"
    assert layout.wal_path(layout.group_dir("/d", ""), 1) == "/d/wal/wal-0000000000000001.log"
    assert layout.snapshot_path("/d", 7) == "/d/meta/snapshot.0007.bin"
    assert layout.stage_path("/d", app="topics", epoch=3, part=2, attempt=1) == (
        "/d/stages/814b3cb24f7b122e-3/2-1.stage"
    )


def test_a_quarantined_file_keeps_its_name_behind_the_moment() -> None:
    name = layout.quarantine_name("shard-00/CURRENT", now_ms=1_700_000_000_123)
    assert name == "20231114T221320.123Z-shard-00-CURRENT"


@pytest.mark.parametrize(
    ("topic_id", "shard"), [(0, 0), (1, 6), (2, 3), (3, 5), (4, 0), (5, 4), (10, 5)]
)
def test_topics_are_spread_over_eight_shards_for_ever_the_same(topic_id: int, shard: int) -> None:
    assert layout.shard_of(topic_id, 8) == shard
    assert layout.shard_of(topic_id, 1) == 0


@pytest.mark.parametrize("shard", [0, 7, 63, 100])
def test_a_shard_comes_back_from_its_group(shard: int) -> None:
    key = layout.group_key(shard, 128)
    assert layout.parse_group(key) == shard
    assert layout.group_dir("/d", key) == f"/d/wal/{key}"
