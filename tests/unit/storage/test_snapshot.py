"""Snapshots: valid as a whole or not at all."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest

from topics.core.facts import Match
from topics.storage.checksum import h64
from topics.storage.fs import File, RealFile, RealFs
from topics.storage.snapshots import file as snapshot
from topics.storage.snapshots.file import BadSnapshot, Snapshot, SnapshotWriter, read_snapshot
from topics.storage.snapshots.lines import (
    AppLine,
    BodyLine,
    GroupPosition,
    HeadLine,
    LedgerTotals,
    RouterLine,
    TopicLine,
    encode_line,
)

STORE_ID = bytes(range(16))
FS = RealFs()
HEAD = HeadLine(
    id=7,
    ts=1,
    generation=2,
    store_id=STORE_ID.hex(),
    next_topic_id=3,
    groups=(GroupPosition("", 1, 118, 0),),
    agnostic_lfn=0,
    last_lease_id=0,
)
ROUTER = RouterLine(
    name="r",
    source="a",
    dest="b",
    source_id=1,
    dest_id=2,
    preserve_node=True,
    preserve_tag=True,
    create_dest=True,
    allow_cycle=False,
    exactly_once=False,
    match=Match("x"),
    cursor=0,
    forwarded_total=0,
    dest_base=0,
)
APP = AppLine(name="etl", epoch=1, result=msgspec.Raw(b"{}"), last_use_ms=1)


def topic(number: int, *, deleted_runs: int = 0) -> TopicLine:
    return TopicLine(
        name=f"t{number}",
        id=number,
        epoch=number,
        seq_base=1,
        config=msgspec.Raw(b'{"durability":"disk"}'),
        lfn=0,
        base=1,
        head=0,
        reserved=256,
        cap_hi=0,
        ttl_hi=0,
        floor_ts=-1,
        earliest=1,
        delete_below=0,
        last_ts=0,
        count=0,
        bytes=0,
        ledger=LedgerTotals(0, 0, 0, 0, 0, 0),
        delete_version=0,
        deleted_runs=[(i, i) for i in range(deleted_runs)],
        exact_from=1,
        cursors=[],
        keys=[],
        runs=[],
        segs=[],
        dropped=[],
        active=None,
        queue=None,
    )


LINES: list[BodyLine] = [topic(1), topic(2), ROUTER, APP]


def written(path: Path, lines: list[BodyLine]) -> int:
    file = FS.open(str(path), write=True, create=True, truncate=True)
    try:
        return write_to(file, lines)
    finally:
        file.close()


def write_to(file: File, lines: list[BodyLine]) -> int:
    writer = SnapshotWriter(file, HEAD)
    for _ in writer.add(lines):
        pass
    finishing = writer.finish()
    while True:
        try:
            next(finishing)
        except StopIteration as done:
            return int(done.value)


def read(path: Path, store_id: bytes = STORE_ID) -> Snapshot:
    return read_snapshot(FS, str(path), store_id)


def refusal(path: Path, data: bytes, store_id: bytes = STORE_ID) -> str:
    path.write_bytes(data)
    with pytest.raises(BadSnapshot) as caught:
        read(path, store_id)
    return str(caught.value)


def signed(body: bytes, *, magic: bytes = b"SNP1", version: int = 4) -> bytes:
    """A file with a good length and checksum, whatever its body says."""
    head = struct.pack("<4sIQ", magic, version, len(body))
    return head + struct.pack("<Q", h64(head + body)) + body


HEAD_TEXT = encode_line(HEAD) + b"\n"
END_TEXT = b'{"line":"end","topics":0,"routers":0,"apps":0}\n'


def test_a_snapshot_reads_back_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "s"
    size = written(path, LINES)
    assert path.stat().st_size == size
    found = read(path)
    assert found == whole([topic(1), topic(2)], [ROUTER], [APP], found)
    assert found.size == size


def whole(
    topics: list[TopicLine], routers: list[RouterLine], apps: list[AppLine], found: Snapshot
) -> Snapshot:
    return Snapshot(HEAD, topics, routers, apps, None, found.size, found.checksum)


def test_ages_are_written_only_where_there_are_any(tmp_path: Path) -> None:
    plain, aged = topic(1), msgspec.structs.replace(topic(2), ages=[(4, 1000), (9, 5)])
    assert b"ages" not in encode_line(plain)
    written(tmp_path / "s", [plain, aged])
    assert [line.ages for line in read(tmp_path / "s").topics] == [[], [(4, 1000), (9, 5)]]


def test_an_empty_store_has_a_snapshot_too(tmp_path: Path) -> None:
    written(tmp_path / "s", [])
    assert (tmp_path / "s").read_bytes() == signed(HEAD_TEXT + END_TEXT)
    assert read(tmp_path / "s") == whole([], [], [], read(tmp_path / "s"))


def test_the_buffer_size_does_not_change_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[BodyLine] = [topic(i, deleted_runs=i) for i in range(30)]
    written(tmp_path / "whole", lines)
    whole = (tmp_path / "whole").read_bytes()
    for size in (1, 100, 1000, len(whole) - 30):
        monkeypatch.setattr(snapshot, "BUFFER_BYTES", size)
        written(tmp_path / "pieces", lines)
        assert (tmp_path / "pieces").read_bytes() == whole
        assert read(tmp_path / "pieces").topics == lines


def test_writing_never_takes_more_than_a_buffer_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BUFFER_BYTES", 1000)
    file = Counting(FS.open(str(tmp_path / "s"), write=True, create=True))
    write_to(file, [topic(i, deleted_runs=100) for i in range(5)])
    assert max(file.sizes) <= 1000
    assert read(tmp_path / "s").topics[4].deleted_runs[99] == (99, 99)
    file.close()


def test_very_many_lines_are_written_in_steps_and_a_long_one_is_a_step(tmp_path: Path) -> None:
    file = FS.open(str(tmp_path / "s"), write=True, create=True)
    writer = SnapshotWriter(file, HEAD)
    many = snapshot.STEP_LINES
    assert len(list(writer.add(topic(n) for n in range(1, 3 * many)))) == 2
    assert len(list(writer.add([topic(1), topic(2, deleted_runs=20_000), topic(3)]))) == 1
    file.close()


def test_the_header_is_the_last_thing_written(tmp_path: Path) -> None:
    file = Counting(FS.open(str(tmp_path / "s"), write=True, create=True))
    write_to(file, LINES)
    assert file.offsets[-1] == 0
    assert 0 not in file.offsets[:-1]
    file.close()


def test_a_body_that_reads_back_differently_gets_no_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BUFFER_BYTES", 500)
    file = Lying(FS.open(str(tmp_path / "s"), write=True, create=True))
    with pytest.raises(OSError, match="read back"):
        write_to(file, LINES)
    assert 0 not in file.offsets
    file.close()


def test_a_change_of_any_byte_makes_it_invalid(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written(path, [ROUTER])
    whole = path.read_bytes()
    for i in range(len(whole)):
        refusal(path, whole[:i] + bytes((whole[i] ^ 1,)) + whole[i + 1 :])


def test_a_cut_anywhere_makes_it_invalid(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written(path, [APP])
    whole = path.read_bytes()
    for size in range(len(whole)):
        refusal(path, whole[:size])
    refusal(path, whole + b"\n")


def test_a_snapshot_that_was_never_finished_is_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BUFFER_BYTES", 100)
    file = FS.open(str(tmp_path / "s"), write=True, create=True)
    assert list(SnapshotWriter(file, HEAD).add([topic(1)])) == []
    file.close()
    with pytest.raises(BadSnapshot, match="never finished"):
        read(tmp_path / "s")


def test_another_version_or_magic_is_invalid(tmp_path: Path) -> None:
    body = HEAD_TEXT + END_TEXT
    assert "version 6" in refusal(tmp_path / "s", signed(body, version=6))
    assert "not a snapshot" in refusal(tmp_path / "s", signed(body, magic=b"SNP2"))


def test_the_snapshot_of_another_store_is_invalid(tmp_path: Path) -> None:
    assert STORE_ID.hex() in refusal(tmp_path / "s", signed(HEAD_TEXT + END_TEXT), bytes(16))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        HEAD_TEXT,
        END_TEXT,
        END_TEXT + HEAD_TEXT,
        HEAD_TEXT + HEAD_TEXT + END_TEXT,
        HEAD_TEXT + END_TEXT + END_TEXT,
        HEAD_TEXT + END_TEXT + b"\n",
        HEAD_TEXT + b"\n" + END_TEXT,
        HEAD_TEXT + END_TEXT + encode_line(APP) + b"\n",
        (HEAD_TEXT + END_TEXT).removesuffix(b"\n"),
        HEAD_TEXT + END_TEXT.replace(b'"apps":0', b'"apps":1'),
        HEAD_TEXT + encode_line(APP) + b"\n" + END_TEXT,
        HEAD_TEXT + END_TEXT.replace(b',"apps":0', b""),
        HEAD_TEXT + END_TEXT.replace(b'"apps":0', b'"apps":"0"'),
        HEAD_TEXT + END_TEXT.replace(b'"apps":0', b'"apps":0,"more":0'),
        HEAD_TEXT + b'{"line":"novelty"}\n' + END_TEXT,
        HEAD_TEXT + b"{}\n" + END_TEXT,
        HEAD_TEXT + b'{"line":"\xff"}\n' + END_TEXT,
        HEAD_TEXT.replace(b'"generation":2,', b"") + END_TEXT,
        HEAD_TEXT.replace(b"[[", b"[[1,") + END_TEXT,
    ],
)
def test_a_body_with_a_line_missing_out_of_place_or_unknown_is_invalid(
    tmp_path: Path, body: bytes
) -> None:
    assert refusal(tmp_path / "s", signed(body))


def test_a_missing_file_is_no_bad_snapshot(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


def test_a_snapshot_that_shrinks_while_it_is_read_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    written(path, [topic(1)])
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size - 1])
    monkeypatch.setattr(RealFile, "size", lambda file: size)
    with pytest.raises(BadSnapshot, match="became shorter"):
        read(path)


class Counting:
    """A file that notes where and how much is written."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.sizes: list[int] = []
        self.offsets: list[int] = []

    def pread(self, size: int, offset: int) -> bytes:
        return self._file.pread(size, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        self.sizes.append(len(data))
        self.offsets.append(offset)
        return self._file.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def fallocate(self, size: int) -> None:
        self._file.fallocate(size)

    def fdatasync(self) -> None:
        self._file.fdatasync()

    def fsync(self) -> None:
        self._file.fsync()

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class Lying(Counting):
    """A file that gives back other bytes than it was given."""

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(len(super().pread(size, offset)))
