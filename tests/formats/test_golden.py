"""Golden files pin every stored format: what is built today must be the bytes on disk since ever.

A test that fails here means that stored data would be read wrong. A format is changed by giving it
a new version, not by replacing its golden file.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from topics.batch import RecordBatch
from topics.core.facts import (
    Appended,
    Beacon,
    CheckpointEntry,
    CheckpointMarked,
    ClosedCleanly,
    ConfigUpdated,
    CursorMoved,
    Deleted,
    Evicted,
    Fact,
    FileHeader,
    Forwarded,
    HeadReserved,
    KeyRemembered,
    LeaseChanged,
    Match,
    RouterCreated,
    RouterDeleted,
    SeqSkipped,
    StageCommitted,
    TierFlipped,
    TopicCreated,
    TopicDeleted,
)
from topics.storage import erasures, identity
from topics.storage.backup.manifest import (
    BackupWriter,
    LogCopy,
    Point,
    ReceiptCopy,
    Ref,
    Root,
    SegmentCopy,
    SegmentPiece,
    SnapshotCopy,
    Span,
    decode_root,
    decode_segments,
    encode_root,
    encode_segments,
)
from topics.storage.erasures import Begun, ByteScan, Erasure, ErasureScope, Rewritten, TagHash
from topics.storage.frames import buffer as frames
from topics.storage.frames.append import appended_run, encode_append
from topics.storage.frames.buffer import CleanEnd, Frame, Unreadable
from topics.storage.frames.header import HEADER
from topics.storage.frames.payloads import FrameType
from topics.storage.fs import RealFs
from topics.storage.segments import codec, tagfile
from topics.storage.segments.segment import Segment
from topics.storage.snapshots.chain import read_chain
from topics.storage.snapshots.file import SnapshotWriter, read_snapshot
from topics.storage.snapshots.lines import (
    AppLine,
    GoneLine,
    GroupPosition,
    HeadLine,
    LedgerTotals,
    PartLine,
    QueueState,
    RouterLine,
    TopicLine,
    decode_line,
    encode_line,
)
from topics.storage.stages import StagedRow, StageKey, list_stages, read_stage, write_stage

GOLDEN = Path(__file__).parent / "golden"
TS = 1_700_000_000_000
STORE_ID = bytes(range(16))

FACTS: Mapping[str, Fact] = {
    "02-topic-create": TopicCreated(10, TS, "orders", b'{"durability":"fsync"}', 10, 1),
    "03-topic-delete": TopicDeleted(10, TS, "orders", 10),
    "04-router-create": RouterCreated(
        TS, "a->b", "a", "b", 1, 2, True, False, True, False, True, Match("t/", True), 3, 4
    ),
    "05-router-delete": RouterDeleted(TS, "a->b", 1, 2),
    "06-delete-seqs": Deleted(10, TS, seqs=(5, 7, 1 << 40)),
    "06-delete-selector": Deleted(10, TS, before=9, match=Match("tä"), bound=12),
    "07-evict-watermark": Evicted(10, TS, cap_hi=5, earliest=9, ttl_hi=7),
    "08-beacon": Beacon(TS, identity.store_mark(STORE_ID), file_lfn=1024, offset=65_536),
    "08-checkpoint": CheckpointMarked(
        TS, 7, (CheckpointEntry(10, 99, 5, 7, 9, 1, 4096, 1980), CheckpointEntry(*range(8)))
    ),
    "08-closed": ClosedCleanly(TS, ((10, 99), (11, 0))),
    "09-config-update": ConfigUpdated(10, TS, "orders", b'{"cap_records":5}', 10, 1),
    "10-lease": LeaseChanged(10, 5, TS, LeaseChanged.EXTENDED, 77, TS + 30_000, 3, "wörker"),
    "11-head-watermark": HeadReserved(10, TS, 256),
    "12-file-header": FileHeader(
        TS, identity.WAL_VERSION, 3, 8, 5, 1024, 512, 9999, STORE_ID, bytes(range(16, 32))
    ),
    "13-tier-flip": TierFlipped(10, TS, 1, TierFlipped.COLD, 4096, 1980, 1 << 63, 42),
    "14-seq-skip": SeqSkipped(10, TS, 100, 355, SeqSkipped.POWER_LOSS),
    "15-cursor": CursorMoved(10, TS, "billing", 42, True),
    "16-forward": Forwarded(
        11,
        TS,
        "a->b",
        10,
        False,
        True,
        False,
        True,
        False,
        dest_first=7,
        cursor=12,
        forwarded_total=9,
        runs=((5, 3, False), (8, 2, True)),
    ),
    "17-stage-commit": StageCommitted(
        TS, "etl", 3, ((0, 1), (1, 0)), ((10, 100, 5),), b'{"rows":5}'
    ),
    "17-stage-commit-owned": StageCommitted(
        TS, "etl", 3, ((0, 1),), ((10, 100, 5),), b'{"rows":5}', bytes(range(16))
    ),
    "18-key": KeyRemembered(10, TS, "order-1", 100, 5, 104),
}


def append_frames() -> tuple[bytes, Appended]:
    return encode_append(10, 1, TS, RecordBatch([b'{"a":1}'], None, ["t"], ["n1"]), durable=True)


def run_of_frames() -> tuple[bytes, Appended]:
    batch = RecordBatch(
        [b"1", b'"zwei"', b"[3]", b"null"],
        [b"", b'{"m":1}', b"", b""],
        ["x", None, "", "y/z"],
        [None, "node", None, None],
    )
    return encode_append(10, 5, TS, batch, durable=False, hops=2)


def data_file() -> bytes:
    """Records 5 to 8, record 6 deleted, and record 10: seq 9 was dead before it came here."""
    run, fact = run_of_frames()
    pieces = [run[at : at + size] for at, size in zip(fact.offsets, fact.lengths, strict=True)]
    last, _ = encode_append(10, 10, TS + 5, RecordBatch([b"{}"]), durable=True)
    data = bytearray(codec.pack_records([*pieces, b"", last]))
    data[fact.offsets[2] + 1] = codec.DEAD  # behind record 6; record 5 has such a byte too
    return bytes(data)


def topic_line() -> TopicLine:
    return TopicLine(
        name="orders",
        id=10,
        epoch=10,
        seq_base=1,
        config=msgspec.Raw(b'{"durability":"fsync"}'),
        lfn=1030,
        base=5,
        head=104,
        reserved=256,
        cap_hi=4,
        ttl_hi=3,
        floor_ts=TS - 1,
        earliest=5,
        delete_below=2,
        last_ts=TS,
        count=97,
        bytes=1940,
        ledger=LedgerTotals(1, 4, 0, 1, 1, 0),
        delete_version=(5 << 32) + 1,
        deleted_runs=[(6, 6)],
        exact_from=1,
        cursors=[("billing", 42, TS)],
        keys=[("order-1", 100, 5, 104, TS)],
        runs=[(50, 50, 2), (51, 51, 1)],
        segs=[Segment(5, 49, 4096, 900, (1 << 64) - 1, 1, TS - 9, TS - 5)],
        dropped=[(1, 4)],
        active=(52, 104, 2048, 1060),
        queue=QueueState(
            claim_cursor=60,
            deliveries=[(55, 2), (56, 1)],
            leases=[(55, 77, "w1", TS + 30_000)],
            delayed=[(56, TS + 1000)],
            dead_lettered=3,
        ),
    )


def head_line() -> HeadLine:
    return HeadLine(
        id=7,
        ts=TS,
        generation=5,
        store_id=STORE_ID.hex(),
        next_topic_id=12,
        groups=(GroupPosition("", 1024, 65_536, 1030), GroupPosition("shard-01", 1, 118, 0)),
        agnostic_lfn=1029,
        last_lease_id=77,
    )


ROUTER_LINE = RouterLine(
    name="a->b",
    source="a",
    dest="b",
    source_id=10,
    dest_id=11,
    preserve_node=True,
    preserve_tag=False,
    create_dest=True,
    allow_cycle=False,
    exactly_once=True,
    match=Match("t/", True),
    cursor=12,
    forwarded_total=9,
    dest_base=1,
)
APP_LINE = AppLine(name="etl", epoch=3, result=msgspec.Raw(b'{"rows":5}'), last_use_ms=TS)
OWNED_APP_LINE = msgspec.structs.replace(APP_LINE, owner=bytes(range(16)).hex())

STAGE_KEY = StageKey("etl", 3, 0, 1)
STAGE_ROWS = [
    StagedRow("orders", "n1", "", b'{"a":1}', b"[1]"),
    StagedRow("audit", None, None, b"2"),
]
OWNERS = {"stage.bin": b"", "stage-owned.bin": bytes(range(16))}


def stage_file(root: Path, owner: bytes) -> bytes:
    write_stage(RealFs(), str(root), STAGE_KEY, STAGE_ROWS, now_ms=TS, owner=owner)
    return Path(STAGE_KEY.path(str(root))).read_bytes()


def snapshot_file(path: Path) -> bytes:
    file = RealFs().open(str(path), write=True, create=True)
    writer = SnapshotWriter(file, head_line())
    assert list(writer.add([topic_line(), ROUTER_LINE, APP_LINE])) == []
    for _ in writer.finish():
        pass
    file.close()
    return path.read_bytes()


def part_line() -> PartLine:
    return PartLine(
        **{**msgspec.structs.asdict(head_line()), "id": 9},
        after=(7, f"{int.from_bytes(golden('snapshot.bin')[16:24], 'little'):016x}"),
    )


GONE_LINE = GoneLine(topics=[11], routers=["c->d"], apps=["old"])


def part_file(path: Path) -> bytes:
    file = RealFs().open(str(path), write=True, create=True)
    writer = SnapshotWriter(file, part_line(), GONE_LINE)
    assert list(writer.add([topic_line(), ROUTER_LINE, APP_LINE])) == []
    for _ in writer.finish():
        pass
    file.close()
    return path.read_bytes()


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


GOLDEN_FRAMES = ["frame-01-append.bin", *(f"frame-{name}.bin" for name in FACTS)]


def test_every_frame_type_has_a_golden_file() -> None:
    types = {int(name.split("-")[1]) for name in GOLDEN_FRAMES}
    assert types == set(FrameType)
    assert {path.name for path in GOLDEN.glob("frame-*")} == {*GOLDEN_FRAMES, "frame-01-run.bin"}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_is_still_written_as_it_always_was(name: str) -> None:
    assert frames.encode(FACTS[name], durable=True) == golden(f"frame-{name}.bin")


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_is_still_read_from_what_was_written(name: str) -> None:
    data = golden(f"frame-{name}.bin")
    frame = frames.decode_at(data, 0, len(data))
    assert isinstance(frame, Frame)
    assert frame.end == len(data)
    assert frame.is_durable
    assert frame.fact(data) == FACTS[name]


def test_a_record_is_still_written_as_it_always_was() -> None:
    data, fact = append_frames()
    assert data == golden("frame-01-append.bin")
    assert data.hex() == (
        "3800000001070a0000000000000001000000000000000068e5cf8b010000020001000b0000006e3174070000"
        "007b2261223a317dfdd69c41a2ee0a3a"
    )
    frame = frames.decode_at(data, 0, len(data))
    assert isinstance(frame, Frame)
    assert frame.fact(data) == fact


def test_a_write_of_many_records_is_still_written_as_it_always_was() -> None:
    data, fact = run_of_frames()
    assert data == golden("frame-01-run.bin")
    offsets = frames.walk(data, 0, len(data)).offsets
    headers = [HEADER.unpack_from(data, at) for at in offsets]
    assert appended_run(data, offsets, headers) == fact


@pytest.mark.parametrize("name", GOLDEN_FRAMES)
def test_a_flipped_bit_in_any_byte_of_a_frame_is_noticed(name: str) -> None:
    data = golden(name)
    for i in range(len(data)):
        for bit in (1, 0x80):
            damaged = data[:i] + bytes((data[i] ^ bit,)) + data[i + 1 :]
            assert isinstance(frames.decode_at(damaged, 0, len(damaged)), Unreadable)
            assert frames.walk(damaged, 0, len(damaged)).offsets == []


@pytest.mark.parametrize("name", GOLDEN_FRAMES)
def test_a_frame_cut_anywhere_is_unreadable(name: str) -> None:
    data = golden(name)
    for size in range(1, len(data)):
        assert isinstance(frames.decode_at(data, 0, size), Unreadable)
    assert isinstance(frames.decode_at(data, 0, 0), CleanEnd)


def test_segment_files_are_still_written_as_they_always_were() -> None:
    data = data_file()
    assert data == golden("segment.data")
    idx = codec.rebuild_idx(data, topic_id=10, first_seq=5)
    assert bytes(idx.raw) == golden("segment.idx")
    assert [idx.is_dead(i) for i in range(6)] == [False, True, False, False, True, False]
    assert [idx.is_hole(i) for i in range(6)] == [False, False, False, False, True, False]
    assert codec.is_sound(idx, len(data))


def test_the_tag_file_is_still_written_as_it_always_was() -> None:
    postings = {"x": array("Q", (5,)), "": array("Q", (7,)), "y/z": array("Q", (8, 1 << 40))}
    assert tagfile.encode(postings) == golden("segment.tag")
    assert dict(tagfile.decode(golden("segment.tag"))) == postings


def test_the_snapshot_is_still_written_as_it_always_was(tmp_path: Path) -> None:
    assert snapshot_file(tmp_path / "s") == golden("snapshot.bin")


def test_the_snapshot_is_still_read_from_what_was_written() -> None:
    snapshot = read_snapshot(RealFs(), str(GOLDEN / "snapshot.bin"), STORE_ID)
    assert snapshot.head == head_line()
    assert snapshot.topics == [topic_line()]
    assert snapshot.routers == [ROUTER_LINE]
    assert snapshot.apps == [APP_LINE]


def test_an_app_with_an_owner_is_still_written_as_it_always_was() -> None:
    assert encode_line(OWNED_APP_LINE) == golden("snapshot-app-owned.json")
    assert decode_line(golden("snapshot-app-owned.json")) == OWNED_APP_LINE


@pytest.mark.parametrize("name", OWNERS)
def test_a_stage_is_still_written_as_it_always_was(name: str, tmp_path: Path) -> None:
    assert stage_file(tmp_path, OWNERS[name]) == golden(name)


@pytest.mark.parametrize("name", OWNERS)
def test_a_stage_is_still_read_from_what_was_written(name: str, tmp_path: Path) -> None:
    path = Path(STAGE_KEY.path(str(tmp_path)))
    path.parent.mkdir(parents=True)
    path.write_bytes(golden(name))
    stage = read_stage(RealFs(), str(path), STAGE_KEY)
    assert (stage.rows, stage.info.owner) == (STAGE_ROWS, OWNERS[name])
    assert list_stages(RealFs(), str(tmp_path)).stages == [stage.info]


def test_the_part_of_a_snapshot_is_still_written_as_it_always_was(tmp_path: Path) -> None:
    assert part_file(tmp_path / "s") == golden("snapshot-part.bin")


def test_the_part_of_a_snapshot_is_still_read_from_what_was_written(tmp_path: Path) -> None:
    meta = tmp_path / "meta"
    meta.mkdir()
    (meta / "snapshot.0007.bin").write_bytes(golden("snapshot.bin"))
    (meta / "snapshot.0009.bin").write_bytes(golden("snapshot-part.bin"))
    chain = read_chain(RealFs(), str(tmp_path), 9, STORE_ID, present=[7, 9])
    assert chain.numbers == [7, 9]
    assert chain.snapshot.head == part_line()
    assert chain.snapshot.gone == GONE_LINE
    assert chain.snapshot.topics == [topic_line()]
    assert chain.snapshot.routers == [ROUTER_LINE]
    assert chain.snapshot.apps == [APP_LINE]


def test_identity_files_are_still_written_as_they_always_were() -> None:
    store = identity.new_format(STORE_ID, created_ms=TS)
    assert identity.encode_format(store) == golden("FORMAT")
    assert identity.decode_format(golden("FORMAT"), file="FORMAT") == store
    parted = identity.with_parts(store)
    assert identity.encode_format(parted) == golden("FORMAT-parts")
    assert identity.decode_format(golden("FORMAT-parts"), file="FORMAT") == parted
    assert identity.encode_current(1024, 5) == golden("CURRENT")
    assert identity.encode_cold_marker(STORE_ID) == golden("topics-cold")


ERASURE_BEGUN = Begun(
    number=1,
    store_id=STORE_ID.hex(),
    topic="orders",
    topic_id=10,
    scope=ErasureScope(
        before_seq=9, tag=TagHash.of("user-7/", salt=bytes(range(16)), is_prefix=True)
    ),
    begun_ms=TS,
    deleted=2,
    bound=12,
    delete_version=4,
    erased=[(3, 5), (8, 8)],
)
ERASURE = Erasure(
    **msgspec.structs.asdict(ERASURE_BEGUN),
    previous=erasures.NO_RECEIPT,
    ended_ms=TS + 9,
    rewritten=[Rewritten("topics/0000000A/seg-0000000000000001.data", 4, 200)],
    removed=["wal/wal-0000000000000001.log"],
    scan=ByteScan(probes=3, files=7, bytes=4096, found=[], unread=[]),
    unreached=["backups that are not registered"],
)


BACKUP_ROOT = Root(
    format=1,
    store_id="00112233445566778899aabbccddeeff",
    lineage="",
    format_file="{}\n",
    version=3,
    writer=BackupWriter("0123456789abcdef", "host", 17, TS, TS + 1, is_done=True),
    points=(
        Point(
            number=7,
            ts=TS,
            positions=(GroupPosition("shard-00", 1, 118, 9),),
            chain=(SnapshotCopy(7, Ref("objects/0123456789abcdef/00000001", 24, "00" * 16)),),
            dead=Ref("objects/0123456789abcdef/00000002", 2, "11" * 16),
            records=5,
            bytes=300,
        ),
    ),
    log=(LogCopy("shard-00", 1, 1, 0, 0, 500, (Ref("objects/x/1", 500, "22" * 16),)),),
    spans=(Span(TS, TS + 1),),
    is_open=True,
    segments=Ref("objects/x/2", 80, "33" * 16),
    erasures=(ReceiptCopy(1, Ref("objects/x/3", 90, "44" * 16)),),
)
BACKUP_SEGMENTS = [
    SegmentCopy(
        10, 5, 7, None, 300, 120, "0123456789abcdef", (SegmentPiece(Ref("a", 420, "55"), 300, 120),)
    ),
    SegmentCopy(10, 1, 3, 7, 9, 20, "00", ()),
]


def test_the_lists_of_a_backup_are_still_written_as_they_always_were() -> None:
    assert encode_root(BACKUP_ROOT) == golden("backup-root.json")
    assert zlib.decompress(encode_segments(BACKUP_SEGMENTS)) == golden("backup-segments.json")


def test_the_lists_of_a_backup_are_still_read_from_what_was_written() -> None:
    assert decode_root(golden("backup-root.json")) == BACKUP_ROOT
    assert decode_segments(zlib.compress(golden("backup-segments.json"))) == BACKUP_SEGMENTS


def test_the_ledger_of_erasures_is_still_written_as_it_always_was() -> None:
    assert erasures.encode(ERASURE_BEGUN) == golden("erasure.begun")
    assert erasures.encode(ERASURE) == golden("erasure.json")


def test_the_ledger_of_erasures_is_still_read_from_what_was_written() -> None:
    assert erasures.verified([(1, golden("erasure.json"))]) == [ERASURE]
