"""How far seqs jump when a server is killed: never back, and no further than was reserved."""

from __future__ import annotations

import pytest
from tests.blackbox.api_client import Api
from tests.blackbox.conftest import Connect, ServerFactory

CALM, BUSY = 256, 4096


@pytest.mark.parametrize(
    ("writes", "batch", "bound"), [(3, 2, CALM), (60, 200, BUSY)], ids=["calm", "under load"]
)
def test_a_killed_server_skips_no_more_seqs_than_it_may(
    server_factory: ServerFactory, connect: Connect, writes: int, batch: int, bound: int
) -> None:
    server = server_factory()
    api = connect(server)
    api.make("t")
    for _ in range(writes):
        head = api.write("t", *range(batch))["head_seq"]
    server.restart()
    after = connect(server)
    first = after.write("t", "after")["first_seq"]
    assert head < first <= head + bound + 1
    _check_nothing_is_missed(after, head, first)


def _check_nothing_is_missed(api: Api, head: int, first: int) -> None:
    page = api.diff("t", from_seq=head)
    assert page["tombstone"] is None, "nothing was lost, so nobody is told of loss"
    assert [record["$seq"] for record in page["records"]] == [first]
    audit = api.get("/v0/topics/t/audit").json()
    assert audit["skipped"] == first - head - 1
    assert audit["live"] == head + 1
    assert audit["head_seq"] == audit["written"] + audit["skipped"]


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_clean_stop_skips_nothing(
    server_factory: ServerFactory, connect: Connect, durability: str
) -> None:
    server = server_factory()
    api = connect(server)
    api.make("t", durability=durability)
    head = api.write("t", 1, 2)["head_seq"]
    assert server.stop() == 0
    server.start()
    assert connect(server).write("t", 3)["first_seq"] == head + 1
