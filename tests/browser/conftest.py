"""A real browser, Debian's chromium, driven by playwright; and a real server for it to talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.blackbox.conftest import ServerProcess, server, server_factory
from tests.programs import debian_program

__all__ = ["ServerProcess", "server", "server_factory"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for the whole run, without a window."""
    path = debian_program("chromium", package="chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=180_000,
        )
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    """A page of the server's own origin: no other may use the API unless it is listed."""
    context = browser.new_context(base_url=server.url)
    opened = context.new_page()
    opened.set_default_timeout(120_000)
    opened.goto("/v0/health")
    yield opened
    context.close()
