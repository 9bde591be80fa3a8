"""The commit of staged records: all topics or none, whatever fails and whenever.

    close     the append gates of the topics: no other operation gives out a seq there
    barrier   a durable frame on each of their shards: every earlier record is safe, and so are
              the ceilings of reserved seqs
    point     one durable frame on shard 0 names the stages, the topics and their seqs. Before it
              nothing has happened; after it everything has, and replay completes what is missing
    append    the records go into the log of each topic, durable
    publish   all topics show them in one step; the gates open

A failure before the point leaves nothing. If the write or sync of the point failed, it is unknown
whether the point was reached; the topics take no writes until a restart finds out. A failure behind
the point strands the landing: nothing is shown, the topics take no writes, and what is missing is
appended as soon as the log takes it, or by replay.

A commit may concern very many topics. Whatever walks over them pauses now and then, and other
operations run in between. While many topics are being published, requests that name one of them
wait (`Kernel.publishing`), so that no reader sees a part of the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from topics.core.facts import (
    CheckpointMarked,
    Fact,
    HeadReserved,
    StageCommitted,
)
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Gate, Io, Op
from topics.engine.kernel import BARRIER_ID, CONTROL_BYTES, Kernel
from topics.engine.retention import retain
from topics.engine.stages.landing import (
    STEP_TOPICS,
    CommitChunk,
    Landing,
    TopicRecords,
    append,
    foresee,
    publish,
)
from topics.engine.writes.admission import Admission, Full, Refuse
from topics.engine.writes.lifecycle import Lifecycle
from topics.errors import Internal, InvalidRequest, LogFailed, Throttled
from topics.storage.crashpoints import crashpoint
from topics.storage.frames.buffer import encode
from topics.storage.wal.shard import ShardState
from topics.storage.wal.submission import Submission
from topics.topic_settings import TopicConfig


class Commit(msgspec.Struct, frozen=True):
    """Which stages of which epoch."""

    app: str
    epoch: int
    parts: tuple[tuple[int, int], ...]
    owner: bytes


class Stranded(Internal):
    """The commit stands, or may stand, but its records cannot be shown yet."""

    def __init__(self, landing: Landing, cause: Internal | None) -> None:
        fact = landing.fact
        super().__init__(
            f"the commit of epoch {fact.epoch} of app {fact.app!r} "
            + (
                f"waits until the log takes its records ({cause})"
                if landing.is_certain
                else f"may or may not have happened ({cause}); restart to find out"
            )
        )
        self.landing = landing


class Lander:
    def __init__(self, kernel: Kernel, lifecycle: Lifecycle, admission: Admission) -> None:
        self._kernel = kernel
        self._lifecycle = lifecycle
        self._admission = admission

    def land(self, commit: Commit, records: Mapping[str, TopicRecords]) -> Op[Landing]:
        """Commit these records; raises `Stranded` when they cannot be shown yet."""
        gates = self._kernel.gates
        topics, gate = yield from self._close(records)
        try:
            nbytes = yield from self._admit(topics, records)
        except BaseException:
            gates.open(gate)
            raise
        # Held from here on: other commits and writes are judged while this one waits.
        self._kernel.catalog.pending_bytes += nbytes
        try:
            yield from self._barrier(topics, records)
            crashpoint("stage.barrier")
            landing = yield from self._plan(commit, topics, records, nbytes)
            held = yield from foresee(self._kernel, landing)
            frames: bytes
            if len(topics) < STEP_TOPICS:
                frames = _encode_point(landing)
            else:
                frames = yield Io(partial(_encode_point, landing))
        except BaseException:
            self._kernel.catalog.pending_bytes -= nbytes
            gates.open(gate)
            raise
        gates.begin_landing(gate)
        if not self._kernel.in_memory:
            yield from self._point(landing, frames, gate)
            crashpoint("stage.committed")
        yield from self._complete(landing, gate)
        del held
        return landing

    def resume(self, landing: Landing) -> Op[None]:
        """Try again to append what is missing; raises `Stranded` when the log still refuses."""
        gate = Gate()
        self._kernel.gates.unstrand(landing.topic_ids, gate)
        yield from self._complete(landing, gate)

    # Before the point

    def _close(self, records: Mapping[str, TopicRecords]) -> Op[tuple[list[Topic], Gate]]:
        """Create missing topics and close the gates of all; returns the topics and their gate."""
        kernel = self._kernel
        while True:
            yield from self._foresee(records)
            topics = []
            for name in records:
                topic = kernel.catalog.by_name.get(name)
                if topic is None:
                    topic = yield from self._lifecycle.create(name, TopicConfig())
                topics.append(topic)
            gate = yield from kernel.gates.close([topic.id for topic in topics])
            # A wait may have brought a drop or a new configuration.
            if all(_is_usable(topic, kernel.catalog.by_name.get(topic.name)) for topic in topics):
                return topics, gate
            yield from kernel.gates.open_in_steps(gate)

    def _foresee(self, records: Mapping[str, TopicRecords]) -> Op[None]:
        """Refuse what can be told beforehand: a refused commit leaves no new topics behind."""
        catalog, limit = self._kernel.catalog, self._kernel.settings.max_topics
        present = [catalog.by_name[name] for name in records if name in catalog.by_name]
        for topic in present:
            _refuse_ephemeral(topic)
        missing = len(records) - len(present)
        if not missing:
            return  # what is judged behind the gate is enough
        if limit and len(catalog.by_id) + missing > limit:
            raise Throttled("max_topics", maximum=limit)
        yield from self._admit(present, records)

    def _admit(self, topics: Sequence[Topic], records: Mapping[str, TopicRecords]) -> Op[int]:
        """What a write to each of the topics would have to pass; returns the bytes of all."""
        kernel, admission = self._kernel, self._admission
        if kernel.log_is_too_long:
            raise kernel.backlog()
        kernel.require_room(0, CONTROL_BYTES)
        for count, topic in enumerate(topics, 1):
            yield from retain(kernel, topic)
            if count % STEP_TOPICS == 0:
                yield PAUSE
        nbytes, by_name = 0, {topic.name: topic for topic in topics}
        for count, (name, found) in enumerate(records.items(), 1):
            nbytes += found.nbytes
            if name in by_name:
                topic, first, sizes = by_name[name], found.pieces[0].batch, found.nbytes
                judged = admission.judge(
                    topic, first, sizes, log_bytes=CONTROL_BYTES, count=found.count
                )
                match judged:
                    case Full():
                        raise kernel.no_room(topic)
                    case Refuse(error=error):
                        raise error
            if count % STEP_TOPICS == 0:
                yield PAUSE
        if (refusal := admission.judge_quota(nbytes)) is not None:
            raise refusal.error
        return nbytes

    def _barrier(self, topics: Sequence[Topic], records: Mapping[str, TopicRecords]) -> Op[None]:
        kernel = self._kernel
        if kernel.in_memory:
            return
        now_ms = kernel.clock.now_ms()
        by_shard: dict[int, list[Fact]] = {}
        for count, topic in enumerate(topics, 1):
            if count % STEP_TOPICS == 0:
                yield PAUSE
            facts = by_shard.setdefault(kernel.committer.shard_of(topic.id), [])
            ceiling = topic.handed_out + records[topic.name].count
            if topic.durability.reserves_seqs and ceiling > topic.reserved:
                facts.append(HeadReserved(topic.id, max(now_ms, topic.last_ts), ceiling))
        submissions = [
            kernel.submit_to(
                shard, facts or [CheckpointMarked(now_ms, BARRIER_ID, ())], durable=True
            )
            for shard, facts in by_shard.items()
        ]
        for submission in submissions:
            if not submission.done:
                yield submission
        for submission in submissions:
            if submission.error is not None:
                raise submission.error

    def _plan(
        self,
        commit: Commit,
        topics: list[Topic],
        records: Mapping[str, TopicRecords],
        nbytes: int,
    ) -> Op[Landing]:
        """Give out the seqs. Behind the barrier nothing is on its way to these topics."""
        now_ms = self._kernel.clock.now_ms()
        chunks: list[CommitChunk] = []
        given: list[tuple[int, int, int]] = []
        answer: dict[str, dict[str, int]] = {}
        for number, topic in enumerate(topics, 1):
            if number % STEP_TOPICS == 0:
                yield PAUSE
            assert not topic.pending, "the barrier waits for every earlier write"
            first, count = topic.head + 1, records[topic.name].count
            ts = max(now_ms, topic.last_ts)
            given.append((topic.id, first, count))
            last = first + count - 1
            answer[topic.name] = {"first_seq": first, "last_seq": last, "count": count}
            seq = first
            for piece in records[topic.name].pieces:
                chunks.append(CommitChunk(topic, seq, ts, piece.batch, piece.count, piece.nbytes))
                seq += piece.count
            records[topic.name].pieces = []  # kept with the chunks, as long as the log needs them
        if len(topics) >= STEP_TOPICS:
            yield PAUSE
        fact = StageCommitted(
            now_ms,
            commit.app,
            commit.epoch,
            commit.parts,
            tuple(given),
            msgspec.json.encode(answer),
            commit.owner,
        )
        return Landing(fact, topics, chunks, nbytes)

    # The point

    def _point(self, landing: Landing, frames: bytes, gate: Gate) -> Op[None]:
        kernel = self._kernel
        if kernel.committer.state(0) is ShardState.FAILED:
            self._call_off(landing, gate)
            raise LogFailed(shard=0, reason="it failed before this commit")
        submission = Submission(0, frames, 1, durable=True, on_done=self._note)
        kernel.committer.submit(submission)
        if not submission.done:
            yield submission
        error = submission.error
        if isinstance(error, LogFailed):
            landing.is_certain = False
            raise self._strand(landing, gate, error) from error
        if error is not None:  # not one byte of it was kept
            self._call_off(landing, gate)
            raise error
        landing.lfn = submission.last_lfn

    def _note(self, submission: Submission) -> None:
        if submission.error is None:
            self._kernel.applied[submission.shard] = submission.last_lfn

    def _call_off(self, landing: Landing, gate: Gate) -> None:
        self._kernel.catalog.pending_bytes -= landing.nbytes
        self._kernel.gates.end_landing(gate)
        self._kernel.gates.open(gate)

    def _strand(self, landing: Landing, gate: Gate, cause: Internal | None) -> Stranded:
        stranded = Stranded(landing, cause)
        self._kernel.gates.strand(gate, str(stranded))
        return stranded

    # Behind the point

    def _complete(self, landing: Landing, gate: Gate) -> Op[None]:
        error = yield from append(self._kernel, landing)
        if error is not None:
            raise self._strand(landing, gate, error) from error
        crashpoint("stage.appended")
        try:
            held = yield from foresee(self._kernel, landing)
        except Exception as failure:
            cause = failure if isinstance(failure, Internal) else Internal(repr(failure))
            raise self._strand(landing, gate, cause) from failure
        try:
            yield from publish(self._kernel, landing)
            del held
        except Exception as failure:
            landing.is_certain = False  # some of it may be shown: a restart shows all of it
            cause = Internal(f"its records could not be published: {failure!r}")
            raise self._strand(landing, gate, cause) from failure
        crashpoint("stage.published")
        self._kernel.gates.end_landing(gate)
        yield from self._kernel.gates.open_in_steps(gate)


def _encode_point(landing: Landing) -> bytes:
    try:
        return encode(landing.fact, durable=True)
    except ValueError as error:
        raise InvalidRequest(
            f"a commit of {len(landing.fact.parts)} parts over {len(landing.topics)} topics is too "
            "large to be logged as one; use fewer, larger parts"
        ) from error


def _refuse_ephemeral(topic: Topic) -> None:
    if not topic.durability.survives_restart:
        raise InvalidRequest(
            f"topic {topic.name!r} is ephemeral: it cannot take part in a commit that survives a "
            "crash; stage for another topic or change its durability"
        )


def _is_usable(topic: Topic, holder: Topic | None) -> bool:
    return topic is holder and topic.durability.survives_restart
