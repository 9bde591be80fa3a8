"""A snapshot that is several files: a whole one, and parts that tell what changed since.

    snapshot.0100.bin    whole: every topic, router and app
    snapshot.0102.bin    part after 100: what changed since, and what is gone
    snapshot.0104.bin    part after 102

The three together are snapshot 104: of every topic the newest line counts. A part names the file
it comes after by number and checksum, so it is never read on top of another one. A chain with a
file that is missing or unsound is invalid as a whole; the other of the two newest snapshots serves
then, and shares no file with it: checkpoints alternate between two chains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

import msgspec

from topics.storage import layout
from topics.storage.fs import Fs
from topics.storage.snapshots.file import BadSnapshot, Snapshot, SnapshotReader, read_snapshot
from topics.storage.snapshots.lines import (
    NOTHING,
    AppLine,
    GoneLine,
    HeadLine,
    PartLine,
    RouterLine,
    TopicLine,
    decode_gone,
    decode_line,
    read_label,
)

K = TypeVar("K")
L = TypeVar("L", TopicLine, RouterLine, AppLine)


class SnapshotFile(msgspec.Struct, frozen=True):
    """One file of a chain, as it was written or found sound."""

    number: int
    size: int
    checksum: int


class BrokenChain(BadSnapshot):
    """A snapshot rests on a file that is missing or unsound; `number` says which."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


class Chain(msgspec.Struct, frozen=True):
    """A snapshot put together from its files, the whole one first."""

    snapshot: Snapshot  # as if it were one file; `gone` is of the newest
    files: tuple[SnapshotFile, ...]
    changed: Changed | None  # what the newest file tells anew; None if it is a whole snapshot

    @property
    def numbers(self) -> list[int]:
        return [file.number for file in self.files]


class Changed(msgspec.Struct):
    """Topics by id, routers and apps by name."""

    topics: set[int] = msgspec.field(default_factory=set)
    routers: set[str] = msgspec.field(default_factory=set)
    apps: set[str] = msgspec.field(default_factory=set)

    def add(self, other: Changed) -> None:
        self.topics |= other.topics
        self.routers |= other.routers
        self.apps |= other.apps


def list_snapshots(fs: Fs, data_dir: str) -> list[int]:
    meta = f"{data_dir}/{layout.META}"
    names = fs.listdir(meta) if fs.exists(meta) else []
    return [number for number in map(layout.parse_snapshot, names) if number is not None]


def read_chain(
    fs: Fs, data_dir: str, number: int, store_id: bytes, *, present: Collection[int]
) -> Chain:
    """The snapshot with this number; `present` are the numbers of all files that are there.

    A file that vanishes while the chain is read raises `FileNotFoundError`.
    """
    found: list[tuple[int, Snapshot]] = []
    following: PartLine | None = None
    while True:
        if following is not None and (number not in present or number >= found[-1][0]):
            raise BrokenChain(number, f"{layout.snapshot_name(number)}, its base, is missing")
        try:
            contents = read_snapshot(fs, layout.snapshot_path(data_dir, number), store_id)
        except BadSnapshot as error:
            if following is None:
                raise
            raise BrokenChain(number, f"{layout.snapshot_name(number)}: {error}") from error
        if following is not None and following.after[1] != f"{contents.checksum:016x}":
            raise BrokenChain(number, f"{layout.snapshot_name(number)} is not its base")
        found.append((number, contents))
        if not isinstance(contents.head, PartLine):
            return _joined(found)
        following = contents.head
        number = following.after[0]


def _joined(found: list[tuple[int, Snapshot]]) -> Chain:
    """From newest to oldest: what a newer file tells or takes away, older ones tell no more."""
    newest = found[0][1]
    topics: dict[int, TopicLine] = {}
    routers: dict[str, RouterLine] = {}
    apps: dict[str, AppLine] = {}
    gone = Changed()
    for _, contents in found:
        _add(topics, {line.id: line for line in contents.topics}, gone.topics)
        _add(routers, {line.name: line for line in contents.routers}, gone.routers)
        _add(apps, {line.name: line for line in contents.apps}, gone.apps)
        if contents.gone is not None:
            gone.add(_named(contents.gone))
    whole = Snapshot(
        newest.head,
        list(topics.values()),
        list(routers.values()),
        list(apps.values()),
        newest.gone,
        newest.size,
        newest.checksum,
    )
    files = [SnapshotFile(number, x.size, x.checksum) for number, x in reversed(found)]
    return Chain(whole, tuple(files), None if newest.gone is None else _changes(newest))


def _add(lines: dict[K, L], older: dict[K, L], gone: set[K]) -> None:
    for key, line in older.items():
        if key not in gone:
            lines.setdefault(key, line)


def _named(gone: GoneLine) -> Changed:
    return Changed(set(gone.topics), set(gone.routers), set(gone.apps))


def _changes(part: Snapshot) -> Changed:
    assert part.gone is not None
    changed = _named(part.gone)
    changed.topics.update(line.id for line in part.topics)
    changed.routers.update(line.name for line in part.routers)
    changed.apps.update(line.name for line in part.apps)
    return changed


def check_chain(
    fs: Fs, data_dir: str, number: int, store_id: bytes, *, present: Collection[int]
) -> tuple[SnapshotFile, ...]:
    """Whether a snapshot is sound, without reading what it says of its topics.

    Returns its files, the whole one first.
    """
    files: list[SnapshotFile] = []
    expected: str | None = None
    while True:
        if number not in present or (files and number >= files[-1].number):
            raise BrokenChain(number, f"{layout.snapshot_name(number)} is missing")
        head, file = _checked(fs, data_dir, number)
        if head.store_id != store_id.hex() or expected not in (None, f"{file.checksum:016x}"):
            raise BrokenChain(number, f"{layout.snapshot_name(number)} is another file")
        files.append(file)
        if not isinstance(head, PartLine):
            return tuple(reversed(files))
        number, expected = head.after


def _checked(fs: Fs, data_dir: str, number: int) -> tuple[HeadLine, SnapshotFile]:
    reader = SnapshotReader(fs, layout.snapshot_path(data_dir, number))
    lines = reader.lines()
    try:
        head = decode_line(next(lines))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadSnapshot(f"a line cannot be read: {error}") from error
    for _ in lines:
        pass  # the reader sums them up
    if not isinstance(head, HeadLine):
        raise BadSnapshot("a line is out of place")
    return head, SnapshotFile(number, reader.size, reader.checksum)


def standing_lines(
    fs: Fs, data_dir: str, files: Collection[SnapshotFile], replaced: Changed
) -> Iterator[tuple[str, bytes]]:
    """The encoded lines of a chain that still count when everything in `replaced` is told anew.

    Each with what it is about. Raises `BadSnapshot` when a file is not the one that was written;
    what it gave until then is worth nothing.
    """
    told = Changed(set(replaced.topics), set(replaced.routers), set(replaced.apps))
    for file in sorted(files, key=lambda each: each.number, reverse=True):
        reader = SnapshotReader(fs, layout.snapshot_path(data_dir, file.number))
        here = Changed()
        try:
            for text in reader.lines():
                kind = _standing(text, told, here)
                if kind:
                    yield kind, text
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadSnapshot(f"a line cannot be read: {error}") from error
        told.add(here)
        if (reader.size, reader.checksum) != (file.size, file.checksum):
            raise BadSnapshot(f"{layout.snapshot_name(file.number)} is not as it was written")


def _standing(text: bytes, told: Changed, here: Changed) -> str:
    """What a line is about, if nothing newer is told of it; and note in `here` what is."""
    label = read_label(text) if text else NOTHING
    match label.line:
        case "topic" if label.id not in told.topics:
            here.topics.add(label.id)
        case "router" if label.name not in told.routers:
            here.routers.add(label.name)
        case "app" if label.name not in told.apps:
            here.apps.add(label.name)
        case "gone":
            here.add(_named(decode_gone(text)))
            return ""
        case _:
            return ""
    return label.line
