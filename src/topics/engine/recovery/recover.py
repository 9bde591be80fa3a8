"""Opening a directory: from files to a state that a crash could not have made wrong.

    1  lock, FORMAT, cold marker                      `directory`
    2  newest valid snapshot
    3  its topics, their segments checked by size
    4  log groups found, chains checked
    5  frames read and judged: torn tail or damage
    6  replay                                         `replay`
    7  reconcile: reserved seqs, delete bytes, segments that are gone
    8  write back, cut tails, clear leftovers         `repair`
    9  a new generation of log files, and what it must say first

Nothing on disk changes before step 8. A failure anywhere refuses the start and the next attempt
finds the same files. A read-only view stops after step 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from topics.core.catalog import Catalog, StagingApp
from topics.core.config import parse_json
from topics.core.facts import Fact
from topics.core.routers import Router
from topics.core.topic import Topic
from topics.engine.arenas import Arenas
from topics.engine.clock import Clock
from topics.engine.reads.history import ALL, Resident, SegmentHistory, segments_of
from topics.engine.reads.tagging import TagLoader
from topics.engine.recovery.cold_dir import require_cold_dir
from topics.engine.recovery.copied_records import Originals
from topics.engine.recovery.next_seqs import resume_head
from topics.engine.recovery.replay import Contained, Replay
from topics.engine.settings import EngineSettings
from topics.engine.upkeep.topic_lines import restore, router_line
from topics.errors import InvalidRequest, RefusedToOpen
from topics.storage import identity, layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import Fs
from topics.storage.handles import Handles
from topics.storage.segments.drop import find_retired
from topics.storage.segments.segment import ActiveSegment, AnySegment, Segment
from topics.storage.segments.store import SegmentStore
from topics.storage.segments.tiering import settled
from topics.storage.snapshots.chain import (
    BrokenChain,
    Chain,
    Changed,
    list_snapshots,
    read_chain,
)
from topics.storage.snapshots.file import BadSnapshot, Snapshot
from topics.storage.snapshots.lines import GroupPosition, TopicLine
from topics.storage.sources import Sources, WalSource
from topics.storage.wal.groups import discover
from topics.storage.wal.scan import GroupScan, require_whole_generation, scan_group
from topics.storage.wal.submission import Position

Tell = Callable[[float], None]
"""Gets the share that is done. It may raise, which ends the recovery before the disk is changed."""

SCAN_SHARE: Final = 0.8
"""What reading the log takes of it all; applying what was read takes the rest. Measured with four
million small records: 21 of 26 seconds."""


class Progress:
    """Puts the shares of the parts together."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def of_scan(self, *, group: int, groups: int) -> Tell:
        """What the scan of one group of log files tells."""
        return lambda share: self._tell(SCAN_SHARE * (group + share) / groups)

    def replayed(self, share: float) -> None:
        self._tell(SCAN_SHARE + (1 - SCAN_SHARE) * share)


class Found(msgspec.Struct):
    """The state that files describe, before anything is written."""

    fs: Fs
    path: str
    format: identity.StoreFormat
    catalog: Catalog
    sources: Sources
    handles: Handles
    store: SegmentStore
    arenas: Arenas  # records that were rebuilt and are in no file yet
    snapshot: Snapshot | None = None
    chain: Chain | None = None  # the files of that snapshot
    snapshot_number: int = 0  # highest number seen, valid or not
    changed: Changed = msgspec.field(default_factory=Changed)  # since the snapshot
    bad_snapshots: list[str] = msgspec.field(default_factory=list)
    scans: list[GroupScan] = msgspec.field(default_factory=list)
    owed: list[Fact] = msgspec.field(default_factory=list)  # what the new generation logs first
    warnings: list[str] = msgspec.field(default_factory=list)
    beside_owner: bool = False

    def leaves_reserved(self, same_boot: bool) -> bool:
        """Whether reserved seqs may still become records: not after a power loss."""
        return self.beside_owner and same_boot

    @property
    def generation(self) -> int:
        """The highest generation any file names."""
        known = [scan.newest_generation for scan in self.scans]
        known += [scan.group.current.generation for scan in self.scans if scan.group.current]
        if self.snapshot is not None:
            known.append(self.snapshot.head.generation)
        return max(known, default=0)

    @property
    def bytes_replayed(self) -> int:
        return sum(scan.bytes_scanned for scan in self.scans)

    @property
    def torn_bytes(self) -> int:
        return sum(scan.torn_bytes for scan in self.scans)

    @property
    def lost_frames(self) -> int:
        """How many frames salvage gave up at the most; each may have made a topic."""
        parts = [part for scan in self.scans for part in scan.generations]
        return sum(lost.frames for part in parts for lost in part.lost)


def find_state(
    fs: Fs,
    path: str,
    store_format: identity.StoreFormat,
    settings: EngineSettings,
    *,
    clock: Clock,
    progress: Tell = lambda share: None,
    beside_owner: bool = False,
) -> Found:
    """Steps 2 to 7: read everything, change nothing.

    Beside a running owner, the seqs that it has reserved are not skipped: it may still give them to
    records, and a reader whose cursor had passed them would never see these records.

    A missing segment need not be a loss: the log still holds what came after the older of two
    snapshots. So if a snapshot needs a segment that is missing, the snapshot before it is used.
    """
    unusable: list[str] = []
    reason: RefusedToOpen | None = None
    while True:
        found = _nothing_found(fs, path, store_format, settings)
        found.beside_owner = beside_owner
        found.bad_snapshots += unusable
        try:
            _find(found, settings, clock, Progress(progress))
        except (RefusedToOpen, FileNotFoundError) as error:
            found.handles.close()
            if isinstance(error, RefusedToOpen) and error.reason == "segment_missing":
                reason = reason or error
            if reason is None:
                raise
            if found.snapshot is None:
                raise reason from None
            unusable.append(layout.snapshot_path(path, found.snapshot.head.id))
            continue
        if reason is not None:
            found.warnings.append(f"{reason}; its records came back from the log")
        return found


def _nothing_found(
    fs: Fs, path: str, store_format: identity.StoreFormat, settings: EngineSettings
) -> Found:
    sources, handles = Sources(), Handles(fs)
    store = SegmentStore(fs, handles, path, settings.cold_dir)
    catalog = Catalog(
        max_keys=settings.max_idempotency_keys,
        history=lambda topic_id: SegmentHistory(topic_id, store, sources),
    )
    return Found(fs, path, store_format, catalog, sources, handles, store, Arenas(sources))


def _find(found: Found, settings: EngineSettings, clock: Clock, progress: Progress) -> None:
    path = found.path
    try:
        find_retired(found.store)
        _load_snapshot(found, clock.now_ms())
        crashpoint("rec.snapshot")
        require_cold_dir(found.store, found.catalog, found.format.id_bytes)
        try:
            _scan(found, progress, salvage=settings.wal_repair == "salvage")
        except RefusedToOpen as error:
            raise _explained(found, error) from error
        crashpoint("rec.scan")
        replay = _replay(found, settings, progress)
        require_cold_dir(found.store, found.catalog, found.format.id_bytes)
        _reconcile(found, replay, clock)
    except RefusedToOpen:
        raise
    except (OSError, EOFError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise RefusedToOpen(
            "io_error", message=f"{path} cannot be read: {error}; check the disk", file=path
        ) from error
    except MemoryError as error:
        raise RefusedToOpen(
            "io_error",
            message=f"not enough memory to open {path}; nothing was changed, free some",
            file=path,
        ) from error


# Snapshot and segments


def _load_snapshot(found: Found, now_ms: int) -> None:
    meta = f"{found.path}/{layout.META}"
    numbers = sorted(list_snapshots(found.fs, found.path), reverse=True)
    found.snapshot_number = max(numbers, default=0)
    for number in numbers:
        path = layout.snapshot_path(found.path, number)
        if path in found.bad_snapshots:
            continue
        try:
            found.chain = read_chain(
                found.fs, found.path, number, found.format.id_bytes, present=numbers
            )
            found.snapshot = found.chain.snapshot
            break
        except BadSnapshot as error:
            found.bad_snapshots.append(path)
            if isinstance(error, BrokenChain) and error.number in numbers:
                found.bad_snapshots.append(layout.snapshot_path(found.path, error.number))
            found.warnings.append(f"{path} is not a valid snapshot ({error}); an older one serves")
    if found.snapshot is None:
        if found.fs.exists(f"{meta}/{layout.TRIMMED}"):
            raise _no_snapshot(meta)
        return
    head = found.snapshot.head
    found.catalog.next_topic_id = head.next_topic_id
    found.catalog.lease_floor = head.last_lease_id
    for line in found.snapshot.topics:
        _restore_topic(found, line, now_ms)
    for router in found.snapshot.routers:
        found.catalog.routers.add(
            Router(**{name: getattr(router, name) for name in Router.__struct_fields__})
        )
    for app in found.snapshot.apps:
        found.catalog.apps[app.name] = StagingApp(
            app.epoch, bytes(app.result), app.last_use_ms, bytes.fromhex(app.owner)
        )


def _no_snapshot(meta: str) -> RefusedToOpen:
    return RefusedToOpen(
        "metadata_lost",
        message=f"{meta} has no valid snapshot and the log alone is not complete; "
        "restore a snapshot",
        file=meta,
    )


def _explained(found: Found, error: RefusedToOpen) -> RefusedToOpen:
    """The log is kept for the newest two snapshots only: behind those it misses nothing."""
    newest = sorted(list_snapshots(found.fs, found.path))[-2:]
    is_older = found.snapshot is not None and found.snapshot.head.id not in newest
    if is_older and error.reason in {"wal_missing", "wal_short"}:
        return _no_snapshot(f"{found.path}/{layout.META}")
    return error


def _restore_topic(found: Found, line: TopicLine, now_ms: int) -> None:
    try:
        config = parse_json(bytes(line.config))
    except InvalidRequest as error:
        raise RefusedToOpen(
            "metadata_lost",
            message=f"the snapshot's configuration of topic {line.name!r} is unusable: {error}; "
            "restore the snapshot",
            file=found.path,
        ) from error
    topic = found.catalog.new_topic(line.id, line.name, line.epoch, config)
    active = None
    if line.active is not None:
        first, last, data_len, idx_len = line.active
        bare = ActiveSegment(first, last, data_len, idx_len, min_ts=0, max_ts=0, created_ms=0)
        if found.store.check(line.id, bare).best is not None:
            active = found.store.restore_active(
                line.id, first=first, last=last, data_len=data_len, idx_len=idx_len
            )
        else:
            active = bare
    assert found.snapshot is not None
    since_ms = max(0, now_ms - found.snapshot.head.ts)  # as far as the clock can tell
    restore(topic, line, active, since_ms=since_ms)
    found.catalog.add(topic)


# Log


def _scan(found: Found, progress: Progress, *, salvage: bool) -> None:
    positions: dict[str, GroupPosition] = {}
    if found.snapshot is not None:
        positions = {position.key: position for position in found.snapshot.head.groups}

    def add_source(path: str) -> int:
        return found.sources.add(WalSource(path, found.handles))

    groups = discover(found.fs, f"{found.path}/{layout.WAL}")
    for number, group in enumerate(groups):
        position = positions.get(group.key)
        found.scans.append(
            scan_group(
                found.fs,
                group,
                store_id=found.format.id_bytes,
                start=_start(position),
                add_source=add_source,
                salvage=salvage,
                progress=progress.of_scan(group=number, groups=len(groups)),
            )
        )
        found.warnings += group.warnings
    require_whole_generation(found.scans)
    _require_run_of_snapshot(found)


def _require_run_of_snapshot(found: Found) -> None:
    """A run's log files outlive its snapshots: without any, what it logged afterwards is lost."""
    newest = max((scan.newest_generation for scan in found.scans), default=0)
    if found.snapshot is not None and newest < found.snapshot.head.generation:
        wal = f"{found.path}/{layout.WAL}"
        raise RefusedToOpen(
            "wal_missing",
            message=f"{wal} has no log file of the run that wrote the newest snapshot; restore it",
            file=wal,
        )


def _start(position: GroupPosition | None) -> Position | None:
    if position is None:
        return None
    return Position(position.file_lfn, position.offset, position.lfn)


def _replay(found: Found, settings: EngineSettings, progress: Progress) -> Replay:
    progress.replayed(0.0)
    contained = Contained()
    if found.snapshot is not None:
        head = found.snapshot.head
        contained = Contained(
            head.generation,
            head.next_topic_id,
            head.agnostic_lfn,
            {line.id: line.lfn for line in found.snapshot.topics},
        )
    originals = Originals(found.fs, found.path, found.store, found.sources, found.catalog)
    replay = Replay(
        found.catalog,
        contained,
        originals,
        found.arenas,
        TagLoader(found.catalog, found.sources),
        salvage=settings.wal_repair == "salvage",
        progress=progress.replayed,
    )
    replay.run(found.scans)
    return replay


# Reconcile


def _reconcile(found: Found, replay: Replay, clock: Clock) -> None:
    found.owed += replay.repaired
    found.warnings += [made.warning for made in replay.recreated]
    found.changed.topics |= replay.changed
    _note_changed(found)
    boot_ids = _boot_ids(found, replay)
    ours = found.fs.boot_id()
    for topic in list(found.catalog):
        history = segments_of(topic)
        history.marks_below = ALL
        topic.weights.clear()
        same_boot = boot_ids.get(topic.id) == ours
        owed = resume_head(
            topic,
            same_boot=same_boot,
            keeps_reserved=found.leaves_reserved(same_boot),
            doubtful=replay.lost_tails.of(topic),
        )
        if owed is not None:
            found.owed.append(owed)
        if owed is not None or not topic.durability.survives_restart:
            found.changed.topics.add(topic.id)
        _check_segments(found, topic, history)
        if _resume_leases(topic):
            found.changed.topics.add(topic.id)
    found.catalog.bytes = sum(topic.bytes for topic in found.catalog)
    for topic in replay.graveyard.values():
        if found.fs.exists(layout.topic_dir(found.path, topic.id)):
            found.warnings.append(f"topic {topic.name!r} was dropped; its files will be removed")


def _resume_leases(topic: Topic) -> bool:
    """Whether leases that the snapshot lists are over."""
    if not topic.config.leases_durable:
        return topic.forget_leases()
    if topic.leases is not None:
        leases = topic.leases
        leases.resume([seq for seq, _ in topic.sizes(1, leases.claim_cursor - 1)])
    return False


def _boot_ids(found: Found, replay: Replay) -> dict[int, bytes]:
    """Per topic the boot id of the run that last logged for it."""
    boot_ids = dict(replay.boot_ids)
    if found.snapshot is not None:
        written = found.snapshot.head.generation
        known = {part.generation: part.boot_id for scan in found.scans for part in scan.generations}
        for line in found.snapshot.topics:
            if line.id not in boot_ids and written in known:
                boot_ids[line.id] = known[written]
    return boot_ids


def _check_segments(found: Found, topic: Topic, history: SegmentHistory) -> None:
    """A segment with a live record must be there; a dead one may be gone."""
    parts: list[AnySegment | Resident] = []
    for part in history.parts:
        assert isinstance(part, Segment | ActiveSegment)
        copies = found.store.check(topic.id, part)
        if copies.best is None:
            if next(topic.extents(part.first, part.last), None) is not None:
                files = found.store.files(topic.id, part.label)
                raise RefusedToOpen(
                    "segment_missing",
                    message=f"{files.data} is gone or cut short, and it holds live records of "
                    f"topic {topic.name!r}; restore it",
                    file=files.data,
                )
            continue
        parts.append(settled(found.store, topic.id, part) if isinstance(part, Segment) else part)
    if parts != history.parts:
        found.changed.topics.add(topic.id)
        history.replace(parts, last=history.last)


def _note_changed(found: Found) -> None:
    """Note which routers and apps are other than the snapshot says."""
    snapshot, catalog = found.snapshot, found.catalog
    routers = {line.name: line for line in snapshot.routers} if snapshot is not None else {}
    apps = {line.name: line for line in snapshot.apps} if snapshot is not None else {}
    now = {router.name: router_line(router) for router in catalog.routers}
    found.changed.routers |= {
        name for name in routers.keys() | now.keys() if routers.get(name) != now.get(name)
    }
    found.changed.apps |= apps.keys() | catalog.apps.keys()
