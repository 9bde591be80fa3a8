"""Pictures of the console for the documentation: a server with sample traffic, and a browser.

    .venv/bin/python tools/console_shots.py

writes `docs/images/console-light.png` and `docs/images/console-dark.png`.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

import topics
from topics.client.interface import AnyLog

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SHOTS: tuple[tuple[Literal["light", "dark"], str, int], ...] = (
    ("light", "/topics", 420),
    ("dark", "/topics/orders", 540),
)


def fill(log: AnyLog) -> None:
    """Topics, a queue with a worker, dead letters, a router."""
    log.create("orders", durability="fsync", cap_records=1500)
    log.create("mails", type="queue", max_deliveries=1, dead_letter="mails.dead")
    log.create("clicks", durability="memory")
    log.route("orders->audit", source="orders", dest="audit")
    for n in range(90):  # for half a minute and more, so that there are rates to draw
        drafts = [_order(n * 20 + i) for i in range(20)]
        log.append("orders", drafts)
        log.append("clicks", [{"data": {"page": f"/p/{n % 7}", "ms": n * 3 % 40}}] * (5 + n % 9))
        time.sleep(0.2 + n % 30 / 50)
    log.append("mails", [{"data": {"to": f"user-{n}@example.org"}} for n in range(12)])
    worker = log.queue("mails", node="worker-1")
    worker.nack(worker.claim(2), error=TimeoutError("no answer from the mail server"))
    worker.claim(3)


def _order(n: int) -> dict[str, object]:
    what = {"order": n, "user": f"user-{n % 9}", "total": f"{n % 90 + 10}.50", "items": n % 5 + 1}
    return {"data": what, "tag": f"user-{n % 9}", "node": f"shop-{n % 2}"}


def shoot(browser: Browser, url: str) -> None:
    for scheme, place, height in SHOTS:
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": 1100, "height": height}
        )
        page: Page = context.new_page()
        page.goto(f"{url}/console/#{place}")
        page.locator("tbody tr, .records .row").first.wait_for()
        page.wait_for_load_state("networkidle")
        page.screenshot(path=IMAGES / f"console-{scheme}.png")
        context.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        told = Path(place) / "port"
        command = [sys.executable, "-m", "topics.cli", "serve", "--data-dir", f"{place}/data"]
        server = subprocess.Popen([*command, "--port", "0", "--port-file", str(told)])
        try:
            while not told.exists() or not told.read_text().strip():
                time.sleep(0.1)
            url = f"http://{told.read_text().strip()}"
            with topics.open(url) as log:
                fill(log)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path="/usr/bin/chromium", args=["--no-sandbox"]
                )
                shoot(browser, url)
                browser.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
