"""The work of an erasure, in the maintenance lane: what is deleted goes from every file.

    rotate      every shard goes on in a new log file; the erased bytes are in earlier ones
    seal        a checkpoint moves the tail to segments, deleted records left out, and seals
    rewrite     each segment that still has bytes of dead records gets a new version without them
    keys        idempotency keys of writes that are gone as a whole are forgotten
    checkpoint  two whole snapshots name the new versions; then nothing needs the old files, and
                the old log files neither. More of them, if the disk refused to remove something
    search      samples of the erased bytes are looked for in every file
    receipt     the ledger keeps what was done

All erasures that have begun are worked on together. Nothing here is remembered beyond the notes of
the ledger: after a crash everything begins anew and finds less to do. Every step may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Io, Op
from topics.engine.erasures import ErasureBook, Running
from topics.engine.kernel import Kernel
from topics.engine.reads.history import segments_of
from topics.engine.upkeep.snapshots import Snapshots
from topics.engine.upkeep.trimming import Trimmer
from topics.errors import Internal
from topics.storage import layout
from topics.storage.byte_scan import ProbeHit, SearchedRange, search
from topics.storage.crashpoints import crashpoint
from topics.storage.erasures import NO_RECEIPT, BadLedger, ByteScan, Erasure, Rewritten, hash_of
from topics.storage.segments.rewriting import Rewrite, has_dead_bytes, rewrite_segment
from topics.storage.segments.segment import HOT, Segment
from topics.storage.segments.store import SegmentStore

MOST_CHECKPOINTS = 4
"""After so many, files that should be gone are a reason to try again later."""
LAKE_CURSORS = "lake."


class ErasureWork(msgspec.Struct):
    """What was done for one erasure, for its receipt."""

    rewritten: list[Rewritten] = msgspec.field(default_factory=list)
    removed: list[str] = msgspec.field(default_factory=list)
    files: int = 0
    nbytes: int = 0
    found: set[str] = msgspec.field(default_factory=set)
    unread: set[str] = msgspec.field(default_factory=set)


class Eraser:
    """Works on the erasures of a book. `trimmer` lets old files go, `snapshots` name new ones."""

    def __init__(
        self,
        kernel: Kernel,
        book: ErasureBook,
        trimmer: Trimmer,
        snapshots: Snapshots,
        *,
        shards: int,
    ) -> None:
        assert kernel.segments is not None
        self._kernel = kernel
        self._book = book
        self._trimmer = trimmer
        self._snapshots = snapshots
        self._shards = shards
        self._store: SegmentStore = kernel.segments

    @property
    def is_due(self) -> bool:
        """Whether an erasure is under way."""
        return bool(self._book.running)

    def advance(
        self, checkpoint: Callable[[], Op[None]], checkpoint_if_due: Callable[[], Op[None]]
    ) -> Op[None]:
        """Bring every erasure that has begun to its receipt."""
        batch = [(running, ErasureWork()) for running in self._book.ready()]
        if not batch:
            return
        old_logs = yield from self._rotate(batch)
        self._seal_growing(batch)
        yield from checkpoint()
        for running, done in batch:
            yield from self._rewrite(running, done, checkpoint_if_due)
            yield from self._forget_keys(running)
        self._snapshots.whole_next = 2
        yield from self._let_old_files_go(batch, old_logs, checkpoint)
        for running, done in batch:
            done.removed += [self._short(path) for path in old_logs]
            yield from self._search(running, done, checkpoint_if_due)
            yield from self._keep_receipt(running, done)

    def _topic(self, running: Running) -> Topic | None:
        return self._kernel.catalog.by_id.get(running.begun.topic_id)

    # Where new bytes go

    def _rotate(self, batch: list[tuple[Running, ErasureWork]]) -> Op[list[str]]:
        """Go on in new log files; returns the paths of the old ones."""
        for running, _ in batch:
            running.phase = "sealing"
        before: list[str] = yield Io(self._log_files)
        for shard in range(self._shards):
            yield Io(partial(self._kernel.committer.rotate, shard))
        current = {self._current(shard) for shard in range(self._shards)}
        return [path for path in before if path not in current]

    def _log_files(self) -> list[str]:
        fs, wal = self._store.fs, f"{self._store.data_dir}/{layout.WAL}"
        groups = [name for name in fs.listdir(wal) if layout.parse_group(name) is not None]
        return [
            f"{place}/{name}"
            for place in (wal, *(f"{wal}/{group}" for group in groups))
            for name in fs.listdir(place)
            if layout.parse_wal(name) is not None
        ]

    def _current(self, shard: int) -> str:
        directory = layout.group_dir(self._store.data_dir, layout.group_key(shard, self._shards))
        return layout.wal_path(directory, self._kernel.committer.position(shard).file_lfn)

    def _seal_growing(self, batch: list[tuple[Running, ErasureWork]]) -> None:
        """Have the next checkpoint seal what grows: a segment that grows is not written anew."""
        for running, _ in batch:
            topic = self._topic(running)
            if topic is None:
                continue
            self._kernel.dirty.add(topic.id)
            active = segments_of(topic).active
            if active is not None:
                self._store.to_seal.add((topic.id, active.first))

    # Segments and keys

    def _rewrite(
        self, running: Running, done: ErasureWork, checkpoint_if_due: Callable[[], Op[None]]
    ) -> Op[None]:
        running.phase = "rewriting"
        topic = self._topic(running)
        segments = [] if topic is None else segments_of(topic).sealed
        running.segments, running.segments_done = len(segments), 0
        for seg in segments:
            topic = self._topic(running)
            if topic is None:
                return
            current = next((s for s in segments_of(topic).sealed if s.first == seg.first), None)
            if current is not None:
                yield from self._rewrite_one(topic, current, done)
            running.segments_done += 1
            yield PAUSE
            yield from checkpoint_if_due()

    def _rewrite_one(self, topic: Topic, seg: Segment, done: ErasureWork) -> Op[None]:
        """Write one segment anew, if it has bytes of dead records. One that is dead as a whole is
        left to the checkpoint, which drops it."""
        live = list(topic.extents(seg.first, seg.last))
        if not live or live == [(seg.first, seg.last)]:
            return
        store = self._store
        idx = yield Io(partial(store.idx, topic.id, seg))
        if not (yield Io(partial(has_dead_bytes, idx, seg.first, live))):
            return
        yield from self._snapshots.announce_rewritten()
        steps = rewrite_segment(store, topic.id, seg, live)
        rewrite: Rewrite | None = None
        while rewrite is None:
            rewrite = yield Io(partial(_next_step, steps))
            yield PAUSE
        if self._kernel.catalog.by_id.get(topic.id) is not topic:
            return  # dropped meanwhile, and its directory goes with all that is in it
        self._trimmer.replaced(topic.id, seg.label, seg.last)
        segments_of(topic).put_in_place(rewrite.segment)
        store.keep(topic.id, rewrite.segment, rewrite.idx)
        self._kernel.dirty.add(topic.id)
        crashpoint("erase.swapped")
        old = store.files(topic.id, seg.label, seg.tier if store.cold_dir else HOT).data
        done.rewritten.append(Rewritten(self._short(old), rewrite.records, rewrite.saved))

    def _forget_keys(self, running: Running) -> Op[None]:
        """Forget the keys of writes of which no record is left: a key may tell about a person."""
        topic = self._topic(running)
        if topic is None or not len(topic.keys):
            return
        doomed = []
        for count, (key, entry) in enumerate(list(topic.keys.items()), 1):
            last = entry.first_seq + entry.count - 1
            if next(topic.extents(entry.first_seq, last), None) is None:
                doomed.append(key)
            if count % 1024 == 0:
                yield PAUSE
        if doomed:
            topic.keys.forget(doomed)
            self._kernel.dirty.add(topic.id)

    # Old files

    def _let_old_files_go(
        self,
        batch: list[tuple[Running, ErasureWork]],
        old_logs: list[str],
        checkpoint: Callable[[], Op[None]],
    ) -> Op[None]:
        """Checkpoint until neither kept snapshot needs what there was before."""
        for running, _ in batch:
            running.phase = "removing"
        yield from checkpoint()
        left = "the erasure is not over"
        for _ in range(MOST_CHECKPOINTS):
            yield from checkpoint()
            crashpoint("erase.dropped")
            left = yield from self._left(batch, old_logs)
            if not left:
                return
        raise Internal(f"files with erased bytes could not be removed yet: {left}")

    def _left(self, batch: list[tuple[Running, ErasureWork]], old_logs: list[str]) -> Op[str]:
        """A file or topic that should be gone and is not; empty when there is none."""
        exists = self._store.fs.exists
        for path in old_logs:
            if (yield Io(partial(exists, path))):
                return path
        for running, _ in batch:
            topic_id = running.begun.topic_id
            if self._trimmer.dropped(topic_id):
                return f"segments of topic {running.begun.topic}"
            if self._topic(running) is None:
                for root in self._store.roots:
                    for place in (layout.topic_dir, layout.deleted_topic_dir):
                        if (yield Io(partial(exists, place(root, topic_id)))):
                            return place(root, topic_id)
        return ""

    # What is left to be found

    def _search(
        self, running: Running, done: ErasureWork, checkpoint_if_due: Callable[[], Op[None]]
    ) -> Op[None]:
        running.phase = "searching"
        probes = list(dict.fromkeys(running.probes))
        if not probes:
            return
        ranges = search(self._store.fs, self._store.roots, probes)
        erased = running.begun.erased
        while True:
            scanned: SearchedRange | None = yield Io(partial(next, ranges, None))
            if scanned is None:
                return
            done.files += scanned.is_new
            done.nbytes += scanned.size
            if scanned.is_unread:
                done.unread.add(self._short(scanned.path))
            if any(self._is_erased(hit, running.begun.topic_id, erased) for hit in scanned.hits):
                done.found.add(self._short(scanned.path))
            yield PAUSE
            yield from checkpoint_if_due()

    def _is_erased(self, hit: ProbeHit, topic_id: int, erased: list[tuple[int, int]]) -> bool:
        """Whether a hit is not just another record that says the same."""
        if hit.record is None:
            return True
        found_id, seq = hit.record
        topic = self._kernel.catalog.by_id.get(found_id)
        if found_id == topic_id:
            return any(lo <= seq <= hi for lo, hi in erased)
        return topic is None or not topic.is_live(seq)

    def _keep_receipt(self, running: Running, done: ErasureWork) -> Op[None]:
        ledger = self._book.ledger
        try:
            files = yield Io(ledger.files)
        except BadLedger as error:
            raise Internal(f"the ledger of erasures does not hold: {error}") from error
        begun = running.begun
        receipt = Erasure(
            **{name: getattr(begun, name) for name in begun.__struct_fields__},
            previous=hash_of(files[-1][1]) if files else NO_RECEIPT,
            ended_ms=self._kernel.clock.now_ms(),
            rewritten=done.rewritten,
            removed=done.removed,
            scan=ByteScan(
                probes=len(set(running.probes)),
                files=done.files,
                bytes=done.nbytes,
                found=sorted(done.found),
                unread=sorted(done.unread),
            ),
            unreached=list(self._unreached(running)),
        )
        yield Io(partial(ledger.append, receipt))
        del self._book.running[begun.number]

    def _unreached(self, running: Running) -> Iterator[str]:
        """Places that may have copies, as far as the store knows of them."""
        topic_id = running.begun.topic_id
        for router in self._kernel.catalog.routers:
            if router.source_id == topic_id:
                yield f"topic {router.dest}, to which router {router.name} copies"
        topic = self._topic(running)
        letters = None if topic is None else topic.config.dead_letter
        if letters is not None and letters in self._kernel.catalog.by_name:
            yield f"topic {letters}, which takes the dead letters of the queue"
        for cursor in topic.cursors if topic is not None else ():
            if cursor.startswith(LAKE_CURSORS):
                yield f"the table of cursor {cursor}: run lake sync, then lake maintain"
        yield "backups made before: a restore applies this receipt"

    def _short(self, path: str) -> str:
        """A path below the data or the cold directory."""
        roots = [root for root in self._store.roots if path.startswith(root + "/")]
        return path[len(max(roots, key=len)) + 1 :] if roots else path


def _next_step(steps: Iterator[None]) -> Rewrite | None:
    try:
        next(steps)
    except StopIteration as finished:
        rewrite: Rewrite = finished.value
        return rewrite
    return None
