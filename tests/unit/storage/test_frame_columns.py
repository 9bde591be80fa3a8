"""Frames taken apart many at a time: the same as one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.batch import RecordBatch
from topics.storage.frames.append import encode_append, record_at
from topics.storage.frames.arrow import SCHEMA, record_batch
from topics.storage.frames.columns import Frames, bounds, headers, unreadable

TOPIC = 7
FIRST = 2**53 + 1  # where floats can no longer tell neighbours apart
TS = 1_700_000_000_123

names = st.none() | st.text(max_size=5)
rows = st.lists(
    st.tuples(st.text(max_size=20), st.sampled_from(["", "{}", '"ä"']), names, names),
    min_size=1,
    max_size=12,
)


def framed(records: list[tuple[str, str, str | None, str | None]]) -> tuple[Frames, RecordBatch]:
    batch = RecordBatch(
        [f'"{data.encode().hex()}"'.encode() for data, _, _, _ in records],
        [meta.encode() for _, meta, _, _ in records],
        [tag for _, _, tag, _ in records],
        [node for _, _, _, node in records],
    )
    buf, fact = encode_append(TOPIC, FIRST, TS, batch, durable=False)
    return Frames(buf, np.array(fact.offsets, np.int64), np.array(fact.lengths, np.int64)), batch


def seqs_of(frames: Frames) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(FIRST, FIRST + frames.size)


@given(rows)
def test_columns_hold_what_each_frame_holds(
    records: list[tuple[str, str, str | None, str | None]],
) -> None:
    frames, _ = framed(records)
    assert unreadable(frames, topic_id=TOPIC, seqs=seqs_of(frames)) == []
    table = record_batch(frames)
    assert table.schema.equals(SCHEMA)
    assert table["seq"].to_pylist() == seqs_of(frames).tolist()
    assert table["ts"].cast("int64").to_pylist() == [TS * 1000] * frames.size
    for at, start in enumerate(frames.starts.tolist()):
        node, tag, data, meta = record_at(frames.buf, start)
        assert table["node"][at].as_py() == node
        assert table["tag"][at].as_py() == tag
        assert table["data"][at].as_py() == data.decode()
        assert table["meta"][at].as_py() == (meta.decode() or None)


@given(rows, st.data())
def test_a_changed_byte_is_found_in_its_frame(
    records: list[tuple[str, str, str | None, str | None]], data: st.DataObject
) -> None:
    frames, _ = framed(records)
    at = data.draw(st.integers(0, len(frames.buf) - 1))
    broken = bytearray(frames.buf)
    broken[at] ^= 1 << data.draw(st.integers(0, 7))
    found = unreadable(frames._replace(buf=bytes(broken)), topic_id=TOPIC, seqs=seqs_of(frames))
    assert found == [int(np.searchsorted(frames.starts, at, "right")) - 1]


def test_frames_of_others_and_cut_ones_are_not_believed() -> None:
    frames, _ = framed([("a", "", None, None)] * 3)
    seqs = seqs_of(frames)
    assert unreadable(frames, topic_id=TOPIC + 1, seqs=seqs) == [0, 1, 2]
    assert unreadable(frames, topic_id=TOPIC, seqs=seqs + 1) == [0, 1, 2]
    cut = frames._replace(buf=frames.buf[:-1])
    assert unreadable(cut, topic_id=TOPIC, seqs=seqs) == [2]


@pytest.mark.parametrize(("with_tags", "with_meta"), [(True, False), (False, True)])
def test_an_unwanted_column_is_there_and_empty(with_tags: bool, with_meta: bool) -> None:
    frames, _ = framed([("a", "{}", "tag", "node")] * 2)
    table = record_batch(frames, with_tags=with_tags, with_meta=with_meta)
    assert (table["tag"].null_count == 0) is with_tags
    assert (table["meta"].null_count == 0) is with_meta
    assert table["node"].to_pylist() == ["node", "node"]


def test_bounds_follow_each_other() -> None:
    frames, batch = framed([("a", "{}", "tag", "node")])
    parts = bounds(frames, headers(frames))
    data, meta = parts.datas[0], parts.metas[0]
    assert frames.buf[data:meta] == batch.datas[0]
    assert frames.buf[meta : parts.checksums[0]] == b"{}"
