"""Where the log of a backup ends for one moment.

Each group is a list of log files, copied as whole submissions. It is cut before the first
submission that is later than the moment. A clock that stepped back does not matter: what was
written behind such a submission is left out, too. So a restored log is always a beginning of the
real one.

A staged commit is one frame in one group and records in several. If the moment lies in the middle
of it, the cut moves behind it, or before it where its records were not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from topics.core.facts import (
    ClosedCleanly,
    Fact,
    Forwarded,
    HeadReserved,
    SeqSkipped,
    StageCommitted,
    TopicCreated,
)
from topics.storage.backup.manifest import LogCopy
from topics.storage.frames.buffer import frame_of, walk
from topics.storage.frames.header import APPEND, FLAG_CONT, HEADER, Header
from topics.storage.frames.payloads import FrameType
from topics.storage.wal.files import HEADER_SIZE

_NEVER = 1 << 62
_TELLING = frozenset(
    map(
        int,
        (
            FrameType.HEAD_WATERMARK,
            FrameType.SEQ_SKIP,
            FrameType.FORWARD,
            FrameType.STAGE_COMMIT,
        ),
    )
)


class CopiedSubmission(NamedTuple):
    """Frames that belong together, by offsets in their file."""

    start: int
    end: int
    ts: int  # the latest of its frames
    frames: list[int]


class GroupLog(msgspec.Struct):
    """The files of one group that a restore lays out, oldest first, and their bytes."""

    key: str
    files: list[LogCopy]
    data: Sequence[bytes]
    start: tuple[int, int]  # file number and offset of the point's position


class LogPlace(NamedTuple):
    """The end of a group: in this file, at this offset. File -1: nothing of it."""

    file: int
    offset: int


class Beyond(msgspec.Struct):
    """What the cut leaves out, by topic id: the highest seq that may have been given out."""

    heads: dict[int, int] = msgspec.field(default_factory=dict)

    def note(self, topic_id: int, seq: int) -> None:
        if seq > self.heads.get(topic_id, 0):
            self.heads[topic_id] = seq

    def note_all(self, group: GroupLog, behind: LogPlace) -> None:
        """Note every seq that a group gave out behind a place."""
        for topic_id, seq in _given_out(group, behind):
            self.note(topic_id, seq)


class CutLog(NamedTuple):
    """The places where every group ends, and what lies beyond."""

    ends: dict[str, LogPlace]
    beyond: Beyond
    is_whole: bool  # the log was copied up to a clean stop: all seqs are known


def cut(groups: list[GroupLog], *, at_ms: int, at_seq: tuple[int, int] | None = None) -> CutLog:
    """Cut all groups at a moment; `at_seq` is a topic id and the last seq of it to keep."""
    found = {group.key: _place(group, at_ms, at_seq) for group in groups}
    late = [_generation_at(group, found[group.key]) for group in groups]
    last_generation = min(late, default=_NEVER)
    for group in groups:
        found[group.key] = _within(group, found[group.key], last_generation)
    _keep_commits_whole(groups, found)
    beyond = Beyond()
    for group in groups:
        beyond.note_all(group, found[group.key])
    return CutLog(found, beyond, ends_cleanly(groups))


def submissions(buf: bytes, start: int, limit: int) -> Iterator[CopiedSubmission]:
    """The submissions of a file from an offset on."""
    frames: list[int] = []
    ts, begin, position = 0, start, start
    while True:
        walked = walk(buf, position, limit)
        for at in walked.offsets:
            header = HEADER.unpack_from(buf, at)
            frames.append(at)
            ts = max(ts, header[5])
            if not header[2] & FLAG_CONT:
                end = at + header[0] + 4
                yield CopiedSubmission(begin, end, ts, frames)
                frames, ts, begin = [], 0, end
        position = walked.stop
        if walked.end is not None:
            return


def _from(group: GroupLog, place: LogPlace | None = None) -> Iterator[tuple[int, CopiedSubmission]]:
    """The submissions behind a place, by default behind the point's position."""
    number, offset = group.start if place is None else place
    for file in range(max(number, 0), len(group.files)):
        begin = offset if file == number else HEADER_SIZE
        for found in submissions(group.data[file], max(begin, HEADER_SIZE), group.files[file].size):
            yield file, found


def _place(group: GroupLog, at_ms: int, at_seq: tuple[int, int] | None) -> LogPlace:
    for file, found in _from(group):
        is_later = found.ts > at_ms
        if at_seq is not None:
            behind = _is_behind(group.data[file], found, at_seq)
            is_later = behind if behind is not None else is_later
        if is_later:
            return LogPlace(file, found.start)
    return _end(group)


def _is_behind(buf: bytes, found: CopiedSubmission, at_seq: tuple[int, int]) -> bool | None:
    """Whether a submission is behind the seq that is to be the last; None if it is of others."""
    for at in found.frames:
        header = HEADER.unpack_from(buf, at)
        if header[3] == at_seq[0] and (seqs := _seqs_at(buf, at, header)):
            return seqs[0] > at_seq[1]
    return None


def _end(group: GroupLog) -> LogPlace:
    return LogPlace(len(group.files) - 1, group.files[-1].size if group.files else 0)


def _generation_at(group: GroupLog, place: LogPlace) -> int:
    """The run of the program in which a group is cut; none if it is not cut at all."""
    return _NEVER if place == _end(group) else group.files[place.file].generation


def _within(group: GroupLog, place: LogPlace, generation: int) -> LogPlace:
    """No file of a later run may stay: of another group of that run, records are left out."""
    number = place.file
    while number >= 0 and group.files[number].generation > generation:
        number -= 1
    if number == place.file:
        return place
    return LogPlace(number, group.files[number].size if number >= 0 else 0)


def _keep_commits_whole(groups: list[GroupLog], ends: dict[str, LogPlace]) -> None:
    kept: dict[int, int] = {}
    commits: list[tuple[GroupLog, LogPlace, StageCommitted]] = []
    for group in groups:
        for file, found in _before(group, ends[group.key]):
            for at in found.frames:
                header = HEADER.unpack_from(group.data[file], at)
                if header[1] == APPEND:
                    kept[header[3]] = max(kept.get(header[3], 0), header[4])
                elif header[1] == FrameType.STAGE_COMMIT:
                    fact = frame_of(at, header).fact(group.data[file])
                    assert isinstance(fact, StageCommitted)
                    commits.append((group, LogPlace(file, found.start), fact))
    for group, place, commit in commits:
        wanted = {
            topic_id: first + count - 1
            for topic_id, first, count in commit.topics
            if kept.get(topic_id, 0) < first + count - 1
        }
        if wanted and not _extend(groups, ends, wanted):
            _cut_before(groups, ends, (group, place), commit)


def _before(group: GroupLog, end: LogPlace) -> Iterator[tuple[int, CopiedSubmission]]:
    for file, found in _from(group):
        if (file, found.start) >= end:
            return
        yield file, found


def _extend(groups: list[GroupLog], ends: dict[str, LogPlace], wanted: Mapping[int, int]) -> bool:
    """Move ends behind the records of a commit; False if not all of them were copied."""
    left = dict(wanted)
    moved = dict(ends)
    for group in groups:
        for file, found in _from(group, ends[group.key]):
            for at in found.frames:
                header = HEADER.unpack_from(group.data[file], at)
                if header[1] == APPEND and left.get(header[3]) == header[4]:
                    del left[header[3]]
                    moved[group.key] = LogPlace(file, found.end)
    if not left:
        ends.update(moved)
    return not left


def _cut_before(
    groups: list[GroupLog],
    ends: dict[str, LogPlace],
    at: tuple[GroupLog, LogPlace],
    commit: StageCommitted,
) -> None:
    ends[at[0].key] = min(ends[at[0].key], at[1])
    firsts = {topic_id: first for topic_id, first, _ in commit.topics}
    for group in groups:
        for file, found in _before(group, ends[group.key]):
            headers = [HEADER.unpack_from(group.data[file], frame) for frame in found.frames]
            if any(h[1] == APPEND and h[4] >= firsts.get(h[3], _NEVER) for h in headers):
                ends[group.key] = LogPlace(file, found.start)
                break


def _given_out(group: GroupLog, end: LogPlace) -> Iterator[tuple[int, int]]:
    """Topic ids and seqs of what lies behind a place."""
    for file, found in _from(group, end):
        buf = group.data[file]
        for at in found.frames:
            header = HEADER.unpack_from(buf, at)
            if header[1] == APPEND:
                yield header[3], header[4]
            elif header[1] in _TELLING:
                yield from _seqs_of(frame_of(at, header).fact(buf))


def _seqs_of(fact: Fact) -> Iterable[tuple[int, int]]:
    match fact:
        case HeadReserved():
            return [(fact.topic_id, fact.ceiling)]
        case SeqSkipped():
            return [(fact.topic_id, fact.hi)]
        case Forwarded():
            count = sum(run[1] for run in fact.runs)
            return [(fact.topic_id, fact.dest_first + count - 1)]
        case StageCommitted():
            return [(topic_id, first + count - 1) for topic_id, first, count in fact.topics]
        case _:
            return []


def ends_cleanly(groups: list[GroupLog]) -> bool:
    """Whether every group ends with the note of a clean stop: no seq was given out afterwards."""
    for group in groups:
        last: Fact | None = None
        limit = group.files[-1].size
        buf = group.data[len(group.files) - 1]
        for found in submissions(buf, HEADER_SIZE, limit):
            for at in found.frames:
                header = HEADER.unpack_from(buf, at)
                if header[1] != FrameType.CHECKPOINT_MARK:
                    last = None
                elif header[3] == 0 and header[4] == 0:
                    last = frame_of(at, header).fact(buf)
        if not isinstance(last, ClosedCleanly):
            return False
    return bool(groups)


def time_of(groups: list[GroupLog], topic_id: int, seq: int) -> int | None:
    """When a record was written; None if it is not in this part of the log."""
    for group in groups:
        for file, found in _from(group):
            for at in found.frames:
                header = HEADER.unpack_from(group.data[file], at)
                if header[3] == topic_id and seq in _seqs_at(group.data[file], at, header):
                    return int(header[5])
    return None


def created(groups: list[GroupLog], name: str) -> list[int]:
    """The ids under which a topic was made in this part of the log, the newest last."""
    ids: list[int] = []
    for group in groups:
        for file, found in _from(group):
            for at in found.frames:
                header = HEADER.unpack_from(group.data[file], at)
                if header[1] == FrameType.TOPIC_CREATE:
                    fact = frame_of(at, header).fact(group.data[file])
                    assert isinstance(fact, TopicCreated)
                    ids += [fact.topic_id] if fact.name == name else []
    return sorted(ids)


def _seqs_at(buf: bytes, at: int, header: Header) -> range:
    """The seqs of the records that a frame brings to its topic."""
    if header[1] == APPEND:
        return range(header[4], header[4] + 1)
    if header[1] == FrameType.FORWARD:
        fact = frame_of(at, header).fact(buf)
        assert isinstance(fact, Forwarded)
        return range(fact.dest_first, fact.dest_first + sum(run[1] for run in fact.runs))
    return range(0)
