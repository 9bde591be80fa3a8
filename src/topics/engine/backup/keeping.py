"""What is in a destination: listing it, verifying it, and removing what nobody needs any more.

A prune lists the objects first, then swaps the root, then deletes those of the listed objects that
neither the old nor the new root has a use for. Whatever another session puts meanwhile was not
listed, and a root that it swaps meanwhile makes ours fail: nothing that counts is ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from topics.engine.backup.destination import Destination
from topics.engine.backup.taking import CopyProgress, Tell
from topics.storage.backup.manifest import (
    OBJECTS,
    BadBackup,
    LogCopy,
    Point,
    Ref,
    Root,
    SegmentCopy,
    Span,
)
from topics.storage.crashpoints import crashpoint
from topics.storage.objects.directory import DirectoryObjects


class HeldBackup(msgspec.Struct, kw_only=True):
    """What a destination holds."""

    url: str
    store_id: str
    points: list[Point]
    spans: list[Span]
    objects: int
    bytes: int
    erasures: int
    is_being_written: bool
    last_seen_ms: int


class Verified(msgspec.Struct, kw_only=True):
    """What a check of every object found."""

    url: str
    objects: int
    bytes: int
    damaged: list[str]


class Pruned(msgspec.Struct, kw_only=True):
    """What a prune removed."""

    url: str
    points: int
    objects: int
    bytes: int
    kept_from_ms: int | None


def contents(source: Destination) -> HeldBackup:
    """What can be restored; reads no segment and no log."""
    root = source.require()
    refs = {ref.name: ref.size for ref in refs_of(root, source.segments(root))}
    return HeldBackup(
        url=source.url,
        store_id=root.store_id,
        points=list(root.points),
        spans=list(root.spans),
        objects=len(refs),
        bytes=sum(refs.values()),
        erasures=len(root.erasures),
        is_being_written=not root.writer.is_done,
        last_seen_ms=root.writer.seen_ms,
    )


def verify(source: Destination, tell: Tell = lambda progress: None) -> Verified:
    """Read every object that counts and compare it with what was put."""
    root = source.require()
    damaged: list[str] = []
    refs = {ref.name: ref for ref in refs_of(root, source.segments(root))}
    total, done = sum(ref.size for ref in refs.values()), 0
    for ref in refs.values():
        try:
            source.get(ref)
        except BadBackup as error:
            damaged.append(str(error))
        done += ref.size
        tell(CopyProgress(done, total))
    return Verified(url=source.url, objects=len(refs), bytes=total, damaged=damaged)


def refs_of(root: Root, segments: list[SegmentCopy]) -> Iterator[Ref]:
    """Every object that a root names, some more than once."""
    if root.segments is not None:
        yield root.segments
    for segment in segments:
        for piece in segment.pieces:
            yield piece.ref
    for log_file in root.log:
        yield from log_file.chunks
    for point in root.points:
        for copied in point.chain:
            yield copied.ref
        if point.dead is not None:
            yield point.dead
    for receipt in root.erasures:
        yield receipt.ref


def prune(dest: Destination, *, keep_from_ms: int) -> Pruned:
    """Remove what only moments before `keep_from_ms` need, and what killed sessions left.

    The destination has to be claimed. The newest point always stays.
    """
    root = dest.root
    assert root is not None, "claim first"
    listed = {each.name: each.size for each in dest.objects.list(OBJECTS)}
    segments = dest.segments(root)
    kept = _kept_points(root.points, keep_from_ms)
    needed = segments if not kept else _needed_segments(segments, kept[0].number)
    log = _needed_log(root.log, kept)
    pruned = msgspec.structs.replace(
        root,
        points=kept,
        log=log,
        spans=_cut_spans(root.spans, kept[0].ts if kept else 0),
        segments=dest.put_segments(needed),
    )
    wanted = {ref.name for ref in refs_of(pruned, needed)}
    crashpoint("prune.listed")
    dest.publish(pruned)
    crashpoint("prune.published")
    unwanted = sorted(set(listed) - wanted)
    dest.remove(unwanted)
    if isinstance(dest.objects, DirectoryObjects):
        dest.objects.tidy()
    return Pruned(
        url=dest.url,
        points=len(root.points) - len(kept),
        objects=len(unwanted),
        bytes=sum(listed[name] for name in unwanted),
        kept_from_ms=kept[0].ts if kept else None,
    )


def _kept_points(points: tuple[Point, ...], keep_from_ms: int) -> tuple[Point, ...]:
    """The newest point that is not later than the moment, and those behind it."""
    first = max((i for i, each in enumerate(points) if each.ts <= keep_from_ms), default=0)
    return points[first:]


def _needed_segments(segments: list[SegmentCopy], number: int) -> list[SegmentCopy]:
    return [each for each in segments if each.until is None or each.until > number]


def _needed_log(log: tuple[LogCopy, ...], kept: tuple[Point, ...]) -> tuple[LogCopy, ...]:
    """The log from the oldest kept point on."""
    if not kept or not kept[0].number:
        return log
    starts = {each.key: each.file_lfn for each in kept[0].positions}
    return tuple(
        each for each in log if each.group not in starts or each.first_lfn >= starts[each.group]
    )


def _cut_spans(spans: tuple[Span, ...], from_ms: int) -> tuple[Span, ...]:
    return tuple(
        Span(max(each.from_ms, from_ms), each.to_ms) for each in spans if each.to_ms >= from_ms
    )
