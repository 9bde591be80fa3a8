"""Making a group fit to be followed by a new generation.

After a failed sync the kernel may show pages that never reached the disk and that it holds for
clean: a later sync would succeed without writing them. Recovery reads such bytes, so before it
relies on them it writes back everything that no proof calls durable. Then the file is cut to its
valid end and synced; from there on its length is part of the chain.

Writing back overwrites bytes that may well be durable, and a power cut can ruin what is being
overwritten. So the file is not touched but replaced by a copy. Where there is no room for one, and
no write in that tail was acked as durable, it is written back in place: a disk that is full should
not keep a log from starting, and only a second power cut at this very moment could do harm.
"""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import TMP_SUFFIX, Fs, parent_of, read_exact, write_all
from topics.storage.wal.files import is_no_space
from topics.storage.wal.settings import MIB


class Repair(msgspec.Struct, frozen=True):
    """What to do to the newest file of a group; harmless to repeat."""

    path: str
    write_from: int
    """Everything before this was proven durable."""
    valid_end: int
    """Where the last whole submission ends."""
    may_hold_acks: bool
    """Whether writes between the two may have been acked as durable."""


def apply_repair(fs: Fs, repair: Repair) -> None:
    """Write back, cut, sync; `RefusedToOpen` on any error: the file must not be followed then."""
    try:
        if repair.write_from < repair.valid_end:
            _replace_or_write_back(fs, repair)
        else:
            _write_back(fs, repair)
    except (OSError, EOFError) as error:
        raise _refusal(repair.path, error) from error


def _replace_or_write_back(fs: Fs, repair: Repair) -> None:
    try:
        _replace(fs, repair)
    except OSError as error:
        if repair.may_hold_acks or not is_no_space(error):
            raise
        with suppress(FileNotFoundError):
            fs.unlink(repair.path + TMP_SUFFIX)
        _write_back(fs, repair)


def _replace(fs: Fs, repair: Repair) -> None:
    tmp = repair.path + TMP_SUFFIX
    _copy(fs, repair.path, tmp, size=repair.valid_end)
    crashpoint("rec.truncate")
    fs.rename(tmp, repair.path)
    fs.sync_dir(parent_of(repair.path))


def _write_back(fs: Fs, repair: Repair) -> None:
    file = fs.open(repair.path, write=True)
    try:
        for offset in range(repair.write_from, repair.valid_end, MIB):
            size = min(MIB, repair.valid_end - offset)
            write_all(file, read_exact(file, size, offset), offset)
        file.truncate(repair.valid_end)
        crashpoint("rec.truncate")
        file.fsync()
    finally:
        file.close()


def quarantine(fs: Fs, paths: Iterable[str], quarantine_dir: str, *, now_ms: int) -> None:
    """Copy damaged files aside, durably, before anything overwrites or removes them."""
    for path in paths:
        group = parent_of(path).rpartition("/")[2]
        name = f"{group}-{path.rpartition('/')[2]}"
        target = f"{quarantine_dir}/{layout.quarantine_name(name, now_ms=now_ms)}"
        try:
            for created in fs.mkdirs(quarantine_dir):
                fs.sync_dir(parent_of(created))
            _copy(fs, path, target, size=fs.size(path))
            fs.sync_dir(quarantine_dir)
        except (OSError, EOFError) as error:
            raise _refusal(path, error) from error


def _copy(fs: Fs, path: str, target: str, *, size: int) -> None:
    """The first `size` bytes of a file as a new one; its contents are durable, its name not."""
    source = fs.open(path)
    try:
        copy = fs.open(target, write=True, create=True, truncate=True)
        try:
            for offset in range(0, size, MIB):
                write_all(copy, read_exact(source, min(MIB, size - offset), offset), offset)
            copy.fsync()
        finally:
            copy.close()
    finally:
        source.close()


def _refusal(path: str, error: Exception) -> RefusedToOpen:
    return RefusedToOpen(
        "io_error", message=f"{path}: repair failed ({error}); check the disk", file=path
    )
