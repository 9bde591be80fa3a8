"""The file a shard will write next: allocated early, given a name late."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from topics.storage import identity, layout
from topics.storage.fs import File, Fs, read_file
from topics.storage.handles import Handles
from topics.storage.wal import files
from topics.storage.wal.files import Link, Writer


class NamedFile(NamedTuple):
    """A log file with a durable header and name, in which nothing is written yet."""

    file: File
    link: Link
    header: bytes
    room: int  # bytes allocated


class Successor:
    """Steps from nothing to a file that may be written; each can be repeated after an error.

    First a spare that has room, then header and name, then CURRENT. Errors are the caller's to
    judge: they come as the file system raised them.
    """

    def __init__(self, fs: Fs, directory: str, writer: Writer, handles: Handles) -> None:
        self._fs = fs
        self._directory = directory
        self._writer = writer
        self._handles = handles
        self._spare: File | None = None
        self._room = 0  # of the spare
        self.named: NamedFile | None = None
        """The next file while it waits for CURRENT."""

    @property
    def has_room(self) -> bool:
        """Whether space for the next file is already reserved."""
        return self._spare is not None or self.named is not None

    def reserve(self, size: int) -> None:
        """Allocate the spare unless that was done before; a smaller one if there is no room."""
        while not self.has_room:
            try:
                self._spare = self._handles.retrying(
                    partial(files.make_spare, self._fs, self._directory, size)
                )
            except OSError as error:
                if size <= files.LEAST_ROOM or not files.is_no_space(error):
                    raise
                size = max(size // 2, files.LEAST_ROOM)
            else:
                self._room = size

    def newer_generation(self) -> int | None:
        """The generation in CURRENT if it is above ours: somebody else owns the group now."""
        path = f"{self._directory}/{layout.CURRENT}"
        try:
            text = self._handles.retrying(lambda: read_file(self._fs, path))
        except FileNotFoundError:
            return None
        current = identity.decode_current(text)
        if current is None or current.generation <= self._writer.generation:
            return None
        return current.generation

    def head(self, link: Link) -> bytes:
        """Write the header into the spare, durably; without space for it the spare is given up."""
        assert self._spare is not None
        try:
            return files.head_spare(self._spare, self._writer, link)
        except OSError:
            self.discard()
            raise

    def name(self, link: Link, header: bytes) -> None:
        """Make the spare a log file. An error leaves it unclear which of its names it has."""
        assert self._spare is not None
        files.name_spare(self._fs, self._directory, link.first_lfn)
        self.named = NamedFile(self._spare, link, header, self._room)
        self._spare = None

    def take(self) -> NamedFile:
        """Point CURRENT at the named file and hand it over."""
        assert self.named is not None
        first_lfn, generation = self.named.link.first_lfn, self._writer.generation
        self._handles.retrying(
            lambda: files.point_current(self._fs, self._directory, first_lfn, generation)
        )
        taken, self.named = self.named, None
        return taken

    def discard(self) -> None:
        """Let go of the spare; a named file stays, closed, for recovery to find."""
        if self._spare is not None:
            self._spare.close()
            self._spare = None
            files.remove_spare(self._fs, self._directory)
        if self.named is not None:
            self.named.file.close()

    def close(self) -> None:
        """Close what is open and change nothing: the log could not begin here."""
        if self._spare is not None:
            self._spare.close()
        if self.named is not None:
            self.named.file.close()
