"""The stages of a server, as the tasks and the driver of one sink see them.

Every call here may be repeated without harm: a stage replaces itself, and a committed epoch only
repeats its answer. So calls are tried again through restarts of the server and while it has no
room, for `retrySeconds`. What fails then says which setting or step helps.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Final, Self

from topics.client._call import ApiCall
from topics.client._linked_calls import commit, stage, stage_arrow
from topics.client.targets import Target
from topics.errors import NotFound, PayloadTooLarge, StaleEpoch, Throttled, TopicsError
from topics.spark.source.server import SparkClient
from topics.values import StageCommit, Staged

DROP_TIMEOUT_S: Final = 10.0
COMMIT_TIMEOUT_S: Final = 900.0
"""A commit appends and syncs everything that was staged."""
_LAST_PART: Final = 2**64 - 1


class WriteRefused(TopicsError):
    """The server did not take what the sink sent; `code` is the one it gave."""

    def __init__(self, message: str, cause: TopicsError) -> None:
        super().__init__(f"{message} [{cause.code}]", detail=cause.detail)
        self.code = cause.code


def new_attempt(task_attempt: int, run: int | None = None) -> int:
    """A number that no other attempt has, not even one of a driver that is thought to be dead.

    Spark counts its attempts from 0 again in every driver. Under those numbers alone a task that
    outlived its driver could replace a stage of the next one, under its commit. The upper bits are
    those of the run, so that the server can tell the stages of a dead run from those of the next.
    """
    return (new_run() if run is None else run) << 24 | task_attempt & 0xFFFFFF


def new_run() -> int:
    return secrets.randbits(40)


def run_named(name: str) -> int:
    """The number of a run that has a name of its own."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:5])


class StageClient:
    """Stages of one app; `retry_s` is how long a call is tried again before it fails."""

    def __init__(self, target: Target, app: str, *, retry_s: float) -> None:
        self.app = app
        self._server = SparkClient(target, retry_s=retry_s)

    def keep(
        self, epoch: int, part: int, attempt: int, rows: bytes, *, by_run: bool = False
    ) -> bool:
        """Stage an Arrow stream of records. False: the epoch is committed, send no more of it.

        With `by_run` the attempt is one of a run: the server discards stages of earlier runs.
        """
        return self._is_kept(stage_arrow(self.app, epoch, part, rows, attempt, by_run=by_run))

    def touch(self, epoch: int, attempt: int) -> None:
        """Tell the server that the run is alive; a failure to do so is told by the next call."""
        with contextlib.suppress(TopicsError):
            alive = stage(self.app, epoch, _LAST_PART, (), attempt, by_run=True)
            self._server.run_once(alive, timeout_s=DROP_TIMEOUT_S)

    def is_open(self, epoch: int) -> bool:
        """Whether the epoch can still be committed; raises `StaleEpoch` if a later one was."""
        return self._is_kept(stage(self.app, epoch, _LAST_PART, (), new_attempt(0)))

    def last_epoch(self) -> int | None:
        """The last epoch this app has committed; None when it has not."""
        try:
            return None if self.is_open(0) else 0
        except StaleEpoch as stale:
            last: int = (stale.detail or {})["last_epoch"]
            return last

    def drop(self, epoch: int, parts: Iterable[tuple[int, int]]) -> None:
        """Free the bytes of stages that no commit will name: an empty one takes their place.

        Not insisted on, since the server discards them anyway when they are old.
        """
        with contextlib.suppress(TopicsError):
            for part, attempt in parts:
                empty = stage(self.app, epoch, part, (), attempt)
                self._server.run_once(empty, timeout_s=DROP_TIMEOUT_S)

    def commit(self, epoch: int, parts: Sequence[tuple[int, int]]) -> StageCommit:
        """Make the named stages visible, all or none, once."""
        try:
            return self._server.run(commit(self.app, epoch, parts), timeout_s=COMMIT_TIMEOUT_S)
        except NotFound as error:
            raise WriteRefused(
                f"{error}: it was staged too long ago, or lost with the server's disk. Run the "
                "write again; if stages wait long for their commit, raise TOPICS_STAGE_TTL_MS on "
                "the server",
                error,
            ) from error
        except StaleEpoch as error:
            raise WriteRefused(
                f"{error}. Another writer with the same checkpoint or txnAppId has gone on, and "
                "this one must not",
                error,
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        self._server.close()

    def _is_kept(self, call: ApiCall[Staged]) -> bool:
        try:
            return not self._server.run(call).deduped
        except Throttled as error:
            raise _throttled(error) from error
        except PayloadTooLarge as error:
            raise WriteRefused(
                f"{error}. Stages have up to 16 MiB: raise TOPICS_MAX_BODY_BYTES on the server",
                error,
            ) from error


def _throttled(error: Throttled) -> TopicsError:
    if (error.detail or {}).get("limit") not in ("max_stage_bytes", "max_stage_bytes_per_key"):
        return error
    return WriteRefused(
        f"{error}. The stages of one batch have to fit together: raise TOPICS_MAX_STAGE_BYTES on "
        "the server, or write smaller batches (maxRecordsPerTrigger, maxBytesPerTrigger)",
        error,
    )
