"""Which frames behind damage are believed."""

from topics.batch import RecordBatch
from topics.core.facts import Beacon
from topics.storage.checksum import h64
from topics.storage.frames.append import encode_append
from topics.storage.frames.buffer import Frame, decode_at, encode
from topics.storage.frames.header import DATA_START
from topics.storage.wal import salvage
from topics.storage.wal.salvage import resync, stated_position

MARK = 77
JUNK = b"\xff" * 30


def record(seq: int) -> bytes:
    return encode_append(1, seq, 1, RecordBatch([b"%d" % seq]), durable=True)[0]


def beacon(mark: int = MARK) -> bytes:
    return encode(Beacon(ts=0, store_mark=mark, file_lfn=1, offset=118))


def found(*pieces: bytes) -> int | None:
    buf = b"".join(pieces)
    return resync(buf, 0, len(buf), store_mark=MARK)


def test_frames_that_run_to_a_beacon_of_this_store_are_believed() -> None:
    assert found(JUNK, record(1), record(2), beacon(), JUNK) == len(JUNK)
    assert found(JUNK, record(1), beacon(mark=78), JUNK) is None


def test_frames_that_run_to_the_clean_end_are_believed() -> None:
    assert found(JUNK, record(1), record(2), bytes(20)) == len(JUNK)
    assert found(JUNK, bytes(200)) is None, "zeros alone say nothing"


def test_frames_that_run_into_other_damage_are_not_believed() -> None:
    assert found(JUNK, record(1), record(2), JUNK) is None
    behind = len(JUNK + record(1) + JUNK)
    assert found(JUNK, record(1), JUNK, record(2), beacon()) == behind


def test_frames_that_run_into_rejected_ones_are_rejected_at_once() -> None:
    buf = record(1) + record(2) + beacon()
    rejected = {len(record(1))}
    assert not salvage._is_sound(buf, 0, len(buf), MARK, rejected)
    assert rejected == {0, len(record(1))}


def test_a_mark_of_a_beacons_shape_that_makes_no_sense_states_nothing() -> None:
    frame = bytearray(beacon())
    frame[DATA_START] = 9  # no kind of mark
    frame[-8:] = h64(frame[4:-8]).to_bytes(8, "little")
    decoded = decode_at(bytes(frame), 0, len(frame))
    assert isinstance(decoded, Frame)
    assert stated_position(bytes(frame), decoded, store_mark=MARK) is None
