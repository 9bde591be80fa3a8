"""The console, as a person uses it: in a real browser, on a server with real records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.blackbox.conftest import ServerProcess

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
KEYS = "boss,reader:read,near:read:near."
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\u202eright to left\u202c \u001b[31mred",
    "x" * (1 << 19),
]
PATIENCE_MS = 60_000
BATCHES = 50


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


def test_a_key_that_only_reads_sees_no_button_that_it_may_not_use(visit: Visit) -> None:
    page = visit.use("reader").open("/topics/orders?match=user-1")
    expect(page.locator(".records .row").first).to_be_visible()
    expect(page.get_by_role("button", name="Delete what matches")).to_have_count(0)
    page = visit.open("/topics/orders?tab=settings")
    expect(page.locator(".settings tr").first).to_be_visible()
    assert page.locator(".settings input, .settings select").count() == 0


def test_a_key_of_a_prefix_sees_nothing_else(visit: Visit) -> None:
    page = visit.use("near").open("/topics")
    expect(page.locator(".list tbody tr")).to_have_count(1)
    expect(page.locator(".list tbody")).to_contain_text("near.by")


def test_without_a_key_the_page_says_what_it_needs(visit: Visit) -> None:
    page = visit.use("").open("/")
    expect(page.locator("text=This server needs a key")).to_be_visible()


def test_a_search_finds_a_topic_by_a_part_of_its_name(visit: Visit) -> None:
    page = visit.open("/topics")
    page.get_by_placeholder("Search by name").fill("stil")
    expect(page.locator(".list tbody tr")).to_have_count(1)
    assert "q=stil" in page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(
    browser: Browser, keyed: ServerProcess, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    visit = Visit(context.new_page(), keyed).use("boss")
    places = ("/", "/topics", "/queues", "/routers", "/try", "/topics/orders")
    tabs = [
        f"/topics/mails?tab={tab}" for tab in ("ledger", "consumers", "settings", "jobs", "dead")
    ]
    for place in (*places, *tabs):
        page = visit.open(place)
        expect(page.locator("h1").first).to_be_visible()
        page.wait_for_load_state("networkidle")
        page.add_script_tag(path=AXE)
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
    write(keyed, "bills", [{"data": n} for n in range(6)])
    for seq in range(1, 7):
        call(keyed, "POST", "/v0/topics/bills/claim", {"node": "w"})
        error = {"type": "Timeout" if seq % 2 else "Refused", "message": f"bill {seq}"}
        given_back = {"node": "w", "seqs": [seq], "error": error}
        call(keyed, "POST", "/v0/topics/bills/nack", given_back)
    call(keyed, "POST", "/v0/topics/bills/claim", {"node": "w"})
    page = visit.open("/topics/bills?tab=dead&cause=timeout")
    expect(page.get_by_role("status")).to_have_text("3 of 6")
    page.get_by_role("button", name="Retry 3 jobs that match").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".command")).to_contain_text("topics queue redrive bills --seqs 5,3,1")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("0 of 3")
    left = call(keyed, "POST", "/v0/topics/bills.dead/diff", {})["records"]
    assert {record["meta"]["$dead_letter_error_type"] for record in left} == {"Refused"}
    assert call(keyed, "GET", "/v0/topics/bills")["queue"]["ready"] == 3


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


def test_a_topic_is_found_among_two_thousand(visit: Visit, keyed: ServerProcess) -> None:
    with httpx.Client(base_url=keyed.url, headers={"authorization": "Bearer boss"}) as client:
        for n in range(2000):
            made = client.put(f"/v0/topics/many.{n:04}", json={"durability": "memory"}, timeout=90)
            made.raise_for_status()
    page = visit.open("/topics")
    page.get_by_placeholder("Search by name").fill("y.1777")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="many.1777").click()
    expect(page.get_by_role("heading", name="many.1777")).to_be_visible()


def test_a_live_tail_of_500_records_a_second_leaves_the_page_free(
    visit: Visit, keyed: ServerProcess
) -> None:
    """Counted in processor time of the page's thread: what else the machine does is not in it."""
    put(keyed, "fast", {"durability": "memory"})
    page = visit.open("/topics/fast")
    page.get_by_label("Live").check()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_ms() -> float:
        told = browser.send("Performance.getMetrics")["metrics"]
        return float(sum(1000 * it["value"] for it in told if it["name"] == "TaskDuration"))

    before = busy_ms()
    for n in range(BATCHES):  # one every tenth of a second, for five seconds
        write(keyed, "fast", [{"data": {"n": n, "i": i}, "tag": f"t{i}"} for i in range(50)])
        page.wait_for_timeout(80)
    expect(page.locator(".records .row .seq").first).to_have_text("2,500")
    assert (busy_ms() - before) / BATCHES < 100
