"""A disk in memory that can lose power, lie about syncs and run out of space."""

from random import Random

from topics.storage.fs import Fs, parent_of
from topics.testing._damage import (
    CrashMode,
    NameMode,
    damage_neighbour,
    settle_names,
    surviving_content,
)
from topics.testing._inode import DirNode, Inode
from topics.testing._mount import Mount
from topics.testing._platter import Lies, Platter, copy_tree, poke


class SimDisk(Mount):
    """An in-memory `Fs` that knows what is durable and what only looks written.

    Bytes become durable by `fdatasync` or `fsync` of their file, names by `sync_dir` of their
    directory, and nothing else does it. `crash` then shows what was forgotten. The object lives
    through crashes: open the store again on the same disk. Handles from before raise `PowerOff`;
    a program with threads of its own gets `mount()` as its `Fs`, which dies as a whole.

    With `capacity`, writing beyond it, allocating beyond it and making directories beyond it fail
    with ENOSPC. Any thread may call.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        super().__init__(Platter(capacity), era=None)

    def mount(self) -> Fs:
        """The disk for one program run: every call raises `PowerOff` after a crash or kill."""
        return Mount(self._platter, era=self._platter.era)

    # Ends of a program.

    def crash(
        self,
        seed: int = 0,
        mode: CrashMode = "prefix",
        *,
        names: NameMode = "prefix",
        cut: int | None = None,
    ) -> None:
        """Cut the power: what was not synced survives as `mode` and `seed` decide.

        `names` decides in the same way over un-synced names. `cut`, for mode `prefix`, is the
        exact number of pending bytes that survive in each file.
        """
        rng = Random(seed)
        platter = self._platter
        with platter.mutex:
            settle_names(platter.directories(), names, rng)
            self._reboot(platter.root, mode, rng, cut)
            platter.era += 1
            platter.boot += 1
            platter.recount()

    def kill(self) -> None:
        """End the program alone: all it wrote stays visible and pending, the boot id the same."""
        with self._platter.mutex:
            self._platter.era += 1
            self._platter.recount()

    def _reboot(self, directory: DirNode, mode: CrashMode, rng: Random, cut: int | None) -> None:
        directory.seen = dict(directory.durable)
        for _, node in sorted(directory.seen.items()):
            if isinstance(node, DirNode):
                self._reboot(node, mode, rng, cut)
            else:
                self._survive(node, mode, rng, cut)

    def _survive(self, inode: Inode, mode: CrashMode, rng: Random, cut: int | None) -> None:
        lies = self._platter.lies
        changes = inode.pending
        if not changes and not inode.lost:
            return
        size_seen = inode.seen.size
        if lies.psow_off:
            damage_neighbour(inode.durable, changes, rng)
        content = surviving_content(inode, mode, rng, cut)
        if lies.size_first and changes:
            content.size = max(content.size, size_seen)
        inode.survive(content)

    # Lies of the device.

    def fsync_lies(self, path: str = "*") -> None:
        """From now on file syncs report success and promote nothing."""
        self._platter.lies.lying = path

    def fsync_late(self, syncs: int) -> None:
        """From now on a sync promotes only what was there `syncs` syncs of that file earlier."""
        self._platter.lies.late = syncs

    def fsyncgate(self, path: str = "*") -> None:
        """Fail the next sync with EIO and mark the pages clean.

        They stay readable until a power cut and are gone after it; later syncs succeed without
        writing them.
        """
        self._platter.lies.gates.append(path)

    def psow_off(self) -> None:
        """From now on a power cut also ruins a durable sector next to pending writes."""
        self._platter.lies.psow_off = True

    def size_first(self) -> None:
        """From now on a power cut keeps a file's newest size even where its data is lost."""
        self._platter.lies.size_first = True

    def honest(self) -> None:
        """End every lie."""
        self._platter.lies = Lies()

    # Space.

    @property
    def capacity(self) -> int | None:
        """Bytes this disk holds; `None` means no end. Tests may change it at any time."""
        return self._platter.capacity

    @capacity.setter
    def capacity(self, size: int | None) -> None:
        self._platter.capacity = size

    @property
    def used(self) -> int:
        """Bytes taken by files and directories now."""
        return self._platter.used

    # Looking and tampering.

    def paths(self) -> list[str]:
        """Every visible file, as absolute paths in order."""
        with self._platter.mutex:
            return [path for path, _ in self._platter.files()]

    def contents(self) -> dict[str, bytes]:
        """Every visible file with its bytes: two equal answers mean an unchanged disk."""
        with self._platter.mutex:
            return {
                path: inode.seen.read(inode.seen.size, 0) for path, inode in self._platter.files()
            }

    def peek(self, path: str) -> bytes:
        """A file's bytes as a running program sees them."""
        with self._platter.mutex:
            seen = self._platter.file(path).seen
            return seen.read(seen.size, 0)

    def peek_durable(self, path: str) -> bytes:
        """The bytes of the file now at `path` that no power cut can take."""
        with self._platter.mutex:
            durable = self._platter.file(path).durable
            return durable.read(durable.size, 0)

    def poke(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes behind every program's back, durable at once; may extend the file."""
        with self._platter.mutex:
            poke(self._platter.file(path), data, offset)

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Flip the bits of `mask` in one byte, durable at once."""
        self.poke(path, offset, bytes([self.peek(path)[offset] ^ mask]))

    def put(self, path: str, data: bytes) -> None:
        """Plant or replace a file, durable at once with its name and directories."""
        with self._platter.mutex:
            for created in self.mkdirs(parent_of(path)):
                self.sync_dir(parent_of(created))
            file = self.open(path, write=True, create=True, truncate=True)
            file.pwrite(data, 0)
            file.close()
            self._platter.file(path).promote()
            self.sync_dir(parent_of(path))

    def settle(self) -> None:
        """Make everything that is visible durable, as a long idle time would."""
        with self._platter.mutex:
            for directory in self._platter.directories():
                self._platter.sync_dir(directory)
            for _, inode in self._platter.files():
                inode.settle()

    def clone(self) -> "SimDisk":
        """An independent disk in the same state, lies and pending writes included."""
        twin = SimDisk()
        twin.restore(self)
        return twin

    def restore(self, image: "SimDisk") -> None:
        """Go back to the state of a clone; programs running on this disk die."""
        with self._platter.mutex, image._platter.mutex:
            source, mine = image._platter, self._platter
            mine.root = copy_tree(source.root)
            mine.boot = source.boot
            mine.capacity = source.capacity
            mine.lies = Lies(
                lying=source.lies.lying,
                late=source.lies.late,
                gates=list(source.lies.gates),
                psow_off=source.lies.psow_off,
                size_first=source.lies.size_first,
            )
            mine.era += 1
            mine.recount()
