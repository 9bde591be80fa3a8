"""Frames become facts: runs of records, and the same facts from both collectors."""

from __future__ import annotations

from array import array
from itertools import accumulate

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.batch import RecordBatch
from topics.core.facts import Appended, Beacon, Deleted, Fact, HeadReserved
from topics.storage.checksum import h64
from topics.storage.frames.append import encode_append
from topics.storage.frames.buffer import encode
from topics.storage.frames.header import ForeignFrame
from topics.storage.sources import location
from topics.storage.wal.collect import Collector
from topics.storage.wal.collect_bulk import BulkCollector

MARK = 77
SOURCE = 5
NOW = 1_700_000_000_000
COLLECTORS = [Collector, BulkCollector]


def append(topic: int, seq: int, *, tag: str | None = None, node: str | None = None) -> bytes:
    batch = RecordBatch([b"%d" % seq], tags=[tag], nodes=[node]) if tag or node else None
    plain = RecordBatch([b"%d" % seq])
    return encode_append(topic, seq, NOW + seq, batch or plain, durable=False)[0]


def reserve(topic: int) -> bytes:
    return encode(HeadReserved(topic_id=topic, ts=NOW, ceiling=9))


def beacon(mark: int = MARK) -> bytes:
    return encode(Beacon(ts=0, store_mark=mark, file_lfn=1, offset=118))


def collect(
    kind: type[Collector], frames: list[bytes], *, chunk: int = 1000
) -> list[tuple[int, Fact]]:
    collector = kind(MARK)
    offsets = list(accumulate(map(len, frames), initial=0))[:-1]
    buf = b"".join(frames)
    for start in range(0, len(offsets), chunk):
        collector.add(buf, offsets[start : start + chunk], start + 1)
    return collector.entries(SOURCE)


def runs(entries: list[tuple[int, Fact]]) -> list[tuple[int, int, int, int]]:
    return [
        (lfn, fact.topic_id, fact.first_seq, fact.count)
        for lfn, fact in entries
        if isinstance(fact, Appended)
    ]


@pytest.mark.parametrize("kind", COLLECTORS)
def test_records_of_a_topic_become_one_run_across_other_topics(kind: type[Collector]) -> None:
    frames = [append(1, 1), append(2, 5), append(1, 2), append(2, 6), append(1, 3)]
    assert runs(collect(kind, frames)) == [(5, 1, 1, 3), (4, 2, 5, 2)]


@pytest.mark.parametrize("kind", COLLECTORS)
def test_another_frame_of_the_topic_ends_its_run(kind: type[Collector]) -> None:
    frames = [append(1, 1), append(2, 1), reserve(1), append(1, 2), append(2, 2)]
    entries = collect(kind, frames)
    assert runs(entries) == [(1, 1, 1, 1), (5, 2, 1, 2), (4, 1, 2, 1)]
    assert [type(fact) for _, fact in entries] == [Appended, Appended, HeadReserved, Appended]


@pytest.mark.parametrize("kind", COLLECTORS)
@pytest.mark.parametrize("second", [1, 3, 0])
def test_seqs_that_do_not_follow_each_other_end_a_run(kind: type[Collector], second: int) -> None:
    assert runs(collect(kind, [append(1, 1), append(1, second)])) == [
        (1, 1, 1, 1),
        (2, 1, second, 1),
    ]


@pytest.mark.parametrize("kind", COLLECTORS)
def test_columns_tell_where_each_record_lies(kind: type[Collector]) -> None:
    frames = [append(1, 1), beacon(), append(1, 2, tag="t", node="me"), append(1, 3)]
    ((lfn, run),) = collect(kind, frames)
    assert isinstance(run, Appended)
    assert lfn == 4
    assert run.base == location(SOURCE, 0)
    first, _, second, third = (len(frame) for frame in frames)
    assert run.offsets == array("I", [0, first + 63, first + 63 + second])
    assert run.lengths == array("I", [first, second, third])
    assert run.times == array("Q", [NOW + 1, NOW + 2, NOW + 3])
    assert run.name_lengths == array("H", [0, 3, 0])
    assert run.tags == [None, "t", None]


@pytest.mark.parametrize("kind", COLLECTORS)
def test_beacons_are_no_entries_but_the_last_is_remembered(kind: type[Collector]) -> None:
    collector = kind(MARK)
    frames = [beacon(), append(1, 1), beacon(), append(1, 2)]
    offsets = list(accumulate(map(len, frames), initial=0))
    collector.add(b"".join(frames), offsets[:-1], 1)
    assert collector.last_beacon == offsets[2]
    assert len(collector.entries(SOURCE)) == 1


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_beacon_of_another_store_is_foreign(kind: type[Collector]) -> None:
    with pytest.raises(ForeignFrame):
        collect(kind, [beacon(mark=MARK + 1)])


tags = st.one_of(st.none(), st.sampled_from(["a", "ä", ""]))
nodes = st.one_of(st.none(), st.just("n1"))


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Logs of a few topics, in order for the most part."""
    seqs = {1: 0, 2: 0, 3: 10}
    frames: list[bytes] = []
    for _ in range(draw(st.integers(0, 40))):
        topic = draw(st.sampled_from(sorted(seqs)))
        step = draw(
            st.sampled_from(["append"] * 6 + ["skip", "repeat", "reserve", "delete", "mark"])
        )
        if step in ("append", "skip", "repeat"):
            seqs[topic] += {"append": 1, "skip": 2, "repeat": 0}[step]
            frames.append(append(topic, seqs[topic], tag=draw(tags), node=draw(nodes)))
        elif step == "mark":
            frames.append(beacon())
        elif step == "reserve":
            frames.append(reserve(topic))
        else:
            frames.append(encode(Deleted(topic_id=topic, ts=NOW, seqs=(1,))))
    return frames


@given(frames=logs(), chunk=st.integers(1, 50))
def test_both_collectors_find_the_same_facts(frames: list[bytes], chunk: int) -> None:
    plain = collect(Collector, frames)
    assert plain == collect(BulkCollector, frames, chunk=chunk)
    assert plain == collect(Collector, frames, chunk=chunk)
    assert sorted(lfn for lfn, _ in plain) == sorted({lfn for lfn, _ in plain})


@given(frames=logs(), place=st.integers(4, 200), value=st.binary(min_size=1, max_size=2))
def test_both_collectors_refuse_the_same_frames(
    frames: list[bytes], place: int, value: bytes
) -> None:
    """Checksums are somebody else's: any contents may come with a good one."""
    if not frames:
        return
    victim = bytearray(frames[-1])
    at = 4 + place % (len(victim) - 12)
    victim[at : at + len(value)] = value
    frames = [*frames[:-1], bytes(victim[: len(frames[-1])])]
    assert outcome(Collector, frames) == outcome(BulkCollector, frames)


def outcome(kind: type[Collector], frames: list[bytes]) -> str:
    try:
        return msgspec.json.encode([str(entry) for entry in collect(kind, frames)]).decode()
    except ForeignFrame as error:
        return f"foreign at {error.offset}"


@pytest.mark.parametrize("kind", COLLECTORS)
def test_names_that_are_no_text_are_not_understood(kind: type[Collector]) -> None:
    frame = bytearray(append(1, 1, tag="\u00e9"))
    at = frame.index("\u00e9".encode())
    frame[at : at + 2] = b"\xff\xff"
    frame[-8:] = h64(frame[4:-8]).to_bytes(8, "little")
    with pytest.raises(ForeignFrame) as refusal:
        collect(kind, [append(1, 1), bytes(frame)])
    assert refusal.value.offset == len(append(1, 1))


@pytest.mark.parametrize("kind", COLLECTORS)
def test_beacons_alone_are_no_facts_but_the_last_is_known(kind: type[Collector]) -> None:
    collector = kind(MARK)
    collector.add(beacon() + beacon(), [0, len(beacon())], 1)
    assert collector.entries(SOURCE) == []
    assert collector.last_beacon == len(beacon())
