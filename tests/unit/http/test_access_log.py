"""The access log: what a line holds, what never gets into it, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from topics.http.access_log import ID_HEADER, AccessLog, RequestIds, is_sane
from topics.http.messages import Request

T = TypeVar("T")


class InlinePool(Executor):
    """Does the work on the spot."""

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except OSError as error:
            future.set_exception(error)
        return future


class Later:
    """Timers that a test lets go off."""

    def __init__(self) -> None:
        self.armed: list[Callable[[], None]] = []

    def __call__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.armed.append(callback)

    def go_off(self) -> None:
        due, self.armed = self.armed, []
        for callback in due:
            callback()


def request(target: bytes = b"/v0/topics/t?token=secret", body: bytes = b"{}") -> Request:
    made = Request("POST", target, {}, version="1.1", peer="127.0.0.1:5")
    made.body = body
    made.echo = ((ID_HEADER, b"id-1"),)
    return made


def open_log(path: Path, later: Later, **options: int) -> AccessLog:
    return AccessLog(str(path), later=later, pool=InlinePool(), **options)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_tells_who_asked_for_what_and_what_came_of_it(tmp_path: Path) -> None:
    later, path = Later(), tmp_path / "log"
    log = open_log(path, later)
    log.add(request(), 200, started_ns=0, key_id=3)
    later.go_off()
    (line,) = lines(path)
    assert line.pop("ts") > 0
    assert line.pop("ms") > 0
    assert line == {
        "request_id": "id-1",
        "method": "POST",
        "path": "/v0/topics/t",
        "http": "1.1",
        "status": 200,
        "bytes_in": 2,
        "key": 3,
        "peer": "127.0.0.1:5",
    }


def test_neither_queries_nor_session_ids_are_written(tmp_path: Path) -> None:
    later, path = Later(), tmp_path / "log"
    log = open_log(path, later)
    log.add(request(), 200, started_ns=0, key_id=None)
    log.add(request(b"/v0/watch/secret?token=secret"), 200, started_ns=0, key_id=None)
    log.add(request(b"/v0/%77atch%2Fsecret"), 200, started_ns=0, key_id=None)
    later.go_off()
    assert "secret" not in path.read_text()
    assert [line["path"] for line in lines(path)[1:]] == ["/v0/watch/*"] * 2


def test_the_file_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    later, path = Later(), tmp_path / "log"
    open_log(path, later).add(request(), 200, started_ns=0, key_id=None)
    later.go_off()
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_scheduled_while_nothing_happens(tmp_path: Path) -> None:
    later = Later()
    log = open_log(tmp_path / "log", later)
    assert not later.armed
    log.add(request(), 200, started_ns=0, key_id=None)
    log.add(request(), 200, started_ns=0, key_id=None)
    assert len(later.armed) == 1
    later.go_off()
    assert not later.armed
    log.add(request(), None, started_ns=0, key_id=None)
    assert len(later.armed) == 1


def test_a_full_queue_costs_lines_that_are_counted(tmp_path: Path) -> None:
    later, path = Later(), tmp_path / "log"
    log = open_log(path, later, max_queued=2)
    for _ in range(5):
        log.add(request(), 200, started_ns=0, key_id=None)
    later.go_off()
    assert log.dropped == 3
    assert [line.get("dropped") for line in lines(path)] == [None, None, 3]


def test_the_rest_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = open_log(path, Later())
    log.add(request(), 200, started_ns=0, key_id=None)
    log.close()
    assert len(lines(path)) == 1


def test_after_the_end_a_timer_that_goes_off_asks_nothing_of_the_pool(tmp_path: Path) -> None:
    later, pool = Later(), ThreadPoolExecutor(1)
    log = AccessLog(str(tmp_path / "log"), later=later, pool=pool)
    log.add(request(), 200, 0, None)
    log.close()
    pool.shutdown()
    later.go_off()
    assert len(lines(tmp_path / "log")) == 1


def test_the_file_may_be_moved_away(tmp_path: Path) -> None:
    later, path = Later(), tmp_path / "log"
    log = open_log(path, later)
    log.add(request(), 200, started_ns=0, key_id=None)
    later.go_off()
    path.rename(tmp_path / "old")
    log.add(request(), 200, started_ns=0, key_id=None)
    later.go_off()
    assert len(lines(path)) == len(lines(tmp_path / "old")) == 1


def test_a_file_that_cannot_be_written_is_noticed_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        open_log(tmp_path / "nowhere" / "log", Later())


def test_lines_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    later, path = Later(), tmp_path / "dir" / "log"
    path.parent.mkdir()
    log = open_log(path, later)
    path.unlink()
    path.parent.rmdir()
    log.add(request(), 200, started_ns=0, key_id=None)
    later.go_off()
    assert log.dropped == 1


# Request ids


@pytest.mark.parametrize(
    ("sent", "sane"),
    [
        (b"abc-123", True),
        (b"a b", True),
        (b"x" * 128, True),
        (b"x" * 129, False),
        (b"", False),
        (b"a\tb", False),
        (b"\x1b[31m", False),
        ("ä".encode(), False),
    ],
)
def test_a_sane_id_of_the_client_is_kept(sent: bytes, sane: bool) -> None:
    assert is_sane(sent) is sane
    made = Request("GET", b"/", {ID_HEADER: sent}, version="1.1", peer="")
    assert (RequestIds().id_of(made) == sent) is sane


def test_every_request_without_an_id_gets_one_of_its_own() -> None:
    ids = RequestIds()
    made = {ids.id_of(Request("GET", b"/", {}, version="2", peer="")) for _ in range(100)}
    assert len(made) == 100
    assert all(is_sane(one) for one in made)


def test_a_body_that_was_taken_off_the_request_is_still_counted(tmp_path: Path) -> None:
    later = Later()
    log = open_log(tmp_path / "access.log", later)
    asked = request(body=b"x" * 100)
    assert asked.take_body() == b"x" * 100
    assert asked.take_body() == b""
    log.add(asked, 200, 0, None)
    later.go_off()
    (line,) = lines(tmp_path / "access.log")
    assert line["bytes_in"] == 100
