"""What a power cut leaves of one file and of the names on a disk.

The kernel writes dirty pages back when and in which order it likes, a sector at a time. Each mode
is one way this can end; all of them leave what was synced before alone, unless the device itself
misbehaves (`damage_neighbour`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal, TypeAlias

from topics.testing._inode import Change, Content, DirNode, Inode, Renaming, Write

CrashMode: TypeAlias = Literal["none", "all", "prefix", "subset", "zero", "garble"]
"""How pending writes end in a power cut.

- none: no pending write survives
- all: every pending write survives
- prefix: the changes of each file survive up to a point, which may lie inside a write
- subset: each sector keeps any of the states it went through, whatever the others do
- zero: all survive, but one pending sector of each file reads zero
- garble: all survive, but one bit of each file's last pending write is flipped
"""

NameMode: TypeAlias = Literal["none", "all", "prefix"]
"""How pending creations, renames and removals end: not, all, or up to a point per directory."""

SECTOR = 512


def surviving_content(inode: Inode, mode: CrashMode, rng: Random, cut: int | None) -> Content:
    """The file's bytes after the power cut; reuses the durable ones in place."""
    content = inode.durable
    if mode == "prefix":
        _keep_prefix(content, inode.pending, rng, cut)
    elif mode == "subset":
        _keep_subset(content, inode.pending, rng)
    elif mode != "none":
        for change in inode.pending:
            change.apply(content)
        if mode == "zero":
            _zero_one_sector(content, inode.pending, rng)
        elif mode == "garble":
            _flip_one_bit(content, inode.pending, rng)
    return content


def _keep_prefix(content: Content, changes: Sequence[Change], rng: Random, cut: int | None) -> None:
    if cut is not None:
        _keep_bytes(content, changes, cut)
        return
    kept = rng.randint(0, len(changes))
    for change in changes[:kept]:
        change.apply(content)
    if kept < len(changes):
        torn = changes[kept]
        if isinstance(torn, Write):
            Write(torn.offset, torn.data[: _torn_length(torn, rng)]).apply(content)


def _torn_length(write: Write, rng: Random) -> int:
    """How much of a torn write made it: often whole sectors, sometimes any byte."""
    length = rng.randint(0, len(write.data))
    if rng.random() < 0.5:
        end = (write.offset + length) // SECTOR * SECTOR
        length = max(0, end - write.offset)
    return length


def _keep_bytes(content: Content, changes: Sequence[Change], cut: int) -> None:
    for change in changes:
        if not isinstance(change, Write):
            change.apply(content)
        elif len(change.data) <= cut:
            change.apply(content)
            cut -= len(change.data)
        else:
            Write(change.offset, change.data[:cut]).apply(content)
            return


def _keep_subset(content: Content, changes: Sequence[Change], rng: Random) -> None:
    versions = Counter(sector for change in changes for sector, _ in _pieces(change))
    kept = {sector: rng.randint(0, count) for sector, count in versions.items()}
    for change in changes:
        if not isinstance(change, Write) and rng.random() < 0.5:
            change.apply(content)
        for sector, piece in _pieces(change):
            if kept[sector] > 0:
                kept[sector] -= 1
                piece.apply(content)


def _pieces(change: Change) -> Iterator[tuple[int, Write]]:
    """A write as one piece per sector it touches."""
    if not isinstance(change, Write):
        return
    start = change.offset
    while start < change.end:
        sector = start // SECTOR
        end = min(change.end, (sector + 1) * SECTOR)
        yield sector, Write(start, change.data[start - change.offset : end - change.offset])
        start = end


def _zero_one_sector(content: Content, changes: Sequence[Change], rng: Random) -> None:
    writes = [change for change in changes if isinstance(change, Write)]
    if writes:
        _, piece = rng.choice(list(_pieces(rng.choice(writes))))
        _overwrite(content, piece.offset, bytes(len(piece.data)))


def _flip_one_bit(content: Content, changes: Sequence[Change], rng: Random) -> None:
    for change in reversed(changes):
        if isinstance(change, Write):
            position = rng.randrange(change.offset, change.end)
            found = content.read(1, position)
            _overwrite(content, position, bytes(byte ^ 1 << rng.randrange(8) for byte in found))
            return


def damage_neighbour(content: Content, changes: Sequence[Change], rng: Random) -> None:
    """Ruin durable bytes next to the pending writes: the sector before, else the one after."""
    writes = [change for change in changes if isinstance(change, Write)]
    if not writes:
        return
    first = min(write.offset for write in writes)
    last = max(write.end for write in writes)
    before = max(0, (first // SECTOR - 1) * SECTOR)
    if before < first:
        start, end = before, min(first, before + SECTOR)
    else:
        start = (last + SECTOR - 1) // SECTOR * SECTOR
        end = start + SECTOR
    _overwrite(content, start, rng.randbytes(end - start))


def _overwrite(content: Content, offset: int, data: bytes) -> None:
    """Change bytes that exist; never make the file longer."""
    data = data[: max(0, content.size - offset)]
    if data:
        content.write(data, offset)


def settle_names(directories: Sequence[DirNode], mode: NameMode, rng: Random) -> None:
    """Decide which pending changes of names survive, then forget the others."""
    kept = {directory: _names_kept(directory, mode, rng) for directory in directories}
    _drop_half_kept(kept)
    for steps in kept.values():
        for step in steps:
            step.settle()
    for directory in directories:
        directory.pending.clear()


def _names_kept(directory: DirNode, mode: NameMode, rng: Random) -> list[Renaming]:
    if mode == "prefix":
        return directory.pending[: rng.randint(0, len(directory.pending))]
    return list(directory.pending) if mode == "all" else []


def _drop_half_kept(kept: dict[DirNode, list[Renaming]]) -> None:
    """Shorten the lists until each rename between two directories is in both or in neither."""
    shortened = True
    while shortened:
        shortened = False
        for steps in kept.values():
            for index, step in enumerate(steps):
                if any(step not in kept[other] for other in step.directories()):
                    del steps[index:]
                    shortened = True
                    break
