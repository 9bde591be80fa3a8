"""EventSource, as every browser has it, on the streams of a real server."""

from __future__ import annotations

from typing import Any

import httpx
from playwright.sync_api import Page
from tests.blackbox.conftest import ServerFactory, ServerProcess

OPEN = """
([path, query]) => {
    window.seen = [];
    window.opened = 0;
    window.source = new EventSource(path + query);
    source.onopen = () => { window.opened += 1; };
    const note = event => seen.push(
        {event: event.type, id: event.lastEventId, data: JSON.parse(event.data)});
    for (const name of ['record', 'caught-up', 'tombstone', 'topic-deleted'])
        source.addEventListener(name, note);
    source.addEventListener('error', event => { if (event.data !== undefined) note(event); });
}
"""


def write(server: ServerProcess, topic: str, *datas: object, key: str = "") -> None:
    body = {"records": [{"data": data} for data in datas]}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"{server.url}/v0/topics/{topic}"
    httpx.post(url, json=body, headers=headers, timeout=90).raise_for_status()


def open_watch(page: Page, server: ServerProcess, topic: str, *, key: str = "") -> None:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body: dict[str, Any] = {"topics": {topic: {}}}
    made = httpx.post(f"{server.url}/v0/watch", json=body, headers=headers, timeout=90)
    query = f"?token={key}" if key else ""
    page.evaluate(OPEN, [made.raise_for_status().json()["stream_url"], query])


def wait_for_datas(page: Page, count: int) -> list[Any]:
    """Wait until so many records are there; returns what they hold."""
    records = "seen.filter(e => e.event === 'record').flatMap(e => e.data.records)"
    page.wait_for_function(f"{records}.length >= {count}")
    found: list[Any] = page.evaluate(f"{records}.map(r => r.data)")
    return found


def test_a_browser_receives_what_was_written_and_what_is_written(
    page: Page, server: ServerProcess
) -> None:
    write(server, "t", {"n": 1}, {"n": "zwei \u2713"})
    open_watch(page, server, "t")
    assert wait_for_datas(page, 2) == [{"n": 1}, {"n": "zwei \u2713"}]
    write(server, "t", 3)
    assert wait_for_datas(page, 3)[-1] == 3
    page.wait_for_function("seen.at(-1).event === 'caught-up'")
    first = page.evaluate("seen[0]")
    assert first["data"]["topic"] == "t"
    assert first["id"], "every record frame has an id to resume from"


def test_a_browser_that_comes_back_sees_each_record_once(page: Page, server: ServerProcess) -> None:
    write(server, "t", *range(10))
    open_watch(page, server, "t")
    wait_for_datas(page, 10)
    page.evaluate("source.close()")
    write(server, "t", *range(10, 20))
    page.evaluate("window.before = seen; window.url = source.url")
    page.evaluate(OPEN, [page.evaluate("url"), ""])
    page.wait_for_function(
        "seen.filter(e => e.event === 'record').flatMap(e => e.data.records).length >= 10"
    )
    datas = page.evaluate(
        "[...before, ...seen].filter(e => e.event === 'record')"
        ".flatMap(e => e.data.records).map(r => r.data)"
    )
    assert datas == list(range(20))


def test_a_browser_reconnects_after_the_server_ended_the_stream(
    page: Page, server: ServerProcess
) -> None:
    """A second connection supersedes the first; the browser comes back with its last id."""
    write(server, "t", 1)
    open_watch(page, server, "t")
    wait_for_datas(page, 1)
    path = page.evaluate("new URL(source.url).pathname")
    last_id = page.evaluate("seen.at(-1).id")
    with httpx.stream("GET", server.url + path, headers={"last-event-id": last_id}, timeout=90):
        page.wait_for_function("seen.some(e => e.event === 'error' && e.data.code === 410)")
        page.wait_for_function("opened >= 2")
    write(server, "t", 2)
    assert wait_for_datas(page, 2) == [1, 2]


def test_a_browser_opens_a_stream_with_its_key_in_the_address(
    page: Page, server_factory: ServerFactory
) -> None:
    keyed = server_factory(env={"TOPICS_API_KEYS": "s3cret"})
    write(keyed, "t", 1, key="s3cret")
    page.goto(f"{keyed.url}/v0/health")
    open_watch(page, keyed, "t", key="s3cret")
    assert wait_for_datas(page, 1) == [1]


def test_a_browser_is_told_when_a_topic_goes(page: Page, server: ServerProcess) -> None:
    write(server, "t", 1)
    open_watch(page, server, "t")
    wait_for_datas(page, 1)
    httpx.delete(f"{server.url}/v0/topics/t", timeout=90).raise_for_status()
    page.wait_for_function("seen.some(e => e.event === 'topic-deleted')")
    page.evaluate("source.close()")


def test_a_browser_is_pushed_jobs(page: Page, server: ServerProcess) -> None:
    made = httpx.put(f"{server.url}/v0/topics/q", json={"type": "queue"}, timeout=90)
    made.raise_for_status()
    write(server, "q", {"job": 1})
    page.evaluate(
        """() => {
            window.jobs = [];
            window.source = new EventSource('/v0/topics/q/work?node=tab&max=1');
            source.addEventListener('job', event => jobs.push(JSON.parse(event.data)));
        }"""
    )
    page.wait_for_function("jobs.length === 1")
    job = page.evaluate("jobs[0]")
    assert job["data"] == {"job": 1}
    done = httpx.post(
        f"{server.url}/v0/topics/q/ack", json={"node": "tab", "seqs": [job["$seq"]]}, timeout=90
    ).json()
    assert done["acked"] == 1
    write(server, "q", {"job": 2})
    page.wait_for_function("jobs.length === 2")
