"""From a path to a running engine, or to a read-only view of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from topics.core.facts import Fact
from topics.engine.clock import Clock, nanoseconds
from topics.engine.engine import Engine
from topics.engine.erasures import ErasureBook
from topics.engine.kernel import Kernel
from topics.engine.recovery import directory
from topics.engine.recovery.cold_dir import mark_cold_dir, prepare_cold_dir
from topics.engine.recovery.recover import Found, find_state
from topics.engine.recovery.repair import repair
from topics.engine.settings import EngineSettings
from topics.engine.stages.store import open_stage_store
from topics.engine.upkeep.checkpoint import Checkpointer, Identity
from topics.engine.upkeep.erasing import Eraser
from topics.engine.upkeep.schedule import Upkeep
from topics.engine.upkeep.snapshots import resume_snapshots
from topics.engine.upkeep.trimming import Kept, Trimmer
from topics.errors import Internal, RefusedToOpen
from topics.storage import identity, layout
from topics.storage.crashpoints import crashpoint
from topics.storage.erasures import ErasureLedger
from topics.storage.fs import Fs
from topics.storage.identity import StoreFormat
from topics.storage.snapshots.lines import GroupPosition
from topics.storage.wal.committer import Committer
from topics.storage.wal.files import Link
from topics.storage.wal.generation import Generation, make_durable_dir, open_shards
from topics.storage.wal.inline import InlineCommitter, NullCommitter
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.shard import Shard

READ_ONLY_TRIES = 5
CHECKPOINT_AFTER_BYTES = 16 << 20
MakeCommitter = Callable[[list[Shard]], Committer]


class Opening(msgspec.Struct, frozen=True):
    """How to open: what differs between an embedded log and a server."""

    settings: EngineSettings
    clock: Clock
    make_committer: MakeCommitter = InlineCommitter
    prealloc_start: int = 1 << 20
    progress: Callable[[float], None] = lambda share: None


def open_engine(fs: Fs, path: str, opening: Opening) -> Engine:
    """Recover a directory and start writing to it; `RefusedToOpen` changes nothing."""
    entered = directory.DataDirectory(path)
    try:
        entered.enter(fs, opening.clock)
        return open_entered(fs, entered, opening)
    except BaseException:
        entered.leave()
        raise


def open_entered(fs: Fs, entered: directory.DataDirectory, opening: Opening) -> Engine:
    """Open an engine in a directory that is locked already; gives the lock back on an error."""
    if opening.settings.unsafe_no_dir_fsync:
        fs = directory.without_dir_sync(fs)
    try:
        return _recover(fs, entered, opening)
    except BaseException:
        entered.leave()
        raise


class _Home:
    """The directory that an engine lives in, and the log files it writes to."""

    def __init__(
        self, fs: Fs, entered: directory.DataDirectory, opening: Opening, shards: list[Shard]
    ) -> None:
        self._fs = fs
        self._entered = entered
        self._opening = opening
        self._shards = shards

    @property
    def is_spoiled(self) -> bool:
        return any(shard.was_interrupted for shard in self._shards)

    def abandon(self) -> None:
        """Close the log files where they are. The directory stays locked."""
        for shard in self._shards:
            shard.release()

    def reopen(self) -> Engine:
        """Recover the directory once more; it stays locked meanwhile."""
        self._entered.look_again(self._fs)
        return _recover(self._fs, self._entered, self._opening)

    def leave(self) -> None:
        self._entered.leave()


def _recover(fs: Fs, entered: directory.DataDirectory, opening: Opening) -> Engine:
    settings, path = opening.settings, entered.path
    directory.probe(fs, path)
    store_format = entered.format
    try:
        if store_format is None:
            directory.clear_unborn(fs, path)
            store_format = identity.new_format(os.urandom(16), created_ms=opening.clock.now_ms())
        found = find_state(
            fs, path, store_format, settings, clock=opening.clock, progress=opening.progress
        )
    except OSError as error:
        raise _cannot_open(path, error) from error
    try:
        return _begin(fs, entered, found, opening)
    except BaseException:
        found.handles.close()
        raise


def _begin(fs: Fs, entered: directory.DataDirectory, found: Found, opening: Opening) -> Engine:
    """Repair what was found and write from here on."""
    settings, path = opening.settings, entered.path
    try:
        prepare_cold_dir(fs, settings.cold_dir, found.format.id_bytes)
        for name in (layout.META, layout.TOPICS, layout.WAL):
            make_durable_dir(fs, f"{path}/{name}")
    except OSError as error:
        raise _cannot_open(path, error) from error
    repair(found, settings, opening.clock)
    # Each lost frame may have created a topic, whose id must not be used again. Only after the
    # repair: it takes the directory of an unknown id below the next one for a dropped topic's.
    found.catalog.next_topic_id += found.lost_frames
    engine = _start(fs, entered, found, opening)
    try:
        if entered.format is None:
            _give_birth(fs, path, found.format)
        # Only once the store exists: another attempt would get another store id, and the cold
        # directory would be refused.
        mark_cold_dir(fs, settings.cold_dir, found.format.id_bytes)
    except BaseException as error:
        _give_up(engine.kernel.committer, engine.abandon)
        if isinstance(error, OSError):
            raise _cannot_open(path, error) from error
        raise
    return engine


def _give_up(committer: Committer, abandon: Callable[[], None]) -> None:
    """Stop a log that failed to open. It writes nothing more: the exception may have come in the
    middle of a write, and nothing may be written over that."""
    abandon()
    with suppress(Internal):
        committer.close()


def _cannot_open(path: str, error: OSError) -> RefusedToOpen:
    return RefusedToOpen(
        "io_error", message=f"cannot open {path}: {error}; check the disk", file=path
    )


def _give_birth(fs: Fs, path: str, store_format: StoreFormat) -> None:
    try:
        directory.give_birth(fs, path, store_format)
    except OSError as error:
        raise RefusedToOpen(
            "io_error",
            message=f"cannot create a store in {path}: {error}; check permissions and space",
            file=path,
        ) from error


def _start(fs: Fs, entered: directory.DataDirectory, found: Found, opening: Opening) -> Engine:
    """Step 9: a new generation, the facts it owes, and the engine on top."""
    settings, clock = opening.settings, opening.clock
    shards = settings.wal_shards or 1
    stage_store = open_stage_store(fs, entered.path)
    found.warnings += [f"{path} is a damaged stage; it is not used" for path in stage_store.damaged]
    generation = Generation(found.format.id_bytes, found.generation + 1, shards)
    opened = open_shards(
        fs,
        entered.path,
        generation,
        _links(found),
        settings=WalSettings(
            disk_sync_ms=settings.disk_sync_ms,
            cache_bytes=settings.cache_bytes,
            prealloc_start=opening.prealloc_start,
        ),
        sources=found.sources,
        handles=found.handles,
        monotonic_ns=nanoseconds(clock),
    )
    home = _Home(fs, entered, opening, opened)
    crashpoint("rec.newgen")
    kernel = Kernel(
        clock=clock,
        settings=settings,
        catalog=found.catalog,
        committer=opening.make_committer(opened),
        sources=found.sources,
        segments=found.store,
        arenas=found.arenas,
        generation=generation.number,
    )
    for number, shard in enumerate(opened):
        kernel.applied[number] = shard.lfn
    try:
        _log_owed(kernel, found.owed)
        crashpoint("rec.skip")
    except BaseException:
        _give_up(kernel.committer, home.abandon)
        raise
    newest = _kept(found)
    trimmer = _trimmer(fs, entered.path, found, generation, newest)
    snapshots = resume_snapshots(found, newest, shards=shards)
    checkpointer = Checkpointer(
        kernel,
        Identity(generation.store_id, generation.number, shards),
        trimmer,
        snapshots,
        snapshot_id=found.snapshot_number,
    )
    kernel.must_checkpoint = _needs_checkpoint(found, shards)
    book = ErasureBook(ErasureLedger(fs, entered.path), found.format.store_id)
    found.warnings += book.resume()
    eraser = Eraser(kernel, book, trimmer, snapshots, shards=shards)
    engine = Engine(
        kernel,
        make_upkeep=partial(Upkeep, kernel, checkpointer, eraser=eraser, shards=shards),
        erasures=book,
        home=home,
        warnings=found.warnings,
        stage_store=stage_store,
    )
    trimmer.release_stages = engine.staging.release
    return engine


def _links(found: Found) -> dict[str, Link]:
    """How each group goes on. A group whose files are gone goes on behind its last frame: if a
    frame number were used twice, the second frame would count as contained in a snapshot."""
    absorbed = found.snapshot.head.groups if found.snapshot is not None else ()
    links = {position.key: Link(position.lfn + 1, 0, 0) for position in absorbed}
    return links | {scan.key: scan.next_link for scan in found.scans}


def _log_owed(kernel: Kernel, owed: list[Fact]) -> None:
    """Make the facts about skipped seqs durable before the first write."""
    for fact in owed:
        topic_id = getattr(fact, "topic_id", 0)
        submission = kernel.submit_unapplied([fact], topic_id=topic_id)
        if submission.error is not None:
            raise _cannot_start(submission.error)
    try:
        for shard in {kernel.committer.shard_of(getattr(fact, "topic_id", 0)) for fact in owed}:
            kernel.committer.sync(shard)
    except Internal as error:
        raise _cannot_start(error) from error


def _cannot_start(error: Exception) -> RefusedToOpen:
    return RefusedToOpen("io_error", message=f"the log cannot be written: {error}", file="wal")


def _needs_checkpoint(found: Found, shards: int) -> bool:
    """Whether a checkpoint is due at once. Also behind damage: with a new snapshot the next open
    needs no salvage."""
    if any(scan.damaged for scan in found.scans):
        return True
    wanted = {layout.group_key(shard, shards) for shard in range(shards)}
    moved = any(scan.key not in wanted and scan.generations for scan in found.scans)
    return moved or found.bytes_replayed > CHECKPOINT_AFTER_BYTES


def _kept(found: Found) -> Kept | None:
    if found.chain is None:
        return None
    kept = Kept()
    kept.stand_at(found.chain.snapshot.head, found.chain.numbers)
    for line in found.chain.snapshot.topics:
        kept.put(line)
    return kept


def _trimmer(
    fs: Fs, path: str, found: Found, generation: Generation, newest: Kept | None
) -> Trimmer:
    shards = generation.shards
    current = {layout.group_key(shard, shards) for shard in range(shards)}
    snapshot = found.snapshot
    ends = {position.key: position for position in snapshot.head.groups} if snapshot else {}
    for scan in found.scans:
        end = scan.end
        ends[scan.key] = GroupPosition(scan.key, end.file_lfn, end.offset, end.lfn)
    return Trimmer(
        fs,
        path,
        found.store,
        found.sources,
        newest=newest,
        leftovers=[end for key, end in ends.items() if key not in current],
        dropped={line.id: line.dropped_labels() for line in snapshot.topics} if snapshot else {},
    )


def open_view(fs: Fs, path: str, opening: Opening) -> Engine:
    """A read-only view: what a recovery at this instant would show. No lock, no write.

    A file that vanishes because the owner trims it means to look again, and so does a refusal if
    files came, went or changed their size meanwhile: half of the old and half of the new state
    looks like damage.
    """
    for attempt in range(READ_ONLY_TRIES):
        before = _sizes(fs, path)
        try:
            return _view(fs, path, opening)
        except FileNotFoundError as error:
            if attempt == READ_ONLY_TRIES - 1:
                raise RefusedToOpen(
                    "io_error",
                    message=f"{path} keeps changing while it is read ({error}); try again",
                    file=path,
                ) from error
        except RefusedToOpen:
            if attempt == READ_ONLY_TRIES - 1 or _sizes(fs, path) == before:
                raise
    raise AssertionError  # the loop returns or raises


def _sizes(fs: Fs, path: str) -> dict[str, int]:
    """The files of the log and the snapshots, as far as they can be seen."""
    wal = f"{path}/{layout.WAL}"
    sizes: dict[str, int] = {}
    with suppress(OSError):
        groups = [name for name in fs.listdir(wal) if layout.parse_group(name) is not None]
        for folder in (wal, f"{path}/{layout.META}", *(f"{wal}/{name}" for name in groups)):
            for name in fs.listdir(folder):
                with suppress(OSError):
                    sizes[f"{folder}/{name}"] = fs.size(f"{folder}/{name}")
    return sizes


def _view(fs: Fs, path: str, opening: Opening) -> Engine:
    entered = directory.look_into(fs, path)
    assert entered.format is not None
    found = find_state(
        fs, path, entered.format, opening.settings, clock=opening.clock, beside_owner=True
    )
    kernel = Kernel(
        clock=opening.clock,
        settings=opening.settings,
        catalog=found.catalog,
        committer=NullCommitter(),
        sources=found.sources,
        segments=found.store,
        arenas=found.arenas,
        generation=found.generation,
    )
    book = ErasureBook(ErasureLedger(fs, path), entered.format.store_id)
    with suppress(OSError):
        book.resume()
    return Engine(kernel, warnings=found.warnings, read_only=True, erasures=book)
