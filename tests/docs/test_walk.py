"""The walks of docs/ARCHITECTURE.md are what the program does."""

from __future__ import annotations

import pytest
from tools.walk import PAGE, RENEW, WALKS, Walk, difference, part_of


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_a_walk_of_the_page_is_what_the_program_does(walk: Walk) -> None:
    page, part = PAGE.read_text(), part_of(walk)
    begin = page.index(f"### {walk.title}\n")
    printed = page[begin:].partition("\n```\n")[0] + "\n```"
    assert printed == part, f"{RENEW}\n{difference(printed, part)}"
