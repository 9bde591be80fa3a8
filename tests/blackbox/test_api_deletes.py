"""Deleting records: by seq, by tag, by both; at once, in silence, for good."""

from __future__ import annotations

from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, good, refused, seqs
from tests.blackbox.conftest import Connect, ServerFactory

TAGS = [None, "room:4", "room:40", "room", "room:4:x", "", "other", "room:4"]


def fill(api: Api, topic: str) -> None:
    api.append(topic, [{"data": n, "tag": tag} for n, tag in enumerate(TAGS, 1)])


def delete(api: Api, topic: str, **selector: object) -> dict[str, Any]:
    return good(api.post(f"/v0/topics/{topic}/delete", selector))


@pytest.mark.parametrize(
    ("selector", "gone"),
    [
        ({"before_seq": 0}, []),
        ({"before_seq": 1}, []),
        ({"before_seq": 3}, [1, 2]),
        ({"before_seq": 100}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"before_seq": 2**64 - 1}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"match": ["tag", "Eq", "room:4"]}, [2, 8]),
        ({"match": ["tag", "Eq", ""]}, [6]),
        ({"match": ["tag", "Eq", "none"]}, []),
        ({"match": ["tag", "Eq", "room:*"]}, []),
        ({"match": ["tag", "Glob", "room:4*"]}, [2, 3, 5, 8]),
        ({"match": ["tag", "Glob", "room:4:*"]}, [5]),
        ({"match": ["tag", "Glob", "*"]}, [2, 3, 4, 5, 6, 7, 8]),
        ({"match": ["tag", "Glob", "r*m*"]}, []),
        ({"match": "room:4"}, [2, 8]),
        ({"match": "room:*"}, [2, 3, 5, 8]),
        ({"match": "*"}, [2, 3, 4, 5, 6, 7, 8]),
        ({"match": ""}, [6]),
        ({"match": "room:*", "before_seq": 5}, [2, 3]),
        ({"match": "other", "before_seq": 7}, []),
        ({"seqs": []}, []),
        ({"seqs": [7, 2, 7, 99, 0]}, [2, 7]),
        ({"seqs": [1, 2, 3, 7], "before_seq": 3}, [1, 2]),
        ({"seqs": [1, 2, 3, 7], "match": "room:*"}, [2, 3]),
        ({"seqs": [1, 2, 3, 7, 8], "match": "room:4", "before_seq": 8}, [2]),
        ({"seqs": list(range(1000))}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_a_selector_removes_exactly_what_it_says(
    api: Api, topic: str, selector: dict[str, Any], gone: list[int]
) -> None:
    fill(api, topic)
    done = delete(api, topic, **selector)
    left = [seq for seq in range(1, 9) if seq not in gone]
    assert list(done) == [
        "topic",
        "deleted",
        "earliest_seq",
        "head_seq",
        "count",
        "bytes",
        "performance",
    ]
    assert (done["topic"], done["deleted"], done["head_seq"]) == (topic, len(gone), 8)
    assert done["earliest_seq"] == (left[0] if left else 9)
    assert (done["count"], done["bytes"]) == (len(left), len(left))
    page = api.diff(topic)
    assert (seqs(page), page["tombstone"], page["next_from_seq"]) == (left, None, 8)
    assert delete(api, topic, **selector)["deleted"] == 0


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"match": []},
        {"match": ["tag", "Eq"]},
        {"match": ["tag", "Eq", "a", "b"]},
        {"match": ["node", "Eq", "a"]},
        {"match": ["tag", "Like", "a"]},
        {"match": ["tag", "eq", "a"]},
        {"match": ["tag", "Glob", "a"]},
        {"match": ["tag", "Glob", "*a"]},
        {"match": ["tag", "Glob", ""]},
        {"match": ["tag", "Eq", None]},
        {"match": {"tag": "a"}},
        {"limit": 5},
        {"seqs": None},
        {"seqs": 3},
        {"seqs": ["3"]},
        {"seqs": [-1]},
        {"seqs": [2**64]},
    ],
)
def test_a_bad_selector_is_refused_even_on_an_absent_topic(
    api: Api, topic: str, selector: dict[str, Any]
) -> None:
    path = f"/v0/topics/{topic}/delete"
    assert refused(api.post(path, selector)) == Refusal(400, "invalid_request")
    fill(api, topic)
    assert refused(api.post(path, selector)) == Refusal(400, "invalid_request")
    assert api.state(topic)["count"] == len(TAGS)


def test_a_misspelt_filter_does_not_widen_a_delete(api: Api, topic: str) -> None:
    fill(api, topic)
    answer = api.post(f"/v0/topics/{topic}/delete", {"before_seq": 99, "mtach": "room:4"})
    meant = {"field": "mtach", "did_you_mean": "match"}
    assert refused(answer) == Refusal(400, "invalid_request", meant)
    assert api.state(topic)["count"] == len(TAGS)
    delete(api, topic, before_seq=1, x_match="mine")


def test_a_delete_names_no_more_records_than_it_may(api: Api, topic: str) -> None:
    fill(api, topic)
    answer = api.post(f"/v0/topics/{topic}/delete", {"seqs": list(range(1001))})
    assert refused(answer) == Refusal(400, "batch_too_large", {"seqs": 1001, "max": 1000})
    assert api.state(topic)["count"] == len(TAGS)


def test_records_that_come_later_live(api: Api, topic: str) -> None:
    fill(api, topic)
    delete(api, topic, match="room:*", before_seq=2**63)
    api.append(topic, [{"data": 1, "tag": "room:4"}])
    assert 9 in seqs(api.diff(topic))


def test_a_prefix_ends_where_it_says(api: Api, topic: str) -> None:
    api.append(topic, [{"data": 1, "tag": tag} for tag in ("chat-4:x", "chat-40:x", "chat-4")])
    assert delete(api, topic, match="chat-4:*")["deleted"] == 1
    assert seqs(api.diff(topic)) == [2, 3]


def test_deletes_survive_a_kill(server_factory: ServerFactory, connect: Connect) -> None:
    server = server_factory()
    api = connect(server)
    fill(api, "t")
    delete(api, "t", match="room:*")
    version = api.state("t")["delete_version"]
    server.restart()
    api = connect(server)
    state = api.state("t")
    assert seqs(api.diff("t")) == [1, 4, 6, 7]
    assert (state["count"], state["delete_version"]) == (4, version)
