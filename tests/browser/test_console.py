"""The console, as a person uses it: in a real browser, on a server with real records."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.blackbox.conftest import ServerProcess

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
KEYS = "boss,reader:read,near:read:near."
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\u202eright to left\u202c \u001b[31mred",
    "x" * ((1 << 20) - 100),
]
PATIENCE_MS = 60_000
BATCHES = 50
MANY = 5000
WORST_TASK_MS = 100


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with keys, and something to look at."""
    started = ServerProcess(tmp_path_factory.mktemp("console"), {"TOPICS_API_KEYS": KEYS}, ())
    started.start()
    put(started, "orders", {"cap_records": 30})
    for first in range(0, 60, 20):
        records = [{"data": {"n": n}, "tag": f"user-{n % 3}"} for n in range(first, first + 20)]
        write(started, "orders", records)
    write(started, "near.by", [{"data": 12345678901234567890123}])
    write(started, "hostile", [{"data": text, "tag": text[:80]} for text in HOSTILE])
    deep = "[" * 100 + "1e400" + "]" * 100
    raw(started, "hostile", f'{{"records":[{{"data":{deep}}}]}}')
    put(started, "mails", {"type": "queue", "dead_letter": "mails.dead", "max_deliveries": 1})
    yield started
    started.end()


def call(server: ServerProcess, method: str, path: str, body: object = None) -> dict[str, Any]:
    headers = {"authorization": "Bearer boss"}
    answer = httpx.request(method, server.url + path, json=body, headers=headers, timeout=90)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def put(server: ServerProcess, topic: str, config: dict[str, Any]) -> None:
    call(server, "PUT", f"/v0/topics/{topic}", config)


def write(server: ServerProcess, topic: str, records: list[dict[str, Any]]) -> None:
    call(server, "POST", f"/v0/topics/{topic}", {"records": records})


def raw(server: ServerProcess, topic: str, body: str) -> None:
    headers = {"authorization": "Bearer boss", "content-type": "application/json"}
    url = f"{server.url}/v0/topics/{topic}"
    httpx.post(url, content=body, headers=headers, timeout=90).raise_for_status()


def bury(
    server: ServerProcess, queue: str, letters: list[tuple[str, str]], *, node: str = "w"
) -> None:
    """Let jobs die, one for each tag and kind of error, in this order."""
    for tag, kind in letters:
        write(server, queue, [{"data": {"job": tag}, "tag": tag}])
        (job,) = call(server, "POST", f"/v0/topics/{queue}/claim", {"node": node})["claimed"]
        error = {"type": kind, "message": f"job {tag}"}
        given_back = {"node": node, "seqs": [job["$seq"]], "error": error}
        call(server, "POST", f"/v0/topics/{queue}/nack", given_back)
        call(server, "POST", f"/v0/topics/{queue}/claim", {"node": node})


def tags(server: ServerProcess, topic: str) -> list[str]:
    answer = call(server, "POST", f"/v0/topics/{topic}/diff", {"include_tags": True})
    return [record["$tag"] for record in answer["records"]]


class Visit:
    """One person's tab. Nothing that the browser complains about may happen in it."""

    def __init__(self, page: Page, server: ServerProcess) -> None:
        self.page = page
        self._server = server
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)

    def _note(self, message: Any) -> None:  # noqa: ANN401 - playwright's own
        # A refused request is in the browser's log whatever the page does about it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def use(self, key: str) -> Visit:
        self.page.goto(f"{self._server.url}/console/")
        self.page.evaluate("key => sessionStorage.setItem('topics-key', key)", key)
        return self

    def open(self, where: str) -> Page:
        self.page.goto(f"{self._server.url}/console/#{where}")
        self.page.reload()
        return self.page


@pytest.fixture
def visit(browser: Browser, keyed: ServerProcess) -> Iterator[Visit]:
    context = browser.new_context()
    made = Visit(context.new_page(), keyed)
    yield made.use("boss")
    context.close()
    assert made.complaints == []


def rows(page: Page) -> list[str]:
    return page.locator(".records .row .seq").all_inner_texts()


def test_the_newest_record_is_on_top_and_the_loss_at_the_end(visit: Visit) -> None:
    page = visit.open("/topics/orders")
    expect(page.locator(".records .row")).to_have_count(30, timeout=PATIENCE_MS)
    assert rows(page)[0] == "60"
    gap = page.locator(".records .gap")
    expect(gap).to_contain_text("30 records lost, seq 1 to 30: evicted: the topic is capped")
    gap.get_by_role("link").click()
    expect(page.locator("text=the ledger adds up")).to_be_visible()


def test_a_link_shows_a_colleague_the_same_records(visit: Visit) -> None:
    page = visit.open("/topics/orders?match=user-1")
    expect(page.locator(".records .row").first).to_be_visible()
    assert set(page.locator(".records .tag").all_inner_texts()) == {"user-1"}
    page = visit.open("/topics/orders?seq=45")
    expect(page.locator(".row.open .seq")).to_have_text("45")


def test_a_live_tail_goes_on_through_a_restart_of_the_server(
    visit: Visit, keyed: ServerProcess
) -> None:
    page = visit.open("/topics/near.by")
    page.get_by_label("Live").check()
    write(keyed, "near.by", [{"data": "first"}])
    expect(page.locator(".records .row code").first).to_have_text('"first"')
    keyed.kill()
    expect(page.locator(".away")).to_contain_text("has not answered since")
    expect(page.locator("h1 .badge.warn")).to_contain_text("as of")
    port = keyed.port
    keyed.env["TOPICS_PORT"] = str(port)
    keyed.start()
    write(keyed, "near.by", [{"data": "second"}])
    expect(page.locator(".records .row code").first).to_have_text('"second"')
    expect(page.locator(".away")).to_have_count(0)


def test_nothing_in_a_record_runs_or_is_rounded(visit: Visit) -> None:
    page = visit.open("/topics/hostile")
    expect(page.locator(".records .row")).to_have_count(5)
    for row in page.locator(".records .row .line").all():
        row.click()
        expect(page.locator(".row.open .json").first).to_be_visible()
    assert page.evaluate("window.hacked") is None
    page.locator(".records .row .line").first.click()
    expect(page.locator(".row.open .json").first).to_contain_text("1e400")
    assert "\u202e" not in page.inner_text("main")
    page = visit.open("/topics/near.by")
    expect(page.locator("code", has_text="12345678901234567890123")).to_be_visible()


def test_a_key_that_only_reads_sees_no_button_that_it_may_not_use(
    visit: Visit, keyed: ServerProcess
) -> None:
    page = visit.use("reader").open("/topics/orders?match=user-1")
    expect(page.locator(".records .row").first).to_be_visible()
    expect(page.get_by_role("button", name="Delete what matches")).to_have_count(0)
    page = visit.open("/topics/orders?tab=settings")
    expect(page.locator(".settings tr").first).to_be_visible()
    rights = page.locator(".keybox .badge")
    expect(rights).to_be_visible()
    assert page.locator(".settings input, .settings select").count() == 0
    put(keyed, "seen", {"type": "queue", "dead_letter": "seen.dead", "max_deliveries": 1})
    bury(keyed, "seen", [("a", "Timeout")])
    write(keyed, "seen", [{"data": n} for n in range(2)])
    call(keyed, "POST", "/v0/topics/seen/claim", {"node": "w", "lease_ms": 600_000})
    changes = page.get_by_role("button", name=re.compile("retry|delete|move|new|edit|append", re.I))
    for key, some in (("reader", False), ("boss", True)):
        for place in ("seen?tab=dead&cause=timeout", "seen?tab=jobs&state=leased"):
            page = visit.use(key).open(f"/topics/{place}")
            page.get_by_role("checkbox").last.check()
            expect(page.get_by_role("button", name="Select none")).to_be_visible()
            expect(rights).to_be_visible()
            assert (changes.count() > 0) == some, place
        page = visit.open("/queues")
        expect(page.get_by_role("link", name="seen", exact=True)).to_be_visible()
        expect(rights).to_be_visible()
        assert (changes.count() > 0) == some


def test_a_key_of_a_prefix_sees_nothing_else(visit: Visit) -> None:
    page = visit.use("near").open("/topics")
    expect(page.locator(".list tbody tr")).to_have_count(1)
    expect(page.locator(".list tbody")).to_contain_text("near.by")
    for place in ("/", "/routers", "/queues"):
        page = visit.open(place)
        expect(page.locator("h1")).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert "orders" not in page.content()
        assert "mails" not in page.content()


def test_without_a_key_the_page_says_what_it_needs(visit: Visit) -> None:
    page = visit.use("").open("/")
    expect(page.locator("text=This server needs a key")).to_be_visible()


def test_a_search_finds_a_topic_by_a_part_of_its_name(visit: Visit) -> None:
    page = visit.open("/topics")
    page.get_by_placeholder("Search by name").fill("stil")
    expect(page.locator(".list tbody tr")).to_have_count(1)
    assert "q=stil" in page.url


@pytest.mark.parametrize("scheme", ["light", "dark", "narrow"])
def test_every_page_is_accessible_and_fits(
    browser: Browser,
    keyed: ServerProcess,
    tmp_path: Path,
    scheme: Literal["light", "dark", "narrow"],
) -> None:
    """As axe sees it, levels A and AA; on a narrow screen nothing but wide tables scroll aside.

    A picture of each page stays in the folder of the test, for a look with the eye.
    """
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce" if scheme == "narrow" else "no-preference",
        viewport={"width": 390, "height": 844} if scheme == "narrow" else None,
        bypass_csp=True,
    )
    visit = Visit(context.new_page(), keyed).use("boss")
    places = ("/", "/topics", "/queues", "/routers", "/try", "/actions", "/topics/orders")
    tabs = [
        f"/topics/mails?tab={tab}" for tab in ("ledger", "consumers", "settings", "jobs", "dead")
    ]
    page = visit.open("/")
    page.add_script_tag(path=AXE)
    for place in (*places, *tabs):
        page.goto(f"{keyed.url}/console/#{place}")
        expect(page.locator("h1").first).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place
        page.screenshot(path=tmp_path / f"{scheme}{place.replace('/', '-')}.png")
        found = page.evaluate(
            "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})"
            ".then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' | ')))"
        )
        assert found == [], place
    context.close()


def test_the_holder_of_a_leased_job_is_found(visit: Visit, keyed: ServerProcess) -> None:
    put(keyed, "held", {"type": "queue"})
    write(keyed, "held", [{"data": "first"}, {"data": "second"}])
    call(keyed, "POST", "/v0/topics/held/claim", {"node": "worker-9", "lease_ms": 600_000})
    page = visit.open("/queues?q=held")
    expect(page.get_by_role("row").filter(has_text="held")).to_contain_text("leased 1")
    page.get_by_role("link", name="held", exact=True).click()
    page.get_by_role("link", name="Jobs").click()
    stuck = page.get_by_role("row").filter(has_text="worker-9")
    expect(stuck).to_contain_text("leased")
    expect(stuck).to_contain_text('"first"')
    expect(page.get_by_role("row").filter(has_text='"second"')).to_contain_text("ready")


def test_dead_letters_are_filtered_by_cause_and_only_those_are_retried(
    visit: Visit, keyed: ServerProcess
) -> None:
    put(keyed, "bills", {"type": "queue", "dead_letter": "bills.dead", "max_deliveries": 1})
    bury(keyed, "bills", [(f"{n}", "Timeout" if n % 2 else "Refused") for n in range(1, 7)])
    page = visit.open("/topics/bills?tab=dead&cause=timeout")
    expect(page.locator(".bar [role=status]")).to_have_text("3 of 6")
    page.get_by_role("button", name="Retry 3 jobs that match").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".command")).to_contain_text("topics queue redrive bills --seqs 5,3,1")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator(".bar [role=status]")).to_have_text("0 of 3")
    left = call(keyed, "POST", "/v0/topics/bills.dead/diff", {})["records"]
    assert {record["meta"]["$dead_letter_error_type"] for record in left} == {"Refused"}
    assert call(keyed, "GET", "/v0/topics/bills")["queue"]["ready"] == 3


def test_dead_letters_are_picked_and_no_others_are_retried_or_deleted(
    visit: Visit, keyed: ServerProcess
) -> None:
    put(keyed, "fines", {"type": "queue", "dead_letter": "fines.dead", "max_deliveries": 1})
    bury(keyed, "fines", [(f"{n}", "Timeout" if n % 2 else "Refused") for n in range(1, 9)])
    page = visit.open("/topics/fines?tab=dead")
    page.get_by_label("letter 4", exact=True).check()
    page.get_by_label("letter 1", exact=True).check()
    page.get_by_role("button", name="Retry 2 selected jobs").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The other 6 stay.")
    expect(dialog.locator(".command")).to_contain_text("topics queue redrive fines --seqs 4,1")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator(".bar [role=status]")).to_have_text("6 of 6")
    assert tags(keyed, "fines") == ["1", "4"]
    page.get_by_label("letter 2", exact=True).check()
    page.get_by_label("letter 3", exact=True).check()
    page.get_by_role("button", name="Delete 2 selected jobs").click()
    expect(dialog.locator(".command")).to_contain_text("topics delete fines.dead --seqs 3,2")
    dialog.get_by_role("button", name="Delete for good").click()
    expect(page.locator(".bar [role=status]")).to_have_text("4 of 4")
    assert tags(keyed, "fines.dead") == ["5", "6", "7", "8"]
    page.get_by_label("letter 5", exact=True).check()
    page.get_by_label("Cause or tag").fill("refused")
    page.get_by_role("button", name="Delete 2 jobs that match").click()  # a new filter unpicks
    call(keyed, "POST", "/v0/topics/fines/delete", {"before_seq": 99})
    bury(keyed, "fines", [("late", "Refused")])
    expect(page.locator(".bar [role=status]")).to_have_text("3 of 5")
    dialog.get_by_role("button", name="Delete for good").click()
    expect(page.locator(".bar [role=status]")).to_have_text("1 of 3")
    assert tags(keyed, "fines.dead") == ["5", "7", "late"], "only what the dialog told of"
    assert tags(keyed, "fines") == []


def test_what_a_change_evicts_is_told_before_it_happens(visit: Visit, keyed: ServerProcess) -> None:
    write(keyed, "tight", [{"data": n} for n in range(50)])
    page = visit.open("/topics/tight?tab=settings")
    page.get_by_label("cap_records").fill("20")
    page.get_by_role("button", name="Review 1 change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This evicts 30 records")
    assert call(keyed, "GET", "/v0/topics/tight")["count"] == 50
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_have_count(0)
    assert call(keyed, "GET", "/v0/topics/tight")["count"] == 20


def worst_task_ms(browser: Browser, page: Page, act: Callable[[], None], tmp_path: Path) -> float:
    """The longest task of the page's threads while something happens, in processor time.

    Processor time: what else the machine does meanwhile is not in it.
    """
    traced = tmp_path / "trace.json"
    browser.start_tracing(page=page, path=traced, categories=["toplevel", "__metadata"])
    try:
        act()
    finally:
        browser.stop_tracing()
    events = json.loads(traced.read_text())["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks: list[float] = [
        event.get("tdur", 0) / 1000
        for event in events
        if (event["pid"], event["tid"]) in mains and event.get("ph") == "X"
    ]
    assert tasks
    return max(tasks)


def test_a_topic_is_found_among_five_thousand(
    browser: Browser, visit: Visit, keyed: ServerProcess, tmp_path: Path
) -> None:
    records = [{"topic": f"many.{n:04}", "data": n} for n in range(MANY)]
    call(keyed, "POST", "/v0/stages/many/1/0/0", {"records": records})
    call(keyed, "POST", "/v0/stages/many/1/commit", {"parts": [[0, 0]]})
    page = visit.open("/topics?sort=head_seq")
    expect(page.locator("tbody tr").first).to_be_visible()
    page = visit.open("/topics")
    expect(page.get_by_role("link", name="many.0000")).to_be_visible()
    assert page.locator("tbody tr").count() < 150, "only rows near the view are drawn"
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_in_viewport()

    def look() -> None:
        page.evaluate("scrollTo(0, 0)")
        page.get_by_placeholder("Search by name").press_sequentially("y.4777", delay=20)
        expect(page.locator("tbody tr")).to_have_count(1)

    assert worst_task_ms(browser, page, look, tmp_path) < WORST_TASK_MS
    page.get_by_role("link", name="many.4777").click()
    expect(page.get_by_role("heading", name="many.4777")).to_be_visible()


def test_a_live_tail_of_500_records_a_second_leaves_the_page_free(
    browser: Browser, visit: Visit, keyed: ServerProcess, tmp_path: Path
) -> None:
    put(keyed, "fast", {"durability": "memory"})
    page = visit.open("/topics/fast")
    page.get_by_label("Live").check()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert "live=1" in page.url, "the link is of the live tail, too"

    def write_on() -> None:
        for n in range(BATCHES):  # one every tenth of a second, for five seconds
            write(keyed, "fast", [{"data": {"n": n, "i": i}, "tag": f"t{i}"} for i in range(50)])
            page.wait_for_timeout(80)
        expect(page.locator(".records .row .seq").first).to_have_text("2,500")

    worst = worst_task_ms(browser, page, write_on, tmp_path)
    assert worst < WORST_TASK_MS, "the longest task, not the mean"


def test_a_loss_is_reached_by_reading_back_and_tells_its_reason(
    visit: Visit, keyed: ServerProcess
) -> None:
    put(keyed, "long", {"cap_records": 200})
    write(keyed, "long", [{"data": n} for n in range(260)])
    page = visit.open("/topics/long")
    expect(page.locator(".records .row").first).to_be_visible()
    gap = page.locator(".records .gap")
    while gap.count() == 0:  # endless: the next page comes when the end is near
        page.keyboard.press("End")
        page.wait_for_timeout(50)
    expect(gap).to_contain_text("60 records lost, seq 1 to 60")
    expect(gap).to_contain_text("Written before 20")
    gap.get_by_role("button", name="Why").click()
    expect(gap.locator(".reasons")).to_contain_text("seq 1 to 60: evicted: the topic is capped")
    page = visit.open("/topics/long?seq=100")
    expect(page.locator(".row.open .seq")).to_be_in_viewport()
    assert rows(page)[0] == "124"
    page.get_by_role("button", name="Newer records").click()
    expect(page.locator(".records .row .seq").first).not_to_have_text("124")
    page.keyboard.press("Home")  # upwards it is endless, too
    expect(page.locator(".records .row .seq").first).to_have_text("260", timeout=PATIENCE_MS)
    expect(page.get_by_role("button", name="Newer records")).to_have_count(0)


def test_a_time_leads_to_the_record_that_was_written_then(
    visit: Visit, keyed: ServerProcess
) -> None:
    write(keyed, "timed", [{"data": "early"}])
    visit.page.wait_for_timeout(1100)  # the field has whole seconds
    write(keyed, "timed", [{"data": "late"}])
    late = call(keyed, "POST", "/v0/topics/timed/diff", {"from_seq": 1})["records"][0]["$ts"]
    page = visit.open("/topics/timed")
    wanted = page.evaluate(
        "ms => { const d = new Date(ms - new Date().getTimezoneOffset() * 60000);"
        " return d.toISOString().slice(0, 19); }",
        late,
    )
    page.get_by_label("or time").fill(wanted)
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".row.open .json")).to_have_text('"late"')
    assert "seq=2" in page.url


def test_the_first_page_says_what_needs_attention_and_leads_there(
    visit: Visit, keyed: ServerProcess
) -> None:
    put(keyed, "stuck", {"type": "queue"})
    write(keyed, "stuck", [{"data": 1}])
    page = visit.open("/")
    wrong = page.locator(".wrong li").filter(has_text="stuck")
    expect(wrong).to_contain_text("1 job is ready, and no worker holds any.", timeout=PATIENCE_MS)
    for label in ("Disk left", "Sync latency", "Loop lag", "Pressure", "Records out", "Watchers"):
        expect(page.locator(".figure").filter(has_text=label)).to_be_visible()
    wrong.get_by_role("link").click()
    expect(page.locator(".story")).to_contain_text("topics queue peek stuck")
    assert page.url.endswith("/topics/stuck?tab=jobs")


def test_consumers_and_spark_queries_stand_in_the_picture_of_routers(
    visit: Visit, keyed: ServerProcess
) -> None:
    write(keyed, "flowing", [{"data": n} for n in range(3)])
    call(keyed, "PUT", "/v0/topics/flowing/cursors/flow.daily", {"seq": 1})
    call(keyed, "PUT", "/v0/routers/copy", {"source": "flowing", "dest": "flowing.copy"})
    stage = {"records": [{"topic": topic, "data": 1} for topic in ("flowing.out", "flowing")]}
    call(keyed, "POST", "/v0/stages/flow.daily/1/0/0", stage)
    call(keyed, "POST", "/v0/stages/flow.daily/1/commit", {"parts": [[0, 0]]})
    page = visit.open("/routers")
    table = page.locator("table").filter(has_text="Time behind")
    expect(table).to_contain_text("flow.daily", timeout=PATIENCE_MS)
    expect(table.get_by_role("row").filter(has_text="reads").first).to_contain_text("3")
    graph = page.locator(".graph")
    expect(graph.locator("text").filter(has_text="daily").first).to_be_visible()
    expect(graph).to_contain_text("3 behind")
    expect(graph).to_contain_text("epoch 1")
    page = visit.open("/topics/flowing?tab=consumers")
    expect(page.get_by_role("row", name="flow.daily Spark flow 3")).to_be_visible()


def test_picked_jobs_are_moved_back_or_deleted_and_the_tab_notes_what_it_did(
    visit: Visit, keyed: ServerProcess
) -> None:
    put(keyed, "kept", {"type": "queue"})
    write(keyed, "kept", [{"data": n, "tag": f"{n}"} for n in range(1, 7)])
    for node in ("worker-1", "worker-2"):
        claim = {"node": node, "max": 2, "lease_ms": 600_000}
        call(keyed, "POST", "/v0/topics/kept/claim", claim)
    page = visit.open("/topics/kept?tab=jobs&state=leased")
    page.get_by_label("job 1", exact=True).check()
    page.get_by_label("job 3", exact=True).check()
    page.get_by_role("button", name="Move back 2 leased jobs").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 jobs are taken from 2 workers")
    command = "topics queue nack kept --node worker-1 1; topics queue nack kept --node worker-2 3"
    expect(dialog.locator(".command")).to_contain_text(command)
    dialog.get_by_role("button", name="Move back").click()
    expect(page.locator(".bar [role=status]")).to_have_text("2 of 2")
    held = call(keyed, "GET", "/v0/topics/kept/jobs?state=leased")["jobs"]
    assert {(job["seq"], job["node"]) for job in held} == {(2, "worker-1"), (4, "worker-2")}
    page.get_by_label("State").select_option("all")
    page.get_by_label("job 2", exact=True).check()
    page.get_by_label("job 5", exact=True).check()
    page.get_by_role("button", name="Delete 2 selected jobs").click()
    expect(dialog).to_contain_text("1 of them is leased")
    expect(dialog.locator(".command")).to_contain_text("topics delete kept --seqs 2,5")
    dialog.get_by_role("button", name="Delete for good").click()
    expect(page.locator(".bar [role=status]")).to_have_text("4 of 4")
    assert tags(keyed, "kept") == ["1", "3", "4", "6"]
    page.get_by_role("link", name="Actions").click()
    noted = page.get_by_role("row").filter(has_text="Move back 2 leased jobs")
    expect(noted).to_contain_text(command)
    expect(noted).to_contain_text("done")


@pytest.mark.parametrize("secure", [True, False])
def test_what_is_copied_is_what_is_shown_and_does_the_same(
    visit: Visit, keyed: ServerProcess, secure: bool
) -> None:
    """Without TLS, and from another machine, a browser has no `navigator.clipboard`."""
    page, topic = visit.page, f"tried.{secure}".lower()
    if not secure:
        page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    write(keyed, topic, [{"data": 12345678901234567890123}])
    visit.open(f"/try?topic={topic}")
    data, text = page.get_by_label("Data, any JSON"), """{"it's": ["\\u00e9", "$HOME", 7e400]}"""
    copied = []
    for what in ("curl", "Python", "command"):
        data.fill(text)
        page.get_by_label("Tag").fill("it's one")
        card = page.locator("section").filter(has_text=f"The same as {what}")
        shown = card.locator("pre").text_content()
        card.get_by_role("button", name="Copy").click()
        expect(card.get_by_role("button", name="Copied")).to_be_visible()
        data.fill("")
        data.press("Control+v")
        expect(data).to_have_value(shown or "")
        copied.append(shown or "")
    curl, python, command = copied
    topics = Path(sys.executable).parent
    env = {"TOPICS_TOKEN": "boss", "PATH": f"{topics}:{os.environ['PATH']}", "HOME": "/nonexistent"}
    if secure:  # both copy the same lines
        for line in (
            ["bash", "-ec", curl],
            [sys.executable, "-c", python],
            ["bash", "-ec", command],
        ):
            subprocess.run(line, env=env, check=True, capture_output=True, timeout=60)
        wrote = call(keyed, "POST", f"/v0/topics/{topic}/diff", {"include_tags": True})["records"]
        assert [record["$tag"] for record in wrote[1:]] == ["it's one"] * 3
        assert all(record["data"] == json.loads(text) for record in wrote[1:])
    visit.open(f"/topics/{topic}?seq=1")
    page.get_by_role("button", name="Copy data").click()
    visit.open("/try")
    data.fill("")
    data.press("Control+v")
    expect(data).to_have_value("12345678901234567890123")


def test_names_that_others_chose_do_nothing_on_the_pages_of_queues(
    visit: Visit, keyed: ServerProcess
) -> None:
    mark, red = "\u202e", "\u001b[31m"
    for n, evil in enumerate(HOSTILE[:3]):
        node, queue = f"{evil}'; touch {red}", f"evil.{n}"
        config = {"type": "queue", "dead_letter": f"{queue}.dead", "max_deliveries": 1}
        put(keyed, queue, config)
        bury(keyed, queue, [(evil, evil)], node=node)
        write(keyed, queue, [{"data": evil, "tag": evil}])
        call(keyed, "POST", f"/v0/topics/{queue}/claim", {"node": node, "lease_ms": 600_000})
        page = visit.open(f"/topics/{queue}?tab=dead")
        shown = (
            evil.replace(mark, "\\u202e").replace("\u202c", "\\u202c").replace("\x1b", "\\u001b")
        )
        expect(page.locator("td.cause")).to_contain_text(f"{shown}: job {shown}")
        page.get_by_label("letter 1: show all of it").click()
        page.goto(f"{keyed.url}/console/#/topics/{queue}?tab=jobs")
        expect(page.get_by_role("row").filter(has_text="leased")).to_contain_text(shown)
        page.get_by_role("button", name="Move back 1 leased job").click()
        dialog = page.get_by_role("dialog")
        command = dialog.locator("code").text_content() or ""
        assert not any(sign in command for sign in (mark, "\x1b")), "seen as escapes"
        told = ["bash", "-c", f'topics() {{ printf %s "$5"; }}; {command}']
        asked = subprocess.run(told, check=True, capture_output=True, timeout=60)
        assert asked.stdout.decode() == node, "and still the same worker"
        dialog.get_by_role("button", name="Move back").click()
        expect(dialog).to_have_count(0)
        assert not any(sign in page.inner_text("body") for sign in (mark, "\x1b"))
    for place in (*HOSTILE[:3], f"x{HOSTILE[1]}?tab=dead"):  # no topic has such a name, a link may
        page = visit.open(f"/topics/{quote(place, safe='?=')}")
        expect(page.get_by_role("alert")).to_be_visible()
    call(keyed, "PUT", "/v0/routers/evil%3Eone", {"source": "evil.0", "dest": "evil.copy"})
    name = "".join(HOSTILE[:3])

    def spoil(route: Route) -> None:
        """As if a server took any name."""
        answer = route.fetch()
        made = json.loads(re.sub(r'"evil[.>]', lambda _: json.dumps(name)[:-1], answer.text()))
        if "history" in route.request.url:
            reads = {"topic": name, "cursor": name, "lag_records": 1, "lag_seconds": 1}
            made["consumers"].append(reads)
            made["apps"].append({"app": name, "epoch": 1, "topics": [name]})
        route.fulfill(response=answer, json=made)

    page.route(re.compile("/v0/(routers|history)"), spoil)
    page = visit.open("/routers")
    for row in ("reads", "writes, epoch", "at least once"):
        spoilt = page.get_by_role("row").filter(has_text=row).filter(has_text="<script>")
        expect(spoilt).to_contain_text("\\u202eright to left")
    assert page.evaluate("window.hacked") is None
    assert not any(sign in page.inner_text("body") for sign in (mark, "\x1b"))
    page.unroute_all()


def test_a_paced_retry_shows_how_far_it_is_and_can_be_stopped(
    visit: Visit, keyed: ServerProcess
) -> None:
    put(keyed, "paced", {"type": "queue", "dead_letter": "paced.dead", "max_deliveries": 1})
    write(keyed, "paced", [{"data": n} for n in range(30)])
    call(keyed, "POST", "/v0/topics/paced/claim", {"node": "w", "max": 30})
    error = {"type": "<b>Bad</b>", "message": "<script>window.hacked = 1</script>"}
    given_back = {"node": "w", "seqs": [*range(1, 31)], "error": error}
    call(keyed, "POST", "/v0/topics/paced/nack", given_back)
    call(keyed, "POST", "/v0/topics/paced/claim", {"node": "w"})
    page = visit.open("/topics/paced?tab=dead")
    expect(page.locator("td.cause").first).to_have_text(
        "<b>Bad</b>: <script>window.hacked = 1</script>"
    )
    page.get_by_role("button", name="Retry all 30 jobs").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("How fast").select_option("10 a second")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    expect(dialog.get_by_role("status")).to_contain_text("of 30")
    dialog.get_by_role("button", name="Stop").click()
    expect(dialog).to_have_count(0)
    left = call(keyed, "GET", "/v0/topics/paced.dead")["count"]
    assert 0 < left < 30, "those that were not reached stay"
    assert page.evaluate("window.hacked") is None


def test_everything_is_reached_with_the_keyboard(visit: Visit) -> None:
    page = visit.open("/topics/orders?match=user-1")
    lines = page.locator(".records button.line")
    expect(lines.first).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Tag")).to_be_focused()
    lines.first.focus()
    page.keyboard.press("ArrowDown")
    expect(lines.nth(1)).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid", "what has the focus is seen"
    page.keyboard.press("Enter")
    expect(page.locator(".row.open")).to_have_count(1)
    assert "open=" in page.url
    page = visit.open("/topics")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()


def test_a_hidden_tab_asks_nothing(visit: Visit) -> None:
    page = visit.open("/topics/orders")
    expect(page.locator(".records .row").first).to_be_visible()
    hide = (
        "value => { Object.defineProperty(document, 'hidden', {value, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.evaluate(hide, True)
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(4500)  # the state of a topic is asked for every two seconds
    assert asked == []
    page.evaluate(hide, False)
    page.wait_for_timeout(500)
    assert asked, "and goes on when it is seen again"


def test_a_page_is_loaded_with_few_requests(
    visit: Visit, keyed: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    page, asked = visit.page, [""]
    page.on("request", lambda request: asked.append(request.url))
    asked.clear()
    page.goto(f"{keyed.url}/console/#/topics/orders")
    page.reload()
    expect(page.locator(".records .row").first).to_be_visible()
    files = {url for url in asked if "/console/" in url}
    calls = {url for url in asked if "/v0/" in url}
    with capsys.disabled():
        print(f"\nconsole: {len(files)} files and {len(calls)} calls to show a topic")
    assert len(files) <= 30
    assert len(calls) <= 8
    assert all(url.startswith(keyed.url) for url in asked), "nothing from anywhere else"


def cpu_seconds(server: ServerProcess) -> float:
    """Processor time of the server's process."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_fifty_open_consoles_cost_less_than_two_percent_of_a_core(
    visit: Visit, keyed: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """The requests of one open first page, as a browser sends them, fifty times over."""
    page = visit.open("/")
    expect(page.locator(".figure").first).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(6_000)
    assert {url.removeprefix(keyed.url) for url in asked} == {"/v0/history"}
    assert len(asked) <= 2, "every five seconds"
    page.goto("about:blank")
    seconds, headers = 5.0, {"authorization": "Bearer boss"}
    idle_from = cpu_seconds(keyed)
    time.sleep(seconds)
    idle = cpu_seconds(keyed) - idle_from
    with httpx.Client(base_url=keyed.url, headers=headers, timeout=90) as client:
        etag = client.get("/v0/history").headers["etag"]
        busy_from, began = cpu_seconds(keyed), time.monotonic()
        for n in range(50):  # each of them every five seconds
            answer = client.get("/v0/history", headers={"if-none-match": etag})
            etag = answer.headers["etag"]
            time.sleep(max(0.0, began + (n + 1) * seconds / 50 - time.monotonic()))
        busy, spent = cpu_seconds(keyed) - busy_from, time.monotonic() - began
    share = busy / spent - idle / seconds
    with capsys.disabled():
        print(f"\nconsole: 50 open first pages cost {share:.2%} of a core")
    assert share < 0.02
