"""Applying the ledger of erasures to bytes that are older than the erasure.

An erased record keeps its place: its frame stays as long as it was, with neutral bytes in place of
its payload, meta, tag and node, and a new checksum. So offsets, indexes and frame numbers stay as
they are, and replay counts the same. The record is deleted before anybody can read.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from topics.storage.checksum import h64
from topics.storage.erasures import Begun
from topics.storage.frames.append import verify
from topics.storage.frames.header import APPEND, DATA_START, HEADER, U32, U64


class KeptOut(msgspec.Struct):
    """What must not come back, by topic id."""

    by_topic: dict[int, list[Begun]]

    @classmethod
    def of(cls, receipts: Iterable[Begun]) -> KeptOut:
        """From receipts, and from notes of erasures that are under way."""
        by_topic: dict[int, list[Begun]] = {}
        for receipt in receipts:
            by_topic.setdefault(receipt.topic_id, []).append(receipt)
        return cls(by_topic)

    def covers(self, topic_id: int, seq: int, tag: str | None) -> bool:
        """Whether a record was erased, or would have been if it had still been there."""
        for receipt in self.by_topic.get(topic_id, ()):
            if any(lo <= seq <= hi for lo, hi in receipt.erased):
                return True
            if seq <= receipt.bound and receipt.scope.covers(seq, tag):
                return True
        return False

    def may_cover(self, topic_id: int, seq: int) -> bool:
        """The same for a record whose tag cannot be read: whether it is so with any tag."""
        return any(
            seq <= receipt.bound
            and (receipt.scope.before_seq is None or seq < receipt.scope.before_seq)
            for receipt in self.by_topic.get(topic_id, ())
        )

    def blank_segment(
        self, buf: bytearray, topic_id: int, places: Iterable[tuple[int, int, int]]
    ) -> list[tuple[int, int]]:
        """Blank the erased ones among a segment's records: their seqs, offsets and lengths.

        Nobody can read the tag of a damaged record. If it may be an erased one, it becomes zeros
        and stays damaged: a good checksum would make a record of what is none.
        """
        found: list[tuple[int, int]] = []
        for seq, at, length in places:
            if verify(buf, at, length, topic_id=topic_id, seq=seq):  # type: ignore[arg-type]
                found += self.blank(buf, [at])
            else:
                is_erased = self.covers(topic_id, seq, None)
                if is_erased:
                    found.append((topic_id, seq))
                if is_erased or self.may_cover(topic_id, seq):
                    end = min(at + length, len(buf))
                    buf[at:end] = bytes(max(0, end - at))
        return found

    def blank(self, buf: bytearray, offsets: Iterable[int]) -> list[tuple[int, int]]:
        """Blank the erased ones among these intact frames; returns their topic ids and seqs."""
        found: list[tuple[int, int]] = []
        for at in offsets:
            _, kind, _, topic_id, seq, _, node_len, tag_len, _ = HEADER.unpack_from(buf, at)
            if kind != APPEND or topic_id not in self.by_topic:
                continue
            tag_at = at + DATA_START + node_len
            tag = buf[tag_at : tag_at + tag_len].decode() if tag_len else None
            if self.covers(topic_id, seq, tag):
                blank_record(buf, at)
                found.append((topic_id, seq))
        return found


def blank_record(buf: bytearray, at: int) -> None:
    """Put neutral bytes in the place of everything a client gave, and sum the frame up again."""
    frame_len, _, _, _, _, _, node_len, tag_len, data_len = HEADER.unpack_from(buf, at)
    names_at = at + DATA_START
    blob_at = names_at + node_len + tag_len
    (json_len,) = U32.unpack_from(buf, blob_at)
    meta_len = data_len - U32.size - json_len
    buf[names_at:blob_at] = b"x" * (node_len + tag_len)
    json_at = blob_at + U32.size
    buf[json_at : json_at + json_len] = b"0".ljust(json_len)
    if meta_len:
        buf[json_at + json_len : blob_at + data_len] = b"{}".ljust(meta_len)
    end = at + frame_len + 4 - U64.size
    U64.pack_into(buf, end, h64(bytes(buf[at + 4 : end])))
