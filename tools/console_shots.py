"""Pictures of the console for the documentation: a server with sample traffic, and a browser.

    .venv/bin/python tools/console_shots.py

writes the still pictures and the walkthrough to `docs/images`. The walkthrough is an animated WebP
of screenshots, one for each step. It needs Pillow, which the Spark stage of the set-up brings.
"""

import io
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import topics
from topics.client.interface import AnyLog

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SHOTS: tuple[tuple[str, Literal["light", "dark"], str, tuple[int, int]], ...] = (
    ("light", "light", "/", (1100, 640)),
    ("topics", "light", "/topics", (1100, 400)),
    ("dark", "dark", "/topics/orders", (1100, 560)),
    ("queue", "light", "/topics/mails?tab=dead", (1100, 620)),
    ("routers", "light", "/routers", (1100, 380)),
    ("narrow", "light", "/topics/orders?tab=consumers", (390, 780)),
)
WALK_SIZE = (960, 600)
STILL_COLORS = 128


def fill(log: AnyLog) -> None:
    """Topics, a queue with workers, dead letters, routers, consumers, a flow."""
    log.create("orders", durability="fsync", cap_records=1500)
    log.create("mails", type="queue", max_deliveries=1, dead_letter="mails.dead", lease_ms=600_000)
    log.create("clicks", durability="memory")
    log.route("orders->audit", source="orders", dest="audit")
    log.route("clicks->visits", source="clicks", dest="visits")
    for n in range(90):  # for half a minute and more, so that there are rates to draw
        log.append("orders", [order(n * 20 + i) for i in range(20)])
        log.append("clicks", [{"data": {"page": f"/p/{n % 7}", "ms": n * 3 % 40}}] * (5 + n % 9))
        log.set_cursor("orders", "billing", max(0, n * 20 - 40))
        log.set_cursor("orders", "flow.daily-totals", n * 20)
        if n == 20:
            log.set_cursor("orders", "warehouse", 90)
        time.sleep(0.2 + n % 30 / 50)
    log.stage("flow.daily-totals", 1, 0, [{"topic": "totals", "data": {"eur": 4711}}])
    log.commit("flow.daily-totals", 1, [(0, 0)])
    mails(log)


def mails(log: AnyLog) -> None:
    """Jobs that wait, that workers hold, and that died of two causes."""
    log.append("mails", [{"data": {"to": f"user-{n}@example.org"}} for n in range(40)])
    worker = log.queue("mails", node="worker-1")
    for n in range(14):
        cause = TimeoutError("no answer from the mail server")
        refused = ConnectionRefusedError("the mail server refused the recipient")
        worker.nack(worker.claim(1), error=refused if n % 5 == 2 else cause)
    worker.claim(6)
    log.queue("mails", node="worker-2").claim(3)


def keep_on(url: str, ended: threading.Event) -> None:
    """Traffic for as long as pictures are taken, so that rates and lags move."""
    with topics.open(url) as log:
        for n in count():
            if ended.wait(0.25):
                return
            log.append("orders", [order(n * 5 + i) for i in range(4 + n % 3)])
            log.append("clicks", [{"data": {"page": f"/p/{n % 7}"}}] * (2 + n % 5))
            log.set_cursor("orders", "billing", log.state("orders").head_seq - n % 9)


def order(n: int) -> dict[str, object]:
    what = {"order": n, "user": f"user-{n % 9}", "total": f"{n % 90 + 10}.50", "items": n % 5 + 1}
    return {"data": what, "tag": f"user-{n % 9}", "node": f"shop-{n % 2}"}


def small(image: bytes) -> Image.Image:
    """A still picture with few colours: a screenshot has hardly more."""
    made = Image.open(io.BytesIO(image)).convert("RGB")
    return made.quantize(STILL_COLORS, dither=Image.Dither.NONE)


def shoot(browser: Browser, url: str) -> None:
    for name, scheme, place, (width, height) in SHOTS:
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}
        )
        page: Page = context.new_page()
        page.goto(f"{url}/console/#{place}")
        page.locator("tbody tr, .records .row").first.wait_for()
        page.wait_for_load_state("networkidle")
        small(page.screenshot()).save(IMAGES / f"console-{name}.png", optimize=True)
        context.close()


class Walk:
    """Collects one picture for each step, and how long it stays."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.stays_ms: list[int] = []

    def show(self, stays_ms: int) -> None:
        self.frames.append(small(self.page.screenshot()).convert("RGB"))
        self.stays_ms.append(stays_ms)

    def type(self, label: str, text: str) -> None:
        field = self.page.get_by_label(label)
        for n in range(2, len(text) + 2, 2):
            field.fill(text[:n])
            self.page.wait_for_timeout(200)
            self.show(180)

    def save(self, path: Path) -> None:
        first, *others = self.frames
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self.stays_ms,
            loop=0,
            lossless=True,  # what a lossy picture keeps of the one before shows as ghosts
            method=6,
        )


def walk(browser: Browser, url: str) -> None:
    """About twenty seconds: what is wrong, find a topic, its records, live, a loss, a retry."""
    context = browser.new_context(viewport={"width": WALK_SIZE[0], "height": WALK_SIZE[1]})
    page = context.new_page()
    page.set_default_timeout(30_000)
    walked = Walk(page)
    page.goto(f"{url}/console/")
    page.locator(".wrong li").first.wait_for()
    walked.show(2200)
    page.get_by_role("link", name="Topics", exact=True).click()
    page.locator("tbody tr").first.wait_for()
    walked.show(900)
    walked.type("Search by name", "orders")
    page.get_by_role("link", name="orders", exact=True).click()
    page.locator(".records .row").first.wait_for()
    walked.show(1000)
    page.get_by_label("Live").check()
    for _ in range(8):
        page.wait_for_timeout(250)
        walked.show(250)
    page.get_by_label("Live").uncheck()
    page.locator(".records .line").first.click()
    page.locator(".row.open .json").wait_for()
    walked.show(1500)
    page.get_by_role("link", name="Ledger", exact=True).click()
    page.get_by_text("the ledger adds up").wait_for()
    walked.show(1900)
    page.get_by_role("link", name="Consumers", exact=True).click()
    page.locator(".chart svg").first.wait_for()
    walked.show(1900)
    page.get_by_role("link", name="Routers", exact=True).click()
    page.locator(".graph").wait_for()
    page.wait_for_timeout(3500)
    walked.show(1700)
    page.goto(f"{url}/console/#/topics/mails?tab=dead")
    page.get_by_label("Cause or tag contains").wait_for()
    walked.show(1000)
    walked.type("Cause or tag contains", "refused")
    page.get_by_role("button", name="Retry 3 jobs").click()
    page.get_by_role("dialog").wait_for()
    walked.show(2000)
    page.get_by_role("dialog").get_by_role("button", name="Retry", exact=True).click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.wait_for_timeout(600)
    walked.show(1000)
    page.get_by_role("link", name="Actions", exact=True).click()
    page.locator("tbody tr").first.wait_for()
    walked.show(2000)
    walked.save(IMAGES / "console-walkthrough.webp")
    context.close()


@contextmanager
def serving() -> Iterator[str]:
    """A server with a directory of its own."""
    with tempfile.TemporaryDirectory() as place:
        told = Path(place) / "port"
        command = [sys.executable, "-m", "topics.cli", "serve", "--data-dir", f"{place}/data"]
        server = subprocess.Popen([*command, "--port", "0", "--port-file", str(told)])
        try:
            wait_until(lambda: told.exists() and bool(told.read_text().strip()))
            yield f"http://{told.read_text().strip()}"
        finally:
            server.terminate()
            server.wait()


def wait_until(there: Callable[[], bool]) -> None:
    while not there():
        time.sleep(0.1)


def main() -> None:
    with serving() as url, topics.open(url) as log, sync_playwright() as playwright:
        fill(log)
        ended = threading.Event()
        traffic = threading.Thread(target=keep_on, args=(url, ended))
        traffic.start()
        time.sleep(25)  # two more steps of the history
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        shoot(browser, url)
        walk(browser, url)
        browser.close()
        ended.set()
        traffic.join()


if __name__ == "__main__":
    main()
