"""A log that keeps nothing still answers."""

from topics.storage.wal.committer import Committer
from topics.storage.wal.inline import NullCommitter
from topics.storage.wal.shard import ShardState
from topics.storage.wal.submission import Submission


def test_every_submission_is_answered_at_once_and_lies_nowhere() -> None:
    committer: Committer = NullCommitter()
    answered: list[Submission] = []
    submission = Submission(0, b"frame", 1, durable=True, on_done=answered.append)
    committer.submit(submission)
    assert answered == [submission]
    assert submission.done
    assert submission.error is None
    assert submission.source_id == 0


def test_nothing_is_ever_full_due_or_pending() -> None:
    committer: Committer = NullCommitter()
    committer.tick()
    committer.try_heal()
    committer.rotate(0)
    assert committer.room(0, 1 << 40)
    assert committer.refusal(0) is None
    assert committer.in_flight(0) == committer.most_in_flight(0) == 0
    assert committer.state(0) is ShardState.OPEN
    assert committer.shard_of(12345) == 0
    assert committer.sync(0) == committer.position(0) == committer.synced(0) == (0, 0, 0)
    assert committer.stats(0).frames == 0
    committer.close()
