"""Opening a directory: from files to a state that a crash could not have made wrong.

    1  lock, FORMAT, cold marker                      `directory`
    2  newest valid snapshot
    3  its topics, their segments checked by size
    4  log groups found, chains checked
    5  frames read and judged: torn tail or damage
    6  replay                                         `replay`
    7  reconcile: reserved seqs, delete bytes, segments that are gone
    8  repair: write back, cut tails, clear leftovers
    9  a new generation of log files, and what it must say first

Nothing on disk changes before step 8. A failure anywhere refuses the start and the next attempt
finds the same files. A read-only view stops after step 7.
"""

from __future__ import annotations

import os

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
from topics.engine.recovery.cleanup import clear_leftovers
from topics.engine.recovery.copied_records import Originals
from topics.engine.recovery.next_seqs import resume_head
from topics.engine.recovery.progress import Progress, Tell
from topics.engine.recovery.replay import Contained, Replay
from topics.engine.settings import EngineSettings
from topics.engine.upkeep.topic_lines import restore, router_line
from topics.errors import InvalidRequest, RefusedToOpen
from topics.storage import identity, layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import TMP_SUFFIX, Fs, parent_of
from topics.storage.handles import Handles
from topics.storage.segments.drop import drop_unreferenced, find_retired
from topics.storage.segments.repair import repair_all, trim
from topics.storage.segments.segment import COLD, ActiveSegment, AnySegment, Segment
from topics.storage.segments.store import CopyState, SegmentStore, finish
from topics.storage.segments.tiering import check_cold_dir, claim_cold_dir, settled
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
from topics.storage.wal.repair import apply_repair, quarantine
from topics.storage.wal.scan import GroupScan, require_whole_generation, scan_group
from topics.storage.wal.submission import Position

CHECKPOINT_AFTER_BYTES = 16 << 20


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

    Beside an owner that runs, seqs it has reserved are not skipped: it may yet give them to
    records, and a reader that had passed them would never see those.

    A segment that is gone need not be a loss: the log still holds what came after the older of two
    snapshots. So a snapshot that rests on such a segment makes way for the one before it.
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
        _require_cold_dir(found)
        try:
            _scan(found, progress, salvage=settings.wal_repair == "salvage")
        except RefusedToOpen as error:
            raise _explained(found, error) from error
        crashpoint("rec.scan")
        replay = _replay(found, settings, progress)
        _require_cold_dir(found)
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
                files = found.store.files(topic.id, part.first)
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


# Repair


def repair(found: Found, settings: EngineSettings, clock: Clock) -> None:
    """Step 8: put files right so that a new generation may follow."""
    now_ms = clock.now_ms()
    aside = f"{found.path}/{layout.QUARANTINE}"
    fs = found.fs
    try:
        for scan in found.scans:
            quarantine(fs, scan.damaged, aside, now_ms=now_ms)
            if scan.repair is not None:
                apply_repair(fs, scan.repair)
        dropped = _dropped(found)
        for topic in found.catalog:
            history = segments_of(topic)
            firsts = set(dropped.get(topic.id, ()))
            for part in history.parts:
                assert isinstance(part, Segment | ActiveSegment)
                firsts.add(part.first)
                if found.store.check(topic.id, part).hot is CopyState.LONGER:
                    trim(found.store, topic.id, part)
            finish(drop_unreferenced(found.store, topic.id, firsts))
        finish(repair_all(found.store, now_ms=now_ms))
        clear_leftovers(
            found.store,
            found.catalog.by_id,
            next_topic_id=found.catalog.next_topic_id,
            bad_snapshots=found.bad_snapshots,
            now_ms=now_ms,
        )
    except OSError as error:
        raise RefusedToOpen(
            "io_error",
            message=f"{found.path} cannot be repaired: {error}; check the disk",
            file=found.path,
        ) from error


def _dropped(found: Found) -> dict[int, list[int]]:
    """By topic the segments nobody needs any more, whose files may still be there."""
    if found.snapshot is None:
        return {}
    return {line.id: [first for first, _ in line.dropped] for line in found.snapshot.topics}


# Identity and tiers


def new_identity(clock: Clock) -> identity.StoreFormat:
    return identity.new_format(os.urandom(16), created_ms=clock.now_ms())


def _require_cold_dir(found: Found) -> None:
    """Refuse without the cold directory that segments are in: an unmounted volume is no loss."""
    cold_dir = found.store.cold_dir
    if cold_dir is not None and found.fs.exists(f"{cold_dir}/{layout.COLD_MARKER}"):
        check_cold_dir(found.fs, cold_dir, found.format.id_bytes)
    elif _has_cold_segments(found.catalog):
        if cold_dir is not None:
            check_cold_dir(found.fs, cold_dir, found.format.id_bytes)
        raise RefusedToOpen(
            "cold_missing",
            message="this store has segments in a cold directory; set cold_dir or TOPICS_COLD_DIR",
            file=found.path,
        )


def _has_cold_segments(catalog: Catalog) -> bool:
    return any(
        isinstance(part, Segment) and part.tier == COLD
        for topic in catalog
        if isinstance(topic.history, SegmentHistory)
        for part in topic.history.parts
    )


UNFINISHED_CLAIM = frozenset({layout.TOPICS, f"{layout.COLD_MARKER}{TMP_SUFFIX}"})
"""What is in a cold directory when the program died while it was claiming it."""


def prepare_cold_dir(fs: Fs, cold_dir: str | None, store_id: bytes) -> None:
    """Make a cold directory that is not there; refuse one in use that nobody has marked."""
    if cold_dir is None or fs.exists(f"{cold_dir}/{layout.COLD_MARKER}"):
        return
    topics = f"{cold_dir}/{layout.TOPICS}"
    strangers = set(fs.listdir(cold_dir)) - UNFINISHED_CLAIM if fs.exists(cold_dir) else set()
    if strangers or (fs.exists(topics) and fs.listdir(topics)):
        check_cold_dir(fs, cold_dir, store_id)
    for created in fs.mkdirs(topics):
        fs.sync_dir(parent_of(created))


def mark_cold_dir(fs: Fs, cold_dir: str | None, store_id: bytes) -> None:
    """Make a prepared cold directory ours."""
    if cold_dir is not None and not fs.exists(f"{cold_dir}/{layout.COLD_MARKER}"):
        claim_cold_dir(fs, cold_dir, store_id)
