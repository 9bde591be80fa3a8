"""Stage files: whole or not at all, durable when written, listed without being read."""

import errno
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.batch import RecordBatch
from topics.storage import layout, stages
from topics.storage.checksum import h64
from topics.storage.stages import (
    BLOCK_BYTES,
    ROW_BYTES,
    BadStage,
    Stage,
    StagedRow,
    StageInfo,
    StageKey,
    body_bytes,
    by_topic,
    disk_bytes,
    list_stages,
    read_stage,
    remove_epoch,
    remove_leftovers,
    remove_stage,
    write_stage,
)
from topics.testing import CrashMode, FaultFs, NameMode, Op, PowerOff, SimDisk, WatchFs, stop_at

DIR = "/d"
KEY = StageKey("etl", epoch=3, part=0, attempt=1)
PATH = KEY.path(DIR)
ROWS = [
    StagedRow("orders", "n1", "eu:1", b'{"a":1}', b'{"m":2}'),
    StagedRow("audit", None, "", b"null"),
    StagedRow("orders", "", None, b'"\xc3\xa9"'),
]
OTHER_ROWS = [StagedRow("orders", None, None, b"7")]


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdirs(DIR)
    disk.settle()
    return disk


def staged(rows: list[StagedRow] = ROWS, key: StageKey = KEY) -> SimDisk:
    disk = new_disk()
    write_stage(disk, DIR, key, rows, now_ms=5)
    return disk


def test_a_stage_comes_back_as_it_was_written() -> None:
    disk = new_disk()
    info = write_stage(disk, DIR, KEY, iter(ROWS), now_ms=5)
    assert info == StageInfo(KEY, created_ms=5, records=3, nbytes=22, disk_bytes=BLOCK_BYTES)
    assert read_stage(disk, PATH, KEY) == Stage(info, ROWS)


def test_the_file_has_the_documented_layout() -> None:
    data = staged([StagedRow("t", "n", "g", b"1", b"{}")]).peek(PATH)
    body = bytes.fromhex("03 0100 0100 0100 01000000 02000000") + b"tng1{}"
    header = (
        b"STG1\1\0\0\0"
        + b"".join(n.to_bytes(8, "little") for n in (3, 0, 1, 5, 1, 3, len(body), h64(body)))
        + b"\3\0etl"
    )
    assert data == header + h64(header).to_bytes(8, "little") + body


def test_the_file_of_a_stage_with_an_owner_has_the_documented_layout() -> None:
    disk, owner = new_disk(), bytes(range(16))
    info = write_stage(disk, DIR, KEY, [], now_ms=5, owner=owner)
    header = (
        b"STG1\2\0\0\0"
        + b"".join(n.to_bytes(8, "little") for n in (3, 0, 1, 5, 0, 0, 0, h64(b"")))
        + b"\3\0etl"
        + owner
    )
    assert disk.peek(PATH) == header + h64(header).to_bytes(8, "little")
    assert info.owner == owner
    assert list_stages(disk, DIR).stages == [info]
    assert read_stage(disk, PATH, KEY) == Stage(info, [])


def test_a_stage_takes_the_blocks_of_its_file() -> None:
    row = StagedRow("t" * 255, "n" * 128, "g" * 256, b"1", b"{}")
    assert body_bytes(row) == ROW_BYTES + 255 + 128 + 256 + 1 + 2
    assert body_bytes(row._replace(node=None, tag=None)) == ROW_BYTES + 255 + 1 + 2
    disk = new_disk()
    info = write_stage(disk, DIR, KEY, [row] * 100, now_ms=5)
    assert info.nbytes == 300
    assert info.disk_bytes == disk_bytes(KEY, b"", 100 * body_bytes(row))
    assert 0 <= info.disk_bytes - len(disk.peek(PATH)) < BLOCK_BYTES
    assert list_stages(disk, DIR).stages == [info]


def test_a_file_that_fills_its_blocks_takes_no_other() -> None:
    header = len(staged([]).peek(PATH))
    assert disk_bytes(KEY, b"", BLOCK_BYTES - header) == BLOCK_BYTES
    assert disk_bytes(KEY, bytes(16), BLOCK_BYTES - header) == 2 * BLOCK_BYTES


def test_an_empty_stage_is_a_stage() -> None:
    disk = staged([])
    assert read_stage(disk, PATH, KEY).rows == []
    info = StageInfo(KEY, created_ms=5, records=0, nbytes=0, disk_bytes=BLOCK_BYTES)
    assert list_stages(disk, DIR).stages == [info]


names = st.none() | st.text(max_size=8)
rows_strategy = st.lists(
    st.builds(StagedRow, st.text(max_size=5), names, names, st.binary(), st.binary())
)


@given(rows=rows_strategy, buffer_bytes=st.sampled_from([1, 7, 64]))
def test_buffers_of_any_size_give_the_same_stage(rows: list[StagedRow], buffer_bytes: int) -> None:
    whole = staged(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "BUFFER_BYTES", buffer_bytes)
        pieced = staged(rows)
        assert read_stage(pieced, PATH, KEY).rows == rows
    assert pieced.peek(PATH) == whole.peek(PATH)


def test_writing_holds_one_buffer_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "BUFFER_BYTES", 100)
    disk = new_disk()
    sizes: list[int] = []

    def rows() -> Iterator[StagedRow]:
        for _ in range(10):
            yield StagedRow("t", None, None, b"x" * 90)
            sizes.append(disk.size(PATH + ".tmp"))

    write_stage(disk, DIR, KEY, rows(), now_ms=5)
    assert sizes == sorted(set(sizes)), "each record was on disk before the next was asked for"


def test_the_same_key_again_replaces_the_stage() -> None:
    disk = staged()
    write_stage(disk, DIR, KEY, OTHER_ROWS, now_ms=6)
    assert read_stage(disk, PATH, KEY).rows == OTHER_ROWS
    assert [info.nbytes for info in list_stages(disk, DIR).stages] == [1]


# Damage


def test_a_flip_of_any_byte_is_noticed() -> None:
    whole = staged()
    for offset in range(whole.size(PATH)):
        disk = whole.clone()
        disk.flip(PATH, offset)
        with pytest.raises(BadStage):
            read_stage(disk, PATH, KEY)


def test_a_file_cut_anywhere_or_too_long_is_noticed() -> None:
    whole = staged().peek(PATH)
    for data in [*(whole[:size] for size in range(len(whole))), whole + b"\0"]:
        disk = new_disk()
        disk.put(PATH, data)
        with pytest.raises(BadStage):
            read_stage(disk, PATH, KEY)


@pytest.mark.parametrize(
    "other",
    [
        KEY._replace(app="elt"),
        KEY._replace(epoch=4),
        KEY._replace(part=1),
        KEY._replace(attempt=0),
    ],
)
def test_a_sound_file_in_the_place_of_another_stage_is_bad(other: StageKey) -> None:
    disk = new_disk()
    disk.put(PATH, staged(key=other).peek(other.path(DIR)))
    with pytest.raises(BadStage):
        read_stage(disk, PATH, KEY)
    assert list_stages(disk, DIR).damaged == [PATH]


def test_an_absurd_length_is_refused_before_memory_is_filled() -> None:
    disk = staged()
    data_len_at = disk.peek(PATH).index(b"orders") - 8
    disk.poke(PATH, data_len_at, b"\xff\xff\xff\x7f")
    with pytest.raises(BadStage, match="longer than the log"):
        read_stage(disk, PATH, KEY)


def resigned(data: bytes, *, records: int, nbytes: int) -> bytes:
    """A whole stage file with other counts and every checksum right again."""
    start = 74 + len(KEY.app) + 8
    counts = (records, nbytes, len(data) - start, h64(data[start:]))
    head = data[:40] + b"".join(n.to_bytes(8, "little") for n in counts) + data[72 : start - 8]
    return head + h64(head).to_bytes(8, "little") + data[start:]


@pytest.mark.parametrize(("records", "nbytes"), [(2, 22), (4, 22), (3, 21)])
def test_counts_that_do_not_fit_the_records_are_noticed(records: int, nbytes: int) -> None:
    disk = staged()
    disk.put(PATH, resigned(disk.peek(PATH), records=3, nbytes=22))
    assert read_stage(disk, PATH, KEY).rows == ROWS
    disk.put(PATH, resigned(disk.peek(PATH), records=records, nbytes=nbytes))
    with pytest.raises(BadStage, match="counts other records"):
        read_stage(disk, PATH, KEY)


def test_a_name_that_is_no_text_is_noticed() -> None:
    disk = staged()
    disk.put(PATH, resigned(disk.peek(PATH).replace(b"audit", b"aud\xfft"), records=3, nbytes=22))
    with pytest.raises(BadStage, match="UTF-8"):
        read_stage(disk, PATH, KEY)


def test_a_file_that_shrinks_while_it_is_read_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = staged()
    take_rows = stages._take_rows

    def cut_then_take(buffer: bytes, rows: list[StagedRow]) -> bytes:
        disk.open(PATH, write=True).truncate(90)
        return take_rows(buffer, rows)

    monkeypatch.setattr(stages, "BUFFER_BYTES", 16)
    monkeypatch.setattr(stages, "_take_rows", cut_then_take)
    with pytest.raises(BadStage, match="shorter"):
        read_stage(disk, PATH, KEY)


def test_another_version_is_named() -> None:
    disk = staged()
    disk.poke(PATH, 4, b"\3")
    with pytest.raises(BadStage, match="version 3"):
        read_stage(disk, PATH, KEY)


def test_a_missing_stage_is_a_missing_file() -> None:
    with pytest.raises(FileNotFoundError):
        read_stage(new_disk(), PATH, KEY)


def test_a_disk_error_is_not_taken_for_damage() -> None:
    fs = FaultFs(staged())
    fs.fail("pread", errno.EIO, always=True)
    with pytest.raises(OSError, match="Input/output"):
        read_stage(fs, PATH, KEY)
    with pytest.raises(OSError, match="Input/output"):
        list_stages(fs, DIR)


# Crashes and errors while writing


@pytest.mark.parametrize("mode", ["none", "subset", "garble"])
@pytest.mark.parametrize("names", ["none", "prefix", "all"])
def test_a_written_stage_survives_a_power_cut(mode: CrashMode, names: NameMode) -> None:
    disk = new_disk()
    write_stage(WatchFs(disk.mount()), DIR, KEY, ROWS, now_ms=5)
    disk.crash(1, mode, names=names)
    assert read_stage(disk, PATH, KEY).rows == ROWS


def test_a_stage_in_a_directory_a_neighbour_has_not_synced_survives_too() -> None:
    disk = new_disk()
    disk.mkdirs(layout.stage_path(DIR, app="etl", epoch=3, part=9, attempt=9).rpartition("/")[0])
    write_stage(disk, DIR, KEY, ROWS, now_ms=5)
    disk.crash(mode="none", names="none")
    assert read_stage(disk, PATH, KEY).rows == ROWS


@pytest.mark.parametrize("mode", ["none", "all", "subset"])
def test_a_crash_at_every_call_leaves_the_old_stage_or_the_new(mode: CrashMode) -> None:
    """ST01, the stage itself."""
    call = 1
    while True:
        disk = staged(OTHER_ROWS)
        disk.settle()
        fs = FaultFs(disk.mount())
        fs.stop_before(call, partial(disk.crash, call, mode))
        try:
            write_stage(fs, DIR, KEY, ROWS, now_ms=6)
        except PowerOff:
            assert read_stage(disk, PATH, KEY).rows in (OTHER_ROWS, ROWS)
            remove_leftovers(disk, DIR)
            assert not disk.exists(PATH + ".tmp")
            call += 1
        else:
            break
    assert call > 5


def test_the_file_is_finished_at_its_crash_point() -> None:
    disk = new_disk()
    with stop_at("stage.file", disk.kill) as stop:
        write_stage(disk.mount(), DIR, KEY, ROWS, now_ms=5)
    assert stop.reached
    disk.rename(PATH + ".tmp", PATH)
    assert read_stage(disk, PATH, KEY).rows == ROWS


def test_a_full_disk_keeps_the_old_stage_and_no_half_file() -> None:
    disk = staged(OTHER_ROWS)
    fs = FaultFs(disk)
    fs.fail("pwrite", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        write_stage(fs, DIR, KEY, ROWS, now_ms=6)
    assert read_stage(disk, PATH, KEY).rows == OTHER_ROWS
    assert not disk.exists(PATH + ".tmp")


def test_rows_that_cannot_be_made_leave_no_half_file() -> None:
    def rows() -> Iterator[StagedRow]:
        yield ROWS[0]
        raise LookupError("no more")

    disk = new_disk()
    with pytest.raises(LookupError):
        write_stage(disk, DIR, KEY, rows(), now_ms=5)
    assert list_stages(disk, DIR).stages == []
    assert not disk.exists(PATH + ".tmp")


@pytest.mark.parametrize(
    ("op", "nth"), [("fsync", 1), ("rename", 1), ("sync_dir", 1), ("sync_dir", 2), ("sync_dir", 3)]
)
def test_a_stage_that_is_not_durable_is_not_reported(op: Op, nth: int) -> None:
    fs = FaultFs(new_disk())
    fs.fail(op, errno.EIO, nth=nth)
    with pytest.raises(OSError, match="Input/output"):
        write_stage(fs, DIR, KEY, ROWS, now_ms=5)


def test_short_writes_and_reads_are_completed() -> None:
    fs = FaultFs(new_disk())
    fs.fail("pwrite", "short", always=True, keep=3)
    fs.fail("pread", "short", always=True, keep=5)
    write_stage(fs, DIR, KEY, ROWS, now_ms=5)
    assert read_stage(fs, PATH, KEY).rows == ROWS
    assert [info.key for info in list_stages(fs, DIR).stages] == [KEY]


# A commit


def test_a_commit_takes_records_in_order_of_part_and_row_whatever_the_order_of_stages() -> None:
    disk = new_disk()
    keys = [StageKey("etl", 3, part, 0) for part in (10, 2)]
    for key in keys:
        rows = [StagedRow("t", None, None, b'"%d-%d"' % (key.part, row)) for row in (0, 1)]
        write_stage(disk, DIR, key, rows, now_ms=5)
    found = [read_stage(disk, key.path(DIR), key) for key in keys]
    expected = {"t": RecordBatch([b'"2-0"', b'"2-1"', b'"10-0"', b'"10-1"'])}
    assert by_topic(found) == by_topic(reversed(found)) == expected


def test_a_batch_has_only_the_columns_its_topic_uses() -> None:
    batches = by_topic([Stage(StageInfo(KEY, 5, 3, 22), ROWS)])
    assert batches == {
        "orders": RecordBatch(
            [b'{"a":1}', b'"\xc3\xa9"'],
            metas=[b'{"m":2}', b""],
            tags=["eu:1", None],
            nodes=["n1", ""],
        ),
        "audit": RecordBatch([b"null"], tags=[""]),
    }


def test_no_stages_are_no_batches() -> None:
    assert by_topic([]) == {}


# Listing and removing


def test_a_listing_tells_app_age_and_size_without_reading_records() -> None:
    """ST04: after a restart the cap and the time to live go on from here."""
    disk = new_disk()
    keys = [
        StageKey("zeta", 1, 0, 0),
        StageKey("etl", 10, 0, 0),
        StageKey("etl", 2, 11, 0),
        StageKey("etl", 2, 3, 1),
    ]
    infos = [write_stage(disk, DIR, key, ROWS[: i + 1], now_ms=i) for i, key in enumerate(keys[:3])]
    infos.append(write_stage(disk, DIR, keys[3], [], now_ms=9))
    with_bad_records = keys[2].path(DIR)
    disk.flip(with_bad_records, disk.size(with_bad_records) - 1)
    listing = list_stages(disk, DIR)
    assert listing.stages == sorted(infos, key=lambda info: info.key)
    assert listing.damaged == []


def test_a_listing_names_damaged_files_and_passes_over_foreign_ones() -> None:
    disk = staged()
    damaged = StageKey("etl", 3, 7, 0).path(DIR)
    disk.put(damaged, b"STG1")
    disk.put(f"{DIR}/stages/README", b"")
    disk.put(PATH + ".tmp", b"half")
    disk.put(PATH.replace("0-1.stage", "00-1.stage"), b"not a name of ours")
    listing = list_stages(disk, DIR)
    assert [info.key for info in listing.stages] == [KEY]
    assert listing.damaged == [damaged]


def test_a_directory_without_stages_lists_nothing() -> None:
    listing = list_stages(new_disk(), DIR)
    assert (listing.stages, listing.damaged) == ([], [])


def test_an_epoch_goes_as_a_whole_and_alone() -> None:
    disk = new_disk()
    kept = [KEY._replace(epoch=4), KEY._replace(app="other")]
    for key in [KEY, KEY._replace(part=5), *kept]:
        write_stage(disk, DIR, key, ROWS, now_ms=5)
    disk.put(KEY._replace(part=6).path(DIR), b"damaged")
    disk.put(KEY._replace(part=7).path(DIR) + ".tmp", b"unfinished")
    remove_epoch(disk, DIR, "etl", 3)
    assert not disk.exists(PATH.rpartition("/")[0])
    assert {info.key for info in list_stages(disk, DIR).stages} == set(kept)
    remove_epoch(disk, DIR, "etl", 3)


def test_a_stage_goes_alone_and_the_last_takes_its_directory() -> None:
    disk = staged()
    other = KEY._replace(attempt=2)
    write_stage(disk, DIR, other, ROWS, now_ms=5)
    remove_stage(disk, DIR, KEY)
    assert [info.key for info in list_stages(disk, DIR).stages] == [other]
    remove_stage(disk, DIR, other)
    assert disk.listdir(f"{DIR}/stages") == []
    remove_stage(disk, DIR, other)


def test_leftovers_of_a_crash_go_and_stages_stay() -> None:
    disk = staged()
    unfinished = StageKey("etl", 8, 0, 0).path(DIR) + ".tmp"
    disk.put(unfinished, b"half")
    remove_leftovers(disk, DIR)
    assert not disk.exists(unfinished.rpartition("/")[0])
    assert read_stage(disk, PATH, KEY).rows == ROWS
    remove_leftovers(new_disk(), DIR)


def test_discarding_an_epoch_leaves_files_that_are_not_ours() -> None:
    disk = staged()
    foreign = PATH.rsplit("/", 1)[0] + "/notes"
    disk.put(foreign, b"mine")
    remove_epoch(disk, DIR, KEY.app, KEY.epoch)
    assert disk.peek(foreign) == b"mine"
    assert not disk.exists(PATH)
