"""Finding the thread again behind damage, when the operator asked for it.

A frame behind a damaged spot may be text that a client stored. It is believed only if decoding
runs from it without a break to a beacon of this store, whose mark no client knows, or to the clean
end of the file, where no record is cut.
"""

from topics.core.facts import Beacon
from topics.storage.frames.buffer import CleanEnd, ForeignFrame, Frame, FrameType, decode_at
from topics.storage.wal.files import BEACON_SIZE
from topics.storage.wal.follow import candidates


def resync(buf: bytes, offset: int, limit: int, *, store_mark: int) -> int | None:
    """The first offset behind `offset` from which frames can be believed; None if there is none."""
    rejected: set[int] = set()
    for start in candidates(buf, offset + 1, limit):
        if start not in rejected and _is_sound(buf, start, limit, store_mark, rejected):
            return start
    return None


def _is_sound(buf: bytes, start: int, limit: int, store_mark: int, rejected: set[int]) -> bool:
    """Follow frames from `start`; those of a failed attempt need no second one."""
    passed: list[int] = []
    at = start
    while at not in rejected:
        found = decode_at(buf, at, limit)
        if isinstance(found, CleanEnd):
            return at > start
        if not isinstance(found, Frame):
            break
        if stated_position(buf, found, store_mark=store_mark) is not None:
            return True
        passed.append(at)
        at = found.end
    rejected.update(passed)
    return False


def stated_position(buf: bytes, frame: Frame, *, store_mark: int) -> tuple[int, int] | None:
    """File and offset below which a beacon of this store says everything is durable."""
    if (
        frame.type != FrameType.CHECKPOINT_MARK
        or frame.length != BEACON_SIZE
        or frame.seq != store_mark
    ):
        return None
    try:
        fact = frame.fact(buf)
    except ForeignFrame:
        return None
    return (fact.file_lfn, fact.offset) if isinstance(fact, Beacon) else None
