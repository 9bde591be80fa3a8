"""Commit inside the call: what fails or is interrupted on the way is answered, and final."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from tests.unit.storage.wal.builders import TOPIC, Log

from topics.errors import LogFailed
from topics.storage import crashpoints
from topics.storage.wal.shard import ShardState
from topics.storage.wal.submission import Submission
from topics.testing import SimDisk


def test_ws16_what_cannot_be_published_is_refused_and_stops_the_shard() -> None:
    log = Log(SimDisk())
    submission = log.submission(b"1")
    submission.on_done = raising(OSError(errno.EIO, "cannot be read"))
    log.committer.submit(submission)
    assert submission.done
    assert isinstance(submission.error, LogFailed)
    assert isinstance(log.append(b"2").error, LogFailed)


def test_an_interrupted_publication_stops_the_shard() -> None:
    log = Log(SimDisk())
    submission = log.submission(b"1")
    submission.on_done = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        log.committer.submit(submission)
    assert isinstance(submission.error, LogFailed)
    assert log.state() is ShardState.FAILED


@pytest.mark.parametrize("point", ["wal.after_write", "wal.after_sync"])
def test_an_interrupted_write_is_answered_and_stops_the_shard(point: str) -> None:
    """The next write would carry a seq whose predecessor may be missing: a gap in the log."""
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    answered: list[Submission] = []
    submission = log.submission(b"2")
    submission.on_done = answered.append

    def interrupt(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with crashpoints.installed(interrupt), pytest.raises(KeyboardInterrupt):
        log.committer.submit(submission)
    assert answered == [submission]
    assert isinstance(submission.error, LogFailed)
    assert isinstance(log.append(b"3").error, LogFailed)
    disk.kill()
    assert [data for _, data in Log(disk).recovered[TOPIC]] == [b"1", b"2"]


def raising(error: BaseException) -> Callable[[Submission], None]:
    def on_done(submission: Submission) -> None:
        raise error

    return on_done
