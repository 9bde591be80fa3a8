"""The file a shard will write next: allocated early, given a name late.

A new file is prepared as `wal-spare.tmp`, gets its header and a sync, and only then its name, so a
log file that can be seen always has a whole header. Files are never reused: each is a new inode
full of zeros, which is what makes "zeros to the end" mean "nothing was written here".
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import NamedTuple

from topics.storage import identity, layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import File, Fs, read_file, replace_file, write_all
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
        self._spare_path = f"{directory}/{layout.WAL_SPARE}"
        self._current = f"{directory}/{layout.CURRENT}"
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
                self._spare = self._handles.retrying(partial(self._make_spare, size))
            except OSError as error:
                if size <= files.LEAST_ROOM or not files.is_no_space(error):
                    raise
                size = max(size // 2, files.LEAST_ROOM)
            else:
                self._room = size

    def _make_spare(self, size: int) -> File:
        """A fresh file of `size` zeros; nothing is left behind on an error."""
        try:
            file = self._fs.open(self._spare_path, write=True, exclusive=True)
        except FileExistsError:
            self._fs.unlink(self._spare_path)
            file = self._fs.open(self._spare_path, write=True, exclusive=True)
        try:
            files.allocate(file, size)
        except OSError:
            file.close()
            self._remove_spare()
            raise
        return file

    def _remove_spare(self) -> None:
        """Best effort: a spare that stays is removed by the next start."""
        with suppress(OSError):
            self._fs.unlink(self._spare_path)

    def newer_generation(self) -> int | None:
        """The generation in CURRENT if it is above ours: another process owns the group now."""
        try:
            text = self._handles.retrying(lambda: read_file(self._fs, self._current))
        except FileNotFoundError:
            return None
        current = identity.decode_current(text)
        if current is None or current.generation <= self._writer.generation:
            return None
        return current.generation

    def head(self, link: Link) -> bytes:
        """Write the header into the spare, durably; without space for it the spare is given up."""
        assert self._spare is not None
        header = files.header_frame(self._writer, link)
        try:
            write_all(self._spare, header, 0)
            self._spare.fsync()
        except OSError:
            self.discard()
            raise
        crashpoint("wal.rotate.header")
        return header

    def name(self, link: Link, header: bytes) -> None:
        """Make the spare a log file, durably. An error leaves it unclear which name it has.

        A file of that name is replaced: that is how a file without frames makes way for a new one.
        """
        assert self._spare is not None
        self._fs.rename(self._spare_path, layout.wal_path(self._directory, link.first_lfn))
        crashpoint("wal.rotate.renamed")
        self._fs.sync_dir(self._directory)
        crashpoint("wal.rotate.dirsynced")
        self.named = NamedFile(self._spare, link, header, self._room)
        self._spare = None

    def take(self) -> NamedFile:
        """Point CURRENT at the named file and hand it over."""
        assert self.named is not None
        text = identity.encode_current(self.named.link.first_lfn, self._writer.generation)
        self._handles.retrying(lambda: replace_file(self._fs, self._current, text))
        crashpoint("wal.rotate.current")
        taken, self.named = self.named, None
        return taken

    def discard(self) -> None:
        """Let go of the spare; a named file stays, closed, for recovery to find."""
        self.close()
        if self._spare is not None:
            self._spare = None
            self._remove_spare()

    def close(self) -> None:
        """Close what is open and change nothing."""
        if self._spare is not None:
            self._spare.close()
        if self.named is not None:
            self.named.file.close()
