"""The two newest snapshots, what each of them lacks, and how the next one is written.

A snapshot is a chain of files: a whole one, and parts with what changed since. Checkpoints
alternate between two chains, so that the newest two snapshots share no file and damage to one
leaves the other. A part therefore tells what changed since the checkpoint before the last one.

When the parts of a chain are many or long, its next snapshot is a whole one again. Lines of topics
that did not change are copied from the files then, sound or not at all; no topic is asked. Every
topic is asked only when there is no file to begin with, or so little that it does not matter.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import msgspec

from topics.engine.effects import Io, Op, stepwise
from topics.engine.recovery.recover import Found
from topics.engine.upkeep.trimming import Kept
from topics.storage import identity, layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import TMP_SUFFIX, File, Fs, replace_file
from topics.storage.snapshots.chain import (
    Chain,
    Changed,
    SnapshotFile,
    check_chain,
    list_snapshots,
    standing_lines,
)
from topics.storage.snapshots.file import BadSnapshot, SnapshotWriter
from topics.storage.snapshots.lines import BodyLine, GoneLine, HeadLine, PartLine

SMALL_BYTES = 64 << 10
"""A whole snapshot of this size is not worth a part."""
MOST_PARTS = 64
PARTS_SHARE = 0.5
"""Parts of a chain, in bytes, to its whole snapshot; and topics in a part to all topics."""


class Track(msgspec.Struct):
    """One of the two chains."""

    files: tuple[SnapshotFile, ...]  # the whole snapshot first
    kept: Kept
    lacks: Changed  # what changed since its newest file

    @property
    def is_small(self) -> bool:
        return self.files[0].size < SMALL_BYTES

    def takes_part(self) -> bool:
        """Whether a part is better than to begin anew."""
        parts = self.files[1:]
        return (
            len(parts) < MOST_PARTS
            and sum(file.size for file in parts) < PARTS_SHARE * self.files[0].size
            and len(self.lacks.topics) <= PARTS_SHARE * len(self.kept.topic_ids)
        )


class SnapshotBody(msgspec.Struct):
    """What a checkpoint has found out: of `source`, what is new and what is gone."""

    source: Track | None  # None: `lines` tell of everything
    lines: Sequence[BodyLine]
    gone: GoneLine


class Snapshots:
    """`newest` and `older` are None when there is no such snapshot, or none to go on with."""

    def __init__(
        self,
        fs: Fs,
        data_dir: str,
        store: identity.StoreFormat,
        *,
        newest: Track | None,
        older: Track | None,
    ) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._format = store
        self.newest = newest
        self.older = older
        self.whole_next = 0
        """So many snapshots are to be whole ones, whatever was written before."""

    def note(self, changed: Changed) -> None:
        """These changed since the newest snapshot."""
        for track in (self.newest, self.older):
            if track is not None:
                track.lacks.add(changed)

    def source(self) -> Track | None:
        """The chain that the next snapshot begins with: its own, or else a copy of the other."""
        track = self.older or self.newest
        return None if track is None or track.is_small else track

    def write(self, head: HeadLine, body: SnapshotBody) -> Op[tuple[SnapshotFile, ...]]:
        """Write the next snapshot, durably; returns its files."""
        source = body.source
        try:
            is_whole = self.whole_next > 0 or source is None or source is not self.older
            if source is None or is_whole or not source.takes_part():
                return ((yield from self._write(head, None, body)),)
            yield from self._announce_parts()
            last = source.files[-1]
            fields = {name: getattr(head, name) for name in HeadLine.__struct_fields__}
            part = PartLine(**fields, after=(last.number, f"{last.checksum:016x}"))
            return *source.files, (yield from self._write(part, body.gone, body))
        except BadSnapshot as error:
            self._forget(source)
            raise OSError(errno.EIO, f"an earlier snapshot is damaged: {error}") from error

    def _forget(self, source: Track | None) -> None:
        """A chain on disk is not what it should be: nothing is built on it any more."""
        if source is self.older:
            self.older = None
        else:
            self.newest = None

    def advance(self, files: tuple[SnapshotFile, ...], kept: Kept) -> None:
        """A snapshot is durable; the next one goes to the other chain."""
        self.whole_next = max(0, self.whole_next - 1)
        self.older, self.newest = self.newest, Track(files, kept, Changed())

    def _announce_parts(self) -> Op[None]:
        """Before the first part: from now on programs that know no parts must stay away."""
        yield from self._announce(identity.with_parts(self._format))

    def announce_rewritten(self) -> Op[None]:
        """Before the first segment is written anew: the same, of programs that know no such."""
        yield from self._announce(identity.with_rewritten(self._format))

    def _announce(self, store: identity.StoreFormat) -> Op[None]:
        if store == self._format:
            return
        path = f"{self._data_dir}/{layout.FORMAT}"
        yield Io(lambda: replace_file(self._fs, path, identity.encode_format(store)))
        self._format = store

    def _write(self, head: HeadLine, gone: GoneLine | None, body: SnapshotBody) -> Op[SnapshotFile]:
        fs = self._fs
        path = layout.snapshot_path(self._data_dir, head.id)
        meta = path.rsplit("/", 1)[0]
        temporary = path + TMP_SUFFIX
        file: File = yield Io(lambda: fs.open(temporary, write=True, create=True, truncate=True))
        try:
            writer = SnapshotWriter(file, head, gone)
            yield from stepwise(writer.add(body.lines))
            if gone is None and body.source is not None:
                standing = standing_lines(fs, self._data_dir, body.source.files, body.source.lacks)
                yield from stepwise(writer.copy(standing))
            size = yield from stepwise(writer.finish())
            crashpoint("snap.tmp")
            yield Io(file.fsync)
        finally:
            file.close()
        crashpoint("snap.synced")
        yield Io(lambda: fs.rename(temporary, path))
        crashpoint("snap.renamed")
        yield Io(lambda: fs.sync_dir(meta))
        crashpoint("snap.dirsynced")
        return SnapshotFile(head.id, size, writer.checksum)


def resume_snapshots(found: Found, kept: Kept | None, *, shards: int) -> Snapshots:
    """Go on with the chains that a start found, if what changed since is known of them.

    The frame numbers in their lines are those of the log as it was laid out then, so behind a
    change of shards they begin anew; and behind damage, where much may have changed.
    """
    newest = older = None
    is_damaged = bool(found.bad_snapshots) or any(scan.damaged for scan in found.scans)
    if kept is not None and not is_damaged and _is_laid_out_as_before(found, shards):
        assert found.chain is not None
        newest = Track(found.chain.files, kept, found.changed)
        older = _other(found, found.chain, kept)
    return Snapshots(found.fs, found.path, found.format, newest=newest, older=older)


def _is_laid_out_as_before(found: Found, shards: int) -> bool:
    """Whether the log has had this many shards since the run that wrote the newest snapshot."""
    assert found.chain is not None
    parts = [part for scan in found.scans for part in scan.generations]
    is_known = found.chain.snapshot.head.generation in {part.generation for part in parts}
    return is_known and {part.shards for part in parts} == {shards}


def _other(found: Found, chain: Chain, kept: Kept) -> Track | None:
    """The chain of the snapshot before the newest one. What changed since then the newest tells,
    if it is a part: it comes after an earlier file of its own chain."""
    head = chain.snapshot.head
    if chain.changed is None or not isinstance(head, PartLine):
        return None
    fs, path = found.fs, found.path
    numbers = list_snapshots(fs, path)
    number = max((n for n in numbers if n not in chain.numbers), default=0)
    if not head.after[0] < number < head.id:
        return None
    try:
        files = check_chain(fs, path, number, found.format.id_bytes, present=numbers)
    except (OSError, BadSnapshot):
        return None
    lacks = Changed()
    lacks.add(chain.changed)
    lacks.add(found.changed)
    return Track(files, kept.copy(), lacks)
