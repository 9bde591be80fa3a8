"""The root of a destination and the objects of one session (see `storage.backup.manifest`).

What if the process dies: objects that were put and not named are garbage, which a prune removes; a
root that was swapped is complete, because the objects that it names were put before. What if
another session swapped the root meanwhile: ours is refused, and this session ends.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from topics.engine.clock import Clock
from topics.errors import TopicsError
from topics.storage.backup.manifest import (
    FORMAT_VERSION,
    OBJECTS,
    ROOT,
    BackupWriter,
    BadBackup,
    Ref,
    Root,
    SegmentCopy,
    checked,
    decode_root,
    decode_segments,
    encode_root,
    encode_segments,
    ref_of,
)
from topics.storage.crashpoints import crashpoint
from topics.storage.objects.interface import (
    NoSuchObject,
    ObjectChanged,
    ObjectExists,
    Objects,
    Version,
)

SILENT_MS = 60_000
"""A session that has not been seen for so long is taken to have died."""


class BackupRefused(TopicsError):
    """The destination cannot take this backup, or cannot be restored as asked; the reason says."""

    code = "backup_refused"


class Destination:
    """A root, read or claimed, and the objects it names."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self.objects = objects
        self.root: Root | None = None
        self._clock = clock
        self._version: Version = {}
        self._session = os.urandom(8).hex()
        self._count = 0
        self.put_bytes = 0

    @property
    def url(self) -> str:
        return self.objects.url

    def read(self) -> Root | None:
        """The root as it is now; None if there is no backup."""
        try:
            contents = self.objects.read(ROOT)
        except NoSuchObject:
            return None
        self.root = self._decoded(contents.data)
        self._version = contents.version
        return self.root

    def require(self) -> Root:
        """The root; `BackupRefused` if there is no backup."""
        root = self.read()
        if root is None:
            raise BackupRefused(f"{self.url} holds no backup; check the address")
        return root

    def claim(self, *, store_id: str, lineage: str, format_file: str) -> Root:
        """Become the one session that writes here."""
        found = self.read()
        writer = self._writer(is_done=False)
        if found is None:
            root = Root(
                format=FORMAT_VERSION,
                store_id=store_id,
                lineage=lineage,
                format_file=format_file,
                version=1,
                writer=writer,
            )
            try:
                self._version = self.objects.create(ROOT, encode_root(root))
            except ObjectExists as error:
                raise self._taken() from error
            self.root = root
            return root
        if (found.store_id, found.lineage) != (store_id, lineage):
            raise BackupRefused(
                f"{self.url} holds the backup of another log, or of this one before a restore; "
                "give another destination"
            )
        if self._is_alive(found.writer):
            raise self._taken(found.writer)
        return self.publish(found, writer=writer)

    def publish(
        self, root: Root, *, writer: BackupWriter | None = None, is_done: bool = False
    ) -> Root:
        """Make a root count, if nobody else wrote meanwhile."""
        root = msgspec.structs.replace(
            root, version=root.version + 1, writer=writer or self._writer(is_done=is_done)
        )
        crashpoint("backup.publish")
        try:
            self._version = self.objects.swap(ROOT, encode_root(root), self._version)
        except ObjectChanged as error:
            raise self._taken() from error
        crashpoint("backup.published")
        self.root = root
        return root

    def put(self, data: bytes | bytearray | memoryview) -> Ref:
        """Write an object under a new name."""
        self._count += 1
        ref = ref_of(f"{OBJECTS}/{self._session}/{self._count:08d}", data)
        self.objects.put(ref.name, data)
        self.put_bytes += ref.size
        crashpoint("backup.object")
        return ref

    def get(self, ref: Ref) -> bytes:
        """An object that the root names; `BadBackup` if it is not as it was written."""
        try:
            return checked(ref, self.objects.read(ref.name).data)
        except NoSuchObject as error:
            raise BadBackup(f"{ref.name} is missing") from error

    def segments(self, root: Root) -> list[SegmentCopy]:
        return [] if root.segments is None else decode_segments(self.get(root.segments))

    def put_segments(self, segments: Sequence[SegmentCopy]) -> Ref:
        return self.put(encode_segments(list(segments)))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.objects.delete(name)

    def _decoded(self, data: bytes) -> Root:
        root = decode_root(data)
        if root.format != FORMAT_VERSION:
            raise BadBackup(f"{ROOT} has format {root.format}; use the version that wrote it")
        return root

    def _writer(self, *, is_done: bool) -> BackupWriter:
        now = self._clock.now_ms()
        ours = self.root is not None and self.root.writer.session == self._session
        since = self.root.writer.since_ms if ours and self.root is not None else now
        return BackupWriter(self._session, socket.gethostname(), os.getpid(), since, now, is_done)

    def _is_alive(self, writer: BackupWriter) -> bool:
        if writer.is_done or writer.session == self._session:
            return False
        if writer.host == socket.gethostname() and writer.pid != os.getpid():
            with suppress(PermissionError):
                try:
                    os.kill(writer.pid, 0)
                except ProcessLookupError:
                    return False
        return abs(self._clock.now_ms() - writer.seen_ms) < SILENT_MS

    def _taken(self, writer: BackupWriter | None = None) -> BackupRefused:
        if writer is None:
            with suppress(TopicsError, BadBackup, NoSuchObject):
                writer = self._decoded(self.objects.read(ROOT).data).writer
        who = "" if writer is None else f" (process {writer.pid} on {writer.host})"
        return BackupRefused(
            f"another backup{who} writes to {self.url}; stop one of the two, or give each a "
            "destination of its own"
        )
