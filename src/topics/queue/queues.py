"""Queue operations: claim, ack, nack, extend, release.

An ack is a delete of the log, waited for as the topic's class asks. The job stays leased until the
delete is applied, and goes back to be handed out if it could not be logged. Everything else changes
memory at once; queues with durable leases log an event, without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from topics.core.config import MAX_LEASE_MS, MIN_LEASE_MS
from topics.core.facts import LeaseChanged
from topics.core.leases import Lease, LeaseBook
from topics.core.loading import NotLoaded
from topics.core.topic import Topic
from topics.engine.effects import Gate, Op, Sleep
from topics.engine.engine import Engine
from topics.engine.retention import may_have_expired, retain
from topics.engine.upkeep.lease_log import (
    Presence,
    live_leases,
    log_leases,
    queue_counts,
    sweep_leases,
)
from topics.engine.writes.append import Timing
from topics.engine.writes.deleting import DeleteSubmission, check_seqs, removed_by
from topics.errors import NotAQueue, TopicsError
from topics.queue.claiming import Claimer, claim_pass
from topics.queue.dead_letters import RETRY_UNREADABLE_MS, DeadLetters, letters_of
from topics.queue.fetching import Fetcher
from topics.queue.holding import Named, Part, acked_parts, check_node, checked, hold
from topics.queue.jobs import NO_JOBS, ClaimedJobs
from topics.queue.peeking import peek
from topics.queue.read_ahead import Background
from topics.values import (
    Acked,
    Extended,
    Failure,
    JobState,
    Nacked,
    PeekedJobs,
    QueueCounts,
    Redriven,
)

MAX_DELAY_MS = 86_400_000
MAX_CLAIM = 1000
MAX_PEEK = 1000
GENERATION_SHIFT = 40


class _Cohort:
    """Claims of one window, and the gate that opens once they were served."""

    __slots__ = ("claimers", "error", "served")

    def __init__(self) -> None:
        self.claimers: list[Claimer] = []
        self.served = Gate()
        self.error: TopicsError | None = None


class Queues:
    """All queues of one engine.

    With `has_windows` claims within a queue's `claim_jitter_ms` wait for each other and are served
    together; a caller that cannot wait is a cohort of its own. `in_background` runs an operation
    without a caller, such as reading ahead.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_claim: int = MAX_CLAIM,
        has_windows: bool = True,
        in_background: Background | None = None,
    ) -> None:
        self._engine = engine
        self._kernel = engine.kernel
        self._max_claim = max_claim
        self._has_windows = has_windows
        # Ids never repeat: not after a restart, not for a queue created again.
        self._next_lease_id = (self._kernel.generation << GENERATION_SHIFT) + 1
        self._cohorts: dict[int, _Cohort] = {}
        self._fetcher = Fetcher(engine, in_background)
        self._letters = DeadLetters(engine)
        self.changed: Callable[[Topic], None] = _ignore
        """Called with a queue whose leases have changed: it may have jobs to claim again."""

    # Claiming

    def claim(
        self,
        name: str,
        *,
        node: str,
        most: int = 1,
        lease_ms: int | None = None,
        presence: Presence | None = None,
    ) -> Op[ClaimedJobs]:
        """Lease up to `most` jobs to a worker; fewer or none is a normal answer.

        A worker that is no longer present gets nothing, and what it got by then is given back.
        """
        topic = self.queue(name)
        claimer = self.claimer(topic, node=node, most=most, lease_ms=lease_ms, presence=presence)
        if self.has_window(topic):
            yield from self._join_cohort(topic, claimer, topic.config.claim_jitter_ms)
            (outcome,) = yield from self._collected(topic, [claimer])
        else:
            (outcome,) = yield from self.claim_all(name, [claimer])
        if isinstance(outcome, TopicsError):
            raise outcome
        return outcome

    def claimer(
        self,
        topic: Topic,
        *,
        node: str,
        most: int = 1,
        lease_ms: int | None = None,
        presence: Presence | None = None,
    ) -> Claimer:
        """A checked claim that was not served yet."""
        check_node(node)
        return Claimer(node, self.clamped(most), _lease_ms(topic, lease_ms), presence or _PRESENT)

    def has_window(self, queue: Topic) -> bool:
        """Whether claims wait for each other by the clock."""
        return queue.config.claim_jitter_ms > 0 and self._has_windows

    def claim_all(
        self, name: str, claimers: Sequence[Claimer]
    ) -> Op[list[ClaimedJobs | TopicsError]]:
        """Serve several claims one after the other, as one; what became of each, in order."""
        topic, leases = self._queue(name)
        if self._is_behind(topic) or not self._pass_at_once(topic, leases, claimers):
            yield from self._serve(topic, claimers, is_cohort=False)
        elif leases.spent:
            yield from self._letters.bury(topic)
        else:
            jobs = self._fetcher.at_hand(topic, claimers)
            if jobs is not None:
                ready = queue_counts(topic)[0]
                return [ClaimedJobs(name, found, ready) for found in jobs]
        return (yield from self._collected(topic, claimers))

    def _join_cohort(self, topic: Topic, claimer: Claimer, jitter_ms: int) -> Op[None]:
        """The first claim opens a window; all that arrive in it are served at its end.

        The window belongs to the queue: the operation that opened it goes on if its caller
        disconnects, and serves the other claims.
        """
        cohort = self._cohorts.get(topic.id)
        if cohort is not None:
            cohort.claimers.append(claimer)
            yield cohort.served
            if cohort.error is not None:
                raise cohort.error
            return
        cohort = self._cohorts[topic.id] = _Cohort()
        cohort.claimers.append(claimer)
        try:
            yield Sleep(jitter_ms / 1000)
            del self._cohorts[topic.id]
            yield from self._serve(topic, cohort.claimers, is_cohort=True)
        except TopicsError as error:
            cohort.error = error
            raise
        finally:
            cohort.served.open()

    def _is_behind(self, topic: Topic) -> bool:
        """Whether expiry or routers have to run before the queue's records are up to date."""
        if self._kernel.catalog.routers.by_name:
            return True
        return bool(topic.config.ttl_ms) and may_have_expired(self._kernel, topic)

    def _serve(self, topic: Topic, claimers: Sequence[Claimer], *, is_cohort: bool) -> Op[None]:
        live_leases(self._kernel, topic)
        yield from self._engine.catch_up(topic)
        yield from retain(self._kernel, topic)

        def hand_out() -> LeaseBook:
            # Asked again after each wait, which may have brought a drop of the queue.
            leases = live_leases(self._kernel, topic)
            self._pass(topic, leases, claimers, is_cohort=is_cohort)
            return leases

        leases = yield from self._kernel.indexes.ask(topic, hand_out)
        if leases.spent:
            yield from self._letters.bury(topic)

    def _pass_at_once(self, topic: Topic, leases: LeaseBook, claimers: Sequence[Claimer]) -> bool:
        """Hand out what there is; False, with nothing done, when an index has to be loaded."""
        try:
            self._kernel.indexes.ask_memory(self._pass, topic, leases, claimers, is_cohort=False)
        except NotLoaded:
            return False
        return True

    def _pass(
        self,
        topic: Topic,
        leases: LeaseBook,
        claimers: Sequence[Claimer],
        *,
        is_cohort: bool,
    ) -> None:
        """Hand out what there is, and leave a trace of it."""
        claim_pass(
            topic,
            leases,
            claimers,
            is_cohort=is_cohort,
            now_ms=sweep_leases(self._kernel, topic),
            lease_ids=self._take_lease_ids,
        )
        if topic.config.leases_durable:
            granted = [held for x in claimers for held in zip(x.seqs, x.leases, strict=True)]
            log_leases(self._kernel, topic, LeaseChanged.CLAIMED, granted)

    def _take_lease_ids(self, count: int) -> range:
        first = self._next_lease_id
        self._next_lease_id = end = first + count
        return range(first, end)

    def _collected(
        self, topic: Topic, claimers: Sequence[Claimer]
    ) -> Op[list[ClaimedJobs | TopicsError]]:
        """The jobs of each claimer; the jobs of a claimer that has disconnected are given back."""
        try:
            jobs, unreadable = yield from self._fetcher.fetch(topic, claimers)
        except TopicsError as error:
            if len(claimers) == 1:
                self.release(topic, claimers[0].held)
                return [error]
            outcomes: list[ClaimedJobs | TopicsError] = []
            for claimer in claimers:  # one by one: a failure for one must not fail the others
                outcomes += yield from self._collected(topic, [claimer])
            return outcomes
        if unreadable:
            self._release(topic, unreadable, self._kernel.clock.now_ms() + RETRY_UNREADABLE_MS)
        for at, claimer in enumerate(claimers):
            if claimer.is_gone:
                self.release(topic, claimer.held)
                jobs[at] = NO_JOBS
        ready = self.counts(topic)[0]
        return [ClaimedJobs(topic.name, found, ready) for found in jobs]

    # Finishing, giving back, prolonging

    def ack(
        self, name: str, *, node: str, seqs: Sequence[int], lease_ids: Sequence[int | None] = ()
    ) -> Op[Acked]:
        """Remove finished jobs; those no longer held are `skipped`."""
        (outcome,) = yield from self.ack_all(name, [self.named(node, seqs, lease_ids)])
        if isinstance(outcome, TopicsError):
            raise outcome
        return outcome

    def ack_all(
        self, name: str, asked: Sequence[Named], timing: Timing | None = None
    ) -> Op[list[Acked | TopicsError]]:
        """Remove the finished jobs of several calls with one delete; what became of each, in order.

        The result is as if the calls came one after the other: a job that two calls name counts
        for the first. A call whose jobs could not be removed has given them back. `timing` gets
        what the delete waited for.
        """
        topic, _ = self._queue(name)
        if topic.config.ttl_ms:
            yield from retain(self._kernel, topic)
        leases = self._swept(topic)
        held: dict[int, Lease] = {}
        parts: list[Part] = []
        for named in asked:
            start = len(held)
            skipped = hold(leases, named, held)
            parts.append((start, len(held), skipped))
        gone: Collection[int] = ()
        error: TopicsError | None = None
        if held:
            try:
                submission: DeleteSubmission | None = None
                if topic.id not in self._kernel.gates.closed:
                    with suppress(NotLoaded):  # as if the queue took no writes now
                        submission = self._engine.submit_delete(topic, tuple(held))
                if submission is None or not submission.done:
                    gone = yield from self._finish(topic, leases, held, submission, timing)
                elif submission.error is not None:
                    raise submission.error
            except TopicsError as failure:
                error = failure
                self.release(topic, {seq: lease.lease_id for seq, lease in held.items()})
            else:
                if topic.config.leases_durable:
                    log_leases(self._kernel, topic, LeaseChanged.ACKED, list(held.items()))
                self.changed(topic)
        if gone:
            return acked_parts(topic, asked, parts, tuple(held), gone)
        ready, in_flight = queue_counts(topic)
        return [
            Acked(name, end - start, skipped, ready, in_flight)
            if error is None or start == end
            else error
            for start, end, skipped in parts
        ]

    def _finish(
        self,
        topic: Topic,
        leases: LeaseBook,
        held: Mapping[int, Lease],
        submission: DeleteSubmission | None,
        timing: Timing | None,
    ) -> Op[Collection[int]]:
        """Wait for the delete; returns those of the jobs that had gone by themselves before.

        Meanwhile neither the clock nor another call takes the jobs away. Without a submission the
        queue takes no writes now, and has to be waited for first.
        """
        leases.finishing.update(held)
        try:
            if submission is None:
                submission = yield from self._engine.begin_delete(topic, tuple(held))
                if submission is None:
                    return held
            if not submission.done:
                yield submission
            removed_by(submission)
            if timing is not None:
                timing.note(submission, 0)
        finally:
            leases.finishing.difference_update(held)
        sweep_leases(self._kernel, topic)
        return submission.gone

    def nack(
        self,
        name: str,
        *,
        node: str,
        seqs: Sequence[int],
        lease_ids: Sequence[int | None] = (),
        delay_ms: int = 0,
        error: tuple[str, str] | None = None,
    ) -> Op[Nacked]:
        """Give jobs back, for now or for later. `error`: type and message of what went wrong."""
        named = self.named(node, seqs, lease_ids)
        topic, _ = self._queue(name)
        if topic.config.ttl_ms:
            yield from retain(self._kernel, topic)
        leases = self._swept(topic)
        held: dict[int, Lease] = {}
        skipped = hold(leases, named, held)
        now_ms = self._kernel.clock.now_ms()
        ready_at = now_ms + min(delay_ms, MAX_DELAY_MS) if delay_ms else None
        if error is not None:
            leases.note_failure(held, Failure(node, now_ms, *error))
        self._release(topic, {seq: lease.lease_id for seq, lease in held.items()}, ready_at)
        ready, in_flight = self.counts(topic)
        return Nacked(name, len(held), skipped, ready, in_flight)

    def extend(
        self,
        name: str,
        *,
        node: str,
        seqs: Sequence[int],
        lease_ids: Sequence[int | None] = (),
        lease_ms: int,
    ) -> Op[Extended]:
        """Hold jobs for `lease_ms` from now; lease id and delivery count stay."""
        named = self.named(node, seqs, lease_ids)
        topic, _ = self._queue(name)
        if topic.config.ttl_ms:
            yield from retain(self._kernel, topic)
        leases = self._swept(topic)
        held: dict[int, Lease] = {}
        skipped = hold(leases, named, held)
        deadline_ms = self._kernel.clock.now_ms() + _lease_ms(topic, lease_ms)
        if held:
            leases.extend(tuple(held), deadline_ms)
            extended = [(seq, leases.leased[seq]) for seq in held]
            log_leases(self._kernel, topic, LeaseChanged.EXTENDED, extended)
            self.changed(topic)
        return Extended(name, len(held), skipped, dict.fromkeys(held, deadline_ms))

    def release(self, topic: Topic, held: Mapping[int, int]) -> None:
        """Give back leases, by seq and lease id, whose holder has gone; stale ones stay."""
        if self._kernel.is_there(topic):
            self._release(topic, held, None)

    def _release(self, topic: Topic, held: Mapping[int, int], ready_at: int | None) -> None:
        leases = topic.leases
        assert leases is not None
        now_ms = self._kernel.clock.now_ms()
        freed: list[tuple[int, Lease]] = []
        for seq, lease_id in held.items():
            lease = leases.holder(seq)
            if lease is not None and lease.lease_id == lease_id:
                leases.release(seq, ready_at)
                freed.append((seq, Lease(lease_id, lease.node, ready_at or now_ms)))
        log_leases(self._kernel, topic, LeaseChanged.RELEASED, freed)
        if freed:
            self.changed(topic)

    # Dead letters

    def redrive(
        self,
        name: str,
        *,
        source: str | None = None,
        most: int = 100,
        seqs: Sequence[int] | None = None,
    ) -> Op[Redriven]:
        """Put dead letters of this queue back into it, oldest first: up to `most`, or exactly the
        letters that `seqs` names, which are seqs of the dead-letter topic."""
        topic, _ = self._queue(name)
        letters = self._kernel.topic(letters_of(topic, source))
        named = None if seqs is None else check_seqs(seqs)
        return (yield from self._letters.redrive(topic, letters, self.clamped(most), named))

    # Shared

    def clamped(self, most: int | None) -> int:
        """How many jobs a call may have; one that does not say gets one."""
        return min(max(most or 1, 1), self._max_claim)

    def counts(self, topic: Topic) -> tuple[int, int]:
        """Jobs ready to be claimed, and jobs on lease."""
        sweep_leases(self._kernel, topic)
        return queue_counts(topic)

    def stats(self, name: str) -> Op[QueueCounts]:
        """Jobs ready, on lease, and moved away as dead letters."""
        topic, _ = self._queue(name)
        yield from self._engine.catch_up(topic)
        yield from retain(self._kernel, topic)
        leases = live_leases(self._kernel, topic)
        return QueueCounts(*self.counts(topic), leases.dead_lettered)

    def peek(self, name: str, *, state: JobState | None = None, most: int = 100) -> Op[PeekedJobs]:
        """Jobs and which worker holds them; none is taken."""
        topic, _ = self._queue(name)
        yield from self._engine.catch_up(topic)
        yield from retain(self._kernel, topic)
        leases = self._swept(topic)
        most = min(max(most, 1), MAX_PEEK)
        return (yield from peek(self._engine, topic, leases, state, most))

    def still_held(self, topic: Topic, held: Mapping[int, int]) -> dict[int, int]:
        """Those of these leases, by seq and lease id, that are neither over nor ending."""
        leases = topic.leases
        assert leases is not None
        sweep_leases(self._kernel, topic)
        found = ((seq, lease_id, leases.holder(seq)) for seq, lease_id in held.items())
        return {
            seq: lease_id
            for seq, lease_id, lease in found
            if lease is not None and lease.lease_id == lease_id
        }

    def queue(self, name: str) -> Topic:
        """The topic of a queue; refuses what is absent or none."""
        return self._queue(name)[0]

    def _queue(self, name: str) -> tuple[Topic, LeaseBook]:
        topic = self._kernel.topic(name)
        if topic.leases is None:
            raise NotAQueue(name)
        return topic, topic.leases

    def named(self, node: str, seqs: Sequence[int], lease_ids: Sequence[int | None] = ()) -> Named:
        """The jobs a call is about, which is checked."""
        return checked(Named(node, seqs, lease_ids), maximum=self._max_claim)

    def _swept(self, topic: Topic) -> LeaseBook:
        """The leases of a queue that was there before a wait, as of now."""
        leases = live_leases(self._kernel, topic)
        sweep_leases(self._kernel, topic)
        return leases


_PRESENT = Presence()
"""A caller that waits for the answer."""


def _ignore(topic: Topic) -> None:
    """No stream waits for leases to change."""


def _lease_ms(topic: Topic, sent: int | None) -> int:
    wanted = topic.config.lease_ms if sent is None else sent
    return min(max(wanted, MIN_LEASE_MS), MAX_LEASE_MS)
