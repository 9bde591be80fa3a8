"""Where a topic ends for somebody who looks at the files while the owner writes."""

from __future__ import annotations

from pathlib import Path

import topics
from topics.embedded.view import View


def test_a_view_does_not_pass_seqs_that_the_owner_may_still_use(tmp_path: Path) -> None:
    with topics.open(tmp_path) as owner:
        owner.append("orders", [{"data": n} for n in range(10)])  # class disk: it reserves ahead
        with topics.open(tmp_path, read_only=True) as view:
            page = view.read("orders")
            assert (page.next_from_seq, page.head_seq) == (10, 10)
            owner.append("orders", [{"data": n} for n in range(5)])
            assert isinstance(view, View)
            view.refresh()
            later = view.read("orders", after=page.next_from_seq)
    assert [record.seq for record in later.records] == [11, 12, 13, 14, 15]


def test_seqs_left_by_a_dead_owner_are_passed_once_another_has_skipped_them(tmp_path: Path) -> None:
    dead = topics.open(tmp_path / "data")
    dead.append("orders", {"data": 1})
    dead._engine.release()  # without a last word, as if killed
    with topics.open(tmp_path / "data", read_only=True) as view:
        assert view.state("orders").head_seq == 1
    with topics.open(tmp_path / "data") as owner:
        head = owner.append("orders", {"data": 2}).last_seq
    with topics.open(tmp_path / "data", read_only=True) as view:
        assert [record.seq for record in view.read("orders").records] == [1, head]
        assert view.read("orders").tombstone is None
