"""How records, pages, logs and what logs make look at a prompt and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import topics
import topics.aio
from topics.client.aio_consumer import AsyncConsumer
from topics.client.aio_worker import AsyncWorker
from topics.testing import ManualClock
from topics.values import Job, Page, Record, Tombstone

TS = 1_790_000_004_411
TIME = "2026-09-21T14:13:24.411Z"


def test_a_record_tells_its_time_as_a_datetime_in_utc() -> None:
    expected = datetime(2026, 9, 21, 14, 13, 24, 411_000, tzinfo=UTC)
    assert Record(1, TS, None, None, b"0").time == expected
    assert Job(1, 2, TS, TS, 1, b"0").time == expected


def test_a_record_and_a_job_show_their_time_and_their_json() -> None:
    record = Record(3, TS, "gw", "room:4", b'{"c":19.0}')
    assert (
        repr(record) == f"Record(seq=3, time={TIME}, node='gw', tag='room:4', data={{\"c\":19.0}})"
    )
    assert repr(Job(3, 7, TS + 1, TS, 2, b"null", raw_meta=b"{}")) == (
        f"Job(seq=3, lease_id=7, deadline=2026-09-21T14:13:24.412Z, time={TIME}, deliveries=2, "
        "data=null, meta={})"
    )


def test_a_long_record_is_cut_and_tells_its_size() -> None:
    shown = repr(Record(1, TS, None, None, '"é{}"'.format("x" * 1_000_000).encode()))
    assert len(shown) < 300
    assert "xxx... (1000004 bytes)" in shown


def test_no_record_steers_a_terminal_or_fails_to_be_shown() -> None:
    shown = repr(Record(1, 1 << 63, None, "\x1b[2J", '"\x9b2J\u202e"'.encode() + b"\xff"))
    assert shown.isprintable()
    assert f"time={1 << 63}" in shown
    assert '"\\x9b2J\\u202e"' in shown


def test_a_page_shows_its_first_records_and_how_many_more() -> None:
    records = [Record(seq, TS, None, None, b"0") for seq in range(1, 200)]
    page = Page("t", records, 199, 500, 1, False, Tombstone(1, 2, "cap", 3, 500))
    assert repr(page).count("Record(") == 3
    assert "... 196 more], next_from_seq=199, head_seq=500" in repr(page)
    html = page._repr_html_()
    assert html.count("<tr>") == 101
    for note in (
        "Tombstone(gap_from=1, gap_to=2",
        "the first 100 of 199 records",
        "there is more after seq 199, up to 500",
    ):
        assert note in html
    whole = Page("t", records[:1], 1, 1, 1, True)
    assert "more" not in repr(whole)
    assert "<p>" not in whole._repr_html_()


def test_a_notebook_shows_what_a_record_holds_as_text() -> None:
    html = Record(1, TS, "<b>", None, b'"<script>"', b'"<i>"')._repr_html_()
    assert html.endswith(
        f"<tr><td>1</td><td>{TIME}</td><td>&lt;b&gt;</td><td></td>"
        "<td>&quot;&lt;script&gt;&quot;</td><td>&quot;&lt;i&gt;&quot;</td></tr></tbody></table>"
    )


def test_a_log_says_where_it_is_and_what_it_has(tmp_path: Path) -> None:
    memory = topics.open()
    memory.append("t", {"data": 1})
    assert repr(memory) == "<Log in memory: 1 topic>"
    with topics.open(tmp_path) as log:
        assert repr(log) == f"<Log {str(tmp_path)!r}: 0 topics>"
        with topics.open(tmp_path, read_only=True) as view:
            assert repr(view) == f"<Log {str(tmp_path)!r}: 0 topics, read only>"
    assert repr(log) == f"<Log {str(tmp_path)!r}, closed>"


URL = "http://127.0.0.1:1"


@pytest.fixture
def shown() -> Iterator[dict[str, object]]:
    log = topics.open(clock=ManualClock())
    log.create("q", type="queue")
    log.append("t", {"data": 1})
    remote, awaited = topics.open(URL, token="secret"), topics.aio.open(URL, token="secret")
    consumer = log.consumer("t", name="c")
    consumer.seek(1)
    with log.producer("t") as producer:
        yield {
            f"<RemoteLog {URL}>": remote,
            f"<AsyncRemoteLog {URL}>": awaited,
            "<Queue 'q' for worker 'w'>": log.queue("q", node="w"),
            "<RemoteQueue 'q' for worker 'w'>": remote.queue("q", node="w"),
            "<AsyncRemoteQueue 'q' for worker 'w'>": awaited.queue("q", node="w"),
            "<Producer for 't': 0 records on their way>": producer,
            "<Consumer 'c' of 't' at seq 1>": consumer,
            "<AsyncConsumer 'c' of 't'>": AsyncConsumer(awaited, "t", name="c"),
            "<Worker 'w' on 'q': 0 done, 0 failed>": log.worker("q", print, node="w"),
            "<AsyncWorker 'w' on 'q': 0 done, 0 failed>": AsyncWorker(
                awaited, "q", print, node="w"
            ),
        }
    assert repr(producer) == "<Producer for 't': closed>"


def test_what_logs_make_says_what_it_is_for_and_no_secret(shown: dict[str, object]) -> None:
    assert [repr(item) for item in shown.values()] == list(shown)


def test_no_private_part_is_offered_for_completion(shown: dict[str, object]) -> None:
    items = [*shown.values(), topics.open(), Record(1, TS, None, None, b"0")]
    for item in items:
        assert [n for n in dir(item) if n.startswith("_") and not n.startswith("__")] == [], item
    both = [{n for n in dir(shown[f"<{kind} {URL}>"]) if n[0] != "_"} for kind in REMOTE]
    assert both[0] == both[1] == {n for n in dir(topics.open()) if n[0] != "_"} - EMBEDDED | {"url"}


REMOTE = ("RemoteLog", "AsyncRemoteLog")
EMBEDDED = {"checkpoint", "maintain", "sync"}
