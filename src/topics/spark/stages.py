"""The stages of a server, as the tasks and the driver of one sink see them.

Every call here may be repeated without harm: a stage replaces itself, and a committed epoch only
repeats its answer. So calls are tried again through restarts of the server and while it has no
room, until patience ends. What fails then says which setting or step helps.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Final, Self
from urllib.parse import quote

import msgspec

from topics.client.sync_http import Http
from topics.errors import NotFound, PayloadTooLarge, StaleEpoch, Throttled, TopicsError
from topics.spark.log import patiently
from topics.values import StageCommit

JSON: Final = "application/json"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
STAGE_TIMEOUT_S: Final = 120.0
DROP_TIMEOUT_S: Final = 10.0
COMMIT_TIMEOUT_S: Final = 900.0
"""A commit appends and syncs everything that was staged."""
_NOTHING: Final = b'{"records":[]}'
_LAST_PART: Final = 2**64 - 1


class WriteRefused(TopicsError):
    """The server did not take what the sink sent; `code` is the one it gave."""

    def __init__(self, message: str, cause: TopicsError) -> None:
        super().__init__(f"{message} [{cause.code}]", detail=cause.detail)
        self.code = cause.code


class _Kept(msgspec.Struct, frozen=True):
    deduped: bool = False


_decode_kept = msgspec.json.Decoder(_Kept).decode
_decode_commit = msgspec.json.Decoder(StageCommit).decode


def new_attempt(task_attempt: int) -> int:
    """A number that no other attempt has, not even one of a driver that is thought to be dead.

    Spark counts its attempts from 0 again in every driver. Under those numbers alone a task that
    outlived its driver could replace a stage of the next one, under its commit.
    """
    return secrets.randbits(40) << 24 | task_attempt & 0xFFFFFF


class Stages:
    """Stages of one app; `retry_s` is how long a call is tried again before it fails."""

    def __init__(self, url: str, token: str | None, app: str, *, retry_s: float) -> None:
        self.app = app
        self._retry_s = retry_s
        self._http = Http(url, token=token, retries=0, timeout=STAGE_TIMEOUT_S)

    def keep(self, epoch: int, part: int, attempt: int, rows: bytes) -> bool:
        """Stage an Arrow stream of records. False: the epoch is committed, send no more of it."""
        return self._keep(self._path(epoch, part, attempt), rows, ARROW_STREAM)

    def is_open(self, epoch: int) -> bool:
        """Whether the epoch can still be committed; raises `StaleEpoch` if a later one was."""
        path = self._path(epoch, _LAST_PART, new_attempt(0))
        return self._keep(path, _NOTHING, JSON)

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
                path = self._path(epoch, part, attempt)
                self._post(path, _NOTHING, JSON, 0.0, timeout_s=DROP_TIMEOUT_S)

    def commit(self, epoch: int, parts: Sequence[tuple[int, int]]) -> StageCommit:
        """Make the named stages visible, all or none, once."""
        path = f"/v0/stages/{quote(self.app, safe='')}/{epoch}/commit"
        body = msgspec.json.encode({"parts": parts})
        try:
            answer = self._post(path, body, JSON, self._retry_s, timeout_s=COMMIT_TIMEOUT_S)
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
        return _decode_commit(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        self._http.close()

    def _keep(self, path: str, body: bytes, kind: str) -> bool:
        try:
            answer = self._post(path, body, kind, self._retry_s, timeout_s=STAGE_TIMEOUT_S)
        except Throttled as error:
            raise _throttled(error) from error
        except PayloadTooLarge as error:
            raise WriteRefused(
                f"{error}. Stages have up to 16 MiB: raise TOPICS_MAX_BODY_BYTES on the server",
                error,
            ) from error
        return not _decode_kept(answer).deduped

    def _post(
        self, path: str, body: bytes, kind: str, retry_s: float, *, timeout_s: float
    ) -> bytes:
        def call() -> bytes:
            headers = {"content-type": kind}
            return self._http.request(
                "POST", path, body=body, headers=headers, timeout=timeout_s
            ).body

        return patiently(call, seconds=retry_s)

    def _path(self, epoch: int, part: int, attempt: int) -> str:
        return f"/v0/stages/{quote(self.app, safe='')}/{epoch}/{part}/{attempt}"


def _throttled(error: Throttled) -> TopicsError:
    if (error.detail or {}).get("limit") not in ("max_stage_bytes", "max_stage_bytes_per_key"):
        return error
    return WriteRefused(
        f"{error}. The stages of one batch have to fit together: raise TOPICS_MAX_STAGE_BYTES on "
        "the server, or write smaller batches (maxRecordsPerTrigger, maxBytesPerTrigger)",
        error,
    )
