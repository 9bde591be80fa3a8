"""Old segments in another directory: reads go on, and say how many of them they touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.blackbox.api_client import seqs
from tests.blackbox.conftest import Connect, ServerFactory

import topics

SETTINGS: dict[str, Any] = {"segment_max_events": 20, "hot_retain_segments": 1}


def test_a_read_counts_the_cold_segments_it_touches(
    server_factory: ServerFactory, connect: Connect, tmp_path: Path
) -> None:
    cold, data = tmp_path / "cold", tmp_path / "data"
    with topics.open(data, cold_dir=cold, **SETTINGS) as log:
        for start in range(0, 200, 20):
            log.append("t", [{"data": number} for number in range(start, start + 20)])
            log.checkpoint()
        log.maintain()
    moved = {path.stem for path in cold.rglob("*.data")}
    assert len(moved) > 3
    env = {f"TOPICS_{name.upper()}": str(value) for name, value in SETTINGS.items()}
    env["TOPICS_COLD_DIR"] = str(cold)
    api = connect(server_factory(env=env, data_dir=data))
    page = api.diff("t", limit=1000)
    assert seqs(page) == list(range(1, 201))
    assert page["performance"]["cold_segments_read"] == len(moved)
    assert api.diff("t", limit=20)["performance"]["cold_segments_read"] == 1
    newest = api.diff("t", from_seq=199)
    assert (seqs(newest), "cold_segments_read" in newest["performance"]) == ([200], False)
