"""What happens when a submission that is in the log cannot be published.

Publishing is not supposed to fail: whatever it needs is loaded before. Should it raise all the
same, the log has something that memory does not show, or shows in part. Nothing may build on that,
so the shard takes no writes any more. Without writes there is no checkpoint, so the log keeps
everything for the next start, which publishes it from there.
"""

from __future__ import annotations

import logging

from topics.errors import LogFailed
from topics.storage.interrupts import is_interrupt
from topics.storage.wal.shard import Shard
from topics.storage.wal.submission import Submission

_log = logging.getLogger(__name__)


def stop_unpublished(shard: Shard, submission: Submission, cause: BaseException) -> LogFailed:
    """Stop the shard of a submission whose `on_done` raised; returns the answer it gets instead."""
    return _stop(shard, submission, cause, f"a committed change could not be published: {cause!r}")


def stop_interrupted(shard: Shard, submission: Submission, cause: BaseException) -> None:
    """Stop a shard whose write was interrupted, as by Ctrl-C: nobody knows how far it came."""
    _stop(shard, submission, cause, f"a write was interrupted: {cause!r}")


def _stop(shard: Shard, submission: Submission, cause: BaseException, reason: str) -> LogFailed:
    shard.abandon(reason)
    error = LogFailed(shard=shard.writer.shard, reason=reason)
    error.__cause__ = cause
    submission.error = error
    if not is_interrupt(cause):  # else whoever interrupted is told by the exception itself
        _log.critical("log shard %d: %s", shard.writer.shard, reason, exc_info=cause)
    return error
