"""Byte sources: locations, arenas, the ring that mirrors the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.storage.handles import Handles
from topics.storage.sources import (
    MAX_OFFSET,
    Arena,
    Ring,
    Sources,
    WalSource,
    location,
    split_location,
)
from topics.testing import SimDisk


@given(st.integers(1, 2**32 - 1), st.integers(0, MAX_OFFSET))
def test_a_location_gives_back_its_parts(source_id: int, offset: int) -> None:
    assert split_location(location(source_id, offset)) == (source_id, offset)
    assert location(source_id, offset) == location(source_id, 0) + offset


def test_ids_begin_above_zero_and_are_not_used_again() -> None:
    sources = Sources()
    first = sources.add(Arena())
    sources.drop(first)
    sources.drop(first)
    second = sources.add(Arena())
    assert 0 < first < second
    with pytest.raises(FileNotFoundError):
        sources.get(first)
    sources.close()
    assert len(sources) == 0


def test_an_arena_gives_back_what_it_was_given() -> None:
    arena = Arena(capacity=10)
    assert [arena.append(b"abc"), arena.append(b"defg")] == [0, 3]
    assert arena.view(3, 4) == arena.pread(3, 4) == b"defg"
    assert arena.view(3, 5) is None
    assert len(arena) == 7


def test_a_full_arena_refuses_but_an_empty_one_takes_anything() -> None:
    arena = Arena(capacity=4)
    assert arena.has_room(100)
    arena.append(b"12345")
    assert not arena.has_room(1)
    with pytest.raises(ValueError, match="do not fit"):
        arena.append(b"6")


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=30), st.integers(1, 64))
def test_the_ring_holds_exactly_the_newest_bytes(writes: list[bytes], size: int) -> None:
    ring = Ring(size)
    stream = b""
    for data in writes:
        ring.put(data)
        stream += data
        assert ring.end == len(stream)
        low = max(0, len(stream) - size)
        for start in range(max(0, low - 2), len(stream)):
            expected = stream[start:] if start >= low else None
            assert ring.get(start, len(stream) - start) == expected
    assert ring.get(len(stream), 1) is None
    ring.close()
    assert ring.get(0, 1) is None


def test_a_log_file_is_viewed_in_the_ring_and_read_from_the_disk() -> None:
    disk = SimDisk()
    disk.put("/a.log", b"0123456789")
    ring = Ring(8)
    ring.put(b"old")
    source = WalSource("/a.log", Handles(disk), ring, ring_start=ring.end)
    ring.put(b"0123456789")
    assert source.view(0, 3) is None
    assert source.view(4, 6) == source.pread(4, 6) == b"456789"
    source.close()
    assert source.view(4, 6) is None


def test_a_log_file_without_a_ring_is_only_read() -> None:
    disk = SimDisk()
    disk.put("/a.log", b"0123456789")
    source = WalSource("/a.log", Handles(disk))
    assert source.view(0, 3) is None
    assert source.pread(8, 5) == b"89"
