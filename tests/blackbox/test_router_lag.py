"""How far a router is behind, seen through the API and the metrics."""

from __future__ import annotations

import re

import pytest
from tests.blackbox.api_client import Api, good


def lag_in_metrics(api: Api, router: str) -> int:
    text = api.get("/v0/metrics").text
    (found,) = re.findall(rf'^topics_router_lag_records{{router="{router}"}} (\d+)$', text, re.M)
    return int(found)


@pytest.fixture
def stuck(api: Api, topic: str) -> str:
    """A router whose destination takes two records and no more; five are written."""
    api.make(f"{topic}.b", cap_records=2, discard="reject")
    good(api.put(f"/v0/routers/{topic}", {"source": f"{topic}.a", "dest": f"{topic}.b"}))
    api.write(f"{topic}.a", 1, 2, 3, 4, 5)
    return topic


def test_a_router_held_up_by_a_full_destination_shows_its_lag(api: Api, stuck: str) -> None:
    assert good(api.get(f"/v0/routers/{stuck}"))["lag"] == 3
    assert lag_in_metrics(api, stuck) == 3


def test_the_lag_goes_when_the_destination_has_room(api: Api, stuck: str) -> None:
    good(api.post(f"/v0/topics/{stuck}.b/delete", {"before_seq": 3}))
    assert good(api.get(f"/v0/routers/{stuck}"))["lag"] == 1
    good(api.post(f"/v0/topics/{stuck}.b/delete", {"before_seq": 4}))
    found = good(api.get(f"/v0/routers/{stuck}"))
    assert (found["lag"], found["forwarded_total"]) == (0, 5)
    assert lag_in_metrics(api, stuck) == 0
    assert f'topics_router_forwarded_total{{router="{stuck}"}} 5\n' in api.get("/v0/metrics").text


def test_metrics_tell_the_lag_without_moving_the_router(api: Api, topic: str) -> None:
    good(api.put(f"/v0/routers/{topic}", {"source": f"{topic}.a", "dest": f"{topic}.b"}))
    api.write(f"{topic}.a", 1)
    good(api.get(f"/v0/routers/{topic}"))
    assert lag_in_metrics(api, topic) == 0
