"""The topic behind a table, as far as a table has to know it: over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from topics.client.sync_http import Http
from topics.errors import InvalidRequest, TopicNotFound, TopicsError
from topics.spark.log import COUNT_BYTES, patiently

RETRY_S: Final = 60.0
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Dead:
    """A page of a topic's dead seqs. Below `exact_from` nobody knows which of them were deleted."""

    epoch: int
    delete_version: int
    runs: list[tuple[int, int, str]]
    next_from_seq: int
    exact_from: int


class Origin:
    """One topic of one server. Errors that may pass are waited out for `retry_s` seconds."""

    def __init__(
        self, url: str, topic: str, *, token: str | None = None, retry_s: float = RETRY_S
    ) -> None:
        self.url = url
        self.topic = topic
        self._retry_s = retry_s
        self._http = Http(url, token=token, timeout=_TIMEOUT_S, retries=0)
        self._path = f"/v0/topics/{quote(topic, safe='')}"

    def __enter__(self) -> Origin:
        return self

    def __exit__(self, *why: object) -> None:
        self._http.close()

    def state(self) -> dict[str, Any]:
        """The topic's state; `TopicNotFound` when it is gone."""
        found: dict[str, Any] = self._call("GET", f"{self._path}?touch=false")
        return found

    def holes(self, first: int, last: int) -> Iterator[Dead]:
        """The dead seqs of a range, page by page. Nothing when the topic is gone."""
        while first <= last:
            try:
                found = self._call(
                    "POST", f"{self._path}/holes", {"from_seq": first, "to_seq": last}
                )
            except TopicNotFound:
                return
            yield Dead(
                found["epoch"],
                found["delete_version"],
                [(run[0], run[1], run[2]) for run in found["runs"]],
                found["next_from_seq"],
                found["exact_from"],
            )
            if found["next_from_seq"] <= first:
                return  # the topic ends before the range does
            first = found["next_from_seq"]

    def live_records(self, first: int, last: int) -> int:
        """How many live records a range of seqs holds."""
        count = 0
        while first <= last:
            asked = {"from_seq": first, "to_seq": last, "target_bytes": COUNT_BYTES}
            plan = self._call("POST", f"{self._path}/plan", asked)
            count += sum(found[2] for found in plan["ranges"])
            if plan["next_from_seq"] <= first:
                break
            first = plan["next_from_seq"]
        return count

    def set_cursor(self, name: str, seq: int) -> None:
        """Tell how far a reader is."""
        self._call("PUT", f"{self._path}/cursors/{quote(name, safe='')}", {"seq": seq})

    def cursors(self) -> list[str]:
        """The names of the topic's cursors, as many as one page holds."""
        listed = self._call("GET", f"{self._path}/cursors?page_size=1000")
        return [cursor["cursor"] for cursor in listed["cursors"]]

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        raw = None if body is None else msgspec.json.encode(body)
        answer = patiently(
            lambda: self._http.request(method, path, body=raw), seconds=self._retry_s
        )
        return msgspec.json.decode(answer.body)


def say_how_far(origin: Origin, cursor: str, seq: int) -> TopicsError | None:
    """Move a cursor; an error is returned, for the rows are safe without it."""
    try:
        origin.set_cursor(cursor, seq)
    except InvalidRequest:
        return None  # the topic was made anew and is shorter now; the next epoch tells
    except TopicsError as error:
        return error
    return None
