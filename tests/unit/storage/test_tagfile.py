"""Tag files: seqs by tag, or an honest refusal."""

from __future__ import annotations

import struct
import sys
from array import array

import pytest

from topics.storage.checksum import h64
from topics.storage.segments import tagfile
from topics.storage.segments.tagfile import BadTagFile

POSTINGS = {
    "b/2": array("Q", (3, 9)),
    "a": array("Q", (1,)),
    "b/1": array("Q", (2, 4, 1 << 50)),
    "ä": array("Q", (5,)),
    "\U0001f600": array("Q", (7,)),
    "": array("Q", (6,)),
}


def signed(body: bytes) -> bytes:
    return body + struct.pack("<Q", h64(body))


def test_every_tag_gives_back_its_seqs() -> None:
    tags = tagfile.decode(tagfile.encode(POSTINGS))
    assert len(tags) == 6
    for tag, seqs in POSTINGS.items():
        assert tags[tag] == seqs
    assert "c" not in tags
    assert tags.get("b/3") is None


def test_tags_come_sorted_by_their_bytes() -> None:
    assert list(tagfile.decode(tagfile.encode(POSTINGS))) == sorted(POSTINGS, key=str.encode)


def test_a_segment_without_tags_has_an_empty_file() -> None:
    tags = tagfile.decode(tagfile.encode({}))
    assert len(tags) == 0


def test_any_changed_or_missing_byte_is_noticed() -> None:
    whole = tagfile.encode(POSTINGS)
    for i in range(len(whole)):
        with pytest.raises(BadTagFile):
            tagfile.decode(whole[:i] + bytes((whole[i] ^ 1,)) + whole[i + 1 :])
        with pytest.raises(BadTagFile):
            tagfile.decode(whole[:i])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"TAG1\0\0\0\0",
        b"TAG2\1\0\0\0",
        b"TAG2\xff\xff\xff\xff",
        b"TAG2\0\0\0\0extra",
        b"TAG2\1\0\0\0" + struct.pack("<HI", 1, 0) + b"\xff",
        b"TAG2\1\0\0\0" + struct.pack("<HI", 1, 1) + b"a",
        b"TAG2\1\0\0\0" + struct.pack("<HI", 9, 0) + b"a",
        b"TAG2\2\0\0\0" + struct.pack("<HIHI", 1, 0, 1, 0) + b"ba",
        b"TAG2\2\0\0\0" + struct.pack("<HIHI", 1, 0, 1, 0) + b"aa",
    ],
)
def test_intact_bytes_that_are_no_tag_file_are_refused(body: bytes) -> None:
    with pytest.raises(BadTagFile):
        tagfile.decode(signed(body))


def test_the_file_is_little_endian_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = array("Q", [1, 2])
    monkeypatch.setattr(sys, "byteorder", "big")
    swapped = tagfile._little_endian(numbers)
    assert swapped.tobytes() == b"".join(n.to_bytes(8, "big") for n in (1, 2))
    assert list(numbers) == [1, 2], "the caller's numbers stay as they are"
