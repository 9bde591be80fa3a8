"""`GET …/records` over HTTP: pages, entity tags, Arrow streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerFactory, ServerProcess

ARROW = "application/vnd.apache.arrow.stream"
COLUMNS = ["seq", "ts", "node", "tag", "data", "meta"]


@pytest.fixture
def http(shared_server: ServerProcess) -> Iterator[httpx.Client]:
    headers = {"accept-encoding": "identity"}
    with httpx.Client(base_url=shared_server.url, headers=headers, timeout=PATIENCE_S) as client:
        client.delete("/v0/topics/t").raise_for_status()
        yield client


def write(http: httpx.Client, records: list[dict[str, object]], topic: str = "t") -> None:
    http.post(f"/v0/topics/{topic}", json={"records": records}).raise_for_status()


def numbered(count: int, size: int = 0) -> list[dict[str, object]]:
    return [{"data": {"n": n, "pad": "x" * size}} for n in range(count)]


def delete(http: httpx.Client, **selector: object) -> None:
    http.post("/v0/topics/t/delete", json=selector).raise_for_status()


def page(http: httpx.Client, **query: object) -> httpx.Response:
    answer = http.get("/v0/topics/t/records", params=query)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    return answer


def seqs(answer: httpx.Response) -> list[int]:
    return [record["$seq"] for record in answer.json()["records"]]


def again(http: httpx.Client, answer: httpx.Response, **headers: str) -> httpx.Response:
    tag = {"if-none-match": answer.headers["etag"]}
    return http.get(answer.url, headers=tag | headers)


# JSON


def test_a_page_has_exactly_these_fields(http: httpx.Client) -> None:
    write(http, [{"data": 1, "tag": "a", "node": "n", "meta": {"m": 1}}, {"data": None}])
    answer = page(http)
    assert list(answer.json()) == ["topic", "records", "next_from_seq", "caught_up", "tombstone"]
    first, second = answer.json()["records"]
    assert {**first, "$ts": 0} == {"$seq": 1, "$ts": 0, "$node": "n", "data": 1, "meta": {"m": 1}}
    assert set(second) == {"$seq", "$ts", "data"}
    assert answer.json()["next_from_seq"] == 2
    assert answer.json()["caught_up"] is True
    assert answer.json()["tombstone"] is None
    assert answer.headers["topics-head-seq"] == "2"
    assert answer.headers["topics-earliest-seq"] == "1"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["etag"].startswith('"')


def test_tags_and_meta_are_shown_as_asked(http: httpx.Client) -> None:
    write(http, [{"data": 1, "tag": "a", "meta": 2}])
    (record,) = page(http, include_tags="true", include_meta="0").json()["records"]
    assert record["$tag"] == "a"
    assert "meta" not in record


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, list(range(1, 11))),
        ({"from_seq": 7}, [8, 9, 10]),
        ({"from_seq": 2, "to_seq": 5}, [3, 4, 5]),
        ({"to_seq": 0}, []),
        ({"from_seq": 5, "to_seq": 3}, []),
        ({"limit": 3}, [1, 2, 3]),
        ({"limit": 0}, list(range(1, 11))),
        ({"limit": "many"}, list(range(1, 11))),
        ({"max_batch_bytes": 1}, [1]),
        ({"match": "even"}, [2, 4, 6, 8, 10]),
        ({"match": "e*"}, [2, 4, 6, 8, 10]),
        ({"node": ["a", "b"]}, [3, 6, 9]),
        ({"match": "even", "limit": 2}, [2, 4]),
    ],
)
def test_a_query_selects_what_it_says(
    http: httpx.Client, query: dict[str, object], expected: list[int]
) -> None:
    nodes = [None, "a", "b"]
    write(
        http,
        [
            {"data": n, "tag": "odd" if n % 2 else "even", "node": nodes[n % 3]}
            for n in range(1, 11)
        ],
    )
    assert seqs(page(http, **query)) == expected
    arrow = http.get("/v0/topics/t/records", params=query, headers={"accept": ARROW})  # type: ignore[arg-type]
    assert pa.ipc.open_stream(arrow.content).read_all()["seq"].to_pylist() == expected


def test_a_start_by_time_excludes_one_by_seq(http: httpx.Client) -> None:
    write(http, numbered(3))
    ts = page(http).json()["records"][0]["$ts"]
    assert seqs(page(http, from_ts=ts)) == [1, 2, 3]
    assert seqs(page(http, from_ts=ts + 60_000)) == []
    answer = http.get("/v0/topics/t/records", params={"from_ts": ts, "from_seq": 0})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request"


def test_an_absent_topic_is_not_found(http: httpx.Client) -> None:
    for accept in ("*/*", ARROW):
        answer = http.get("/v0/topics/t/records", headers={"accept": accept})
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "topic_not_found"


def test_only_get_and_head_are_there(http: httpx.Client) -> None:
    write(http, numbered(3))
    assert http.post("/v0/topics/t/records").status_code == 405
    head = http.head("/v0/topics/t/records")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["etag"] == page(http).headers["etag"]


# Entity tags


@pytest.mark.parametrize("accept", ["application/json", ARROW])
def test_a_page_of_history_stays_cached_while_the_topic_grows(
    http: httpx.Client, accept: str
) -> None:
    http.headers["accept"] = accept
    write(http, numbered(20))
    full, tail = page(http, limit=10), page(http, from_seq=10)
    write(http, numbered(5))
    same = again(http, full)
    assert same.status_code == 304
    assert same.content == b""
    assert same.headers["etag"] == full.headers["etag"]
    assert same.headers["topics-head-seq"] == "25"
    assert again(http, tail).status_code == 200


@pytest.mark.parametrize("accept", ["application/json", ARROW])
def test_a_page_never_outlives_a_delete(http: httpx.Client, accept: str) -> None:
    http.headers["accept"] = accept
    write(http, numbered(20))
    full = page(http, limit=10)
    delete(http, before_seq=3)
    fresh = again(http, full)
    assert fresh.status_code == 200
    assert fresh.headers["topics-earliest-seq"] == "3"
    assert again(http, fresh).status_code == 304


def test_a_page_never_outlives_an_eviction_inside_it(http: httpx.Client) -> None:
    http.put("/v0/topics/t", json={"cap_records": 10}).raise_for_status()
    write(http, numbered(10))
    first, later = page(http, limit=5), page(http, from_seq=6, limit=2)
    write(http, numbered(3))
    fresh = again(http, first)
    assert fresh.status_code == 200
    assert fresh.json()["tombstone"]["gap_to"] == 3
    assert again(http, later).status_code == 304


def test_a_page_never_outlives_its_topic(http: httpx.Client) -> None:
    write(http, numbered(20))
    full = page(http, limit=10)
    http.delete("/v0/topics/t").raise_for_status()
    write(http, numbered(20))
    assert again(http, full).status_code == 200


def test_a_page_outlives_a_restart(server: ServerProcess) -> None:
    with httpx.Client(
        base_url=server.url, headers={"accept-encoding": "identity"}, timeout=PATIENCE_S
    ) as before:
        write(before, numbered(20))
        full = page(before, limit=10)
    server.stop()
    server.start()
    with httpx.Client(
        base_url=server.url, headers={"accept-encoding": "identity"}, timeout=PATIENCE_S
    ) as later:
        tag = {"if-none-match": full.headers["etag"]}
        same = later.get("/v0/topics/t/records", params={"limit": 10}, headers=tag)
        assert same.status_code == 304


@pytest.mark.parametrize(
    "other",
    [
        {"limit": 9},
        {"limit": 10, "match": "a"},
        {"limit": 10, "node": "n"},
        {"limit": 10, "to_seq": 12},
    ],
)
def test_a_tag_is_only_good_for_its_own_question(
    http: httpx.Client, other: dict[str, object]
) -> None:
    write(http, [{"data": n, "tag": "a"} for n in range(20)])
    tag = {"if-none-match": page(http, limit=10).headers["etag"]}
    answer = http.get("/v0/topics/t/records", params=other, headers=tag)  # type: ignore[arg-type]
    assert answer.status_code == 200


def test_each_representation_has_its_own_tag(http: httpx.Client) -> None:
    write(http, numbered(50, size=100))
    plain = page(http)
    zipped = http.get(plain.url, headers={"accept-encoding": "gzip"})
    arrow = http.get(plain.url, headers={"accept": ARROW})
    assert zipped.headers["content-encoding"] == "gzip"
    tags = {answer.headers["etag"] for answer in (plain, zipped, arrow)}
    assert len(tags) == 3
    assert again(http, zipped, **{"accept-encoding": "gzip"}).status_code == 304
    assert again(http, zipped).status_code == 200
    assert again(http, plain, **{"accept-encoding": "gzip"}).status_code == 200
    assert again(http, plain, accept=ARROW).status_code == 200


@pytest.mark.parametrize("sent", [{}, {"accept-encoding": "gzip"}, {"accept": ARROW}])
def test_an_unchanged_page_varies_with_what_the_page_varied_with(
    http: httpx.Client, sent: dict[str, str]
) -> None:
    write(http, numbered(50, size=100))
    first = http.get("/v0/topics/t/records", headers={"accept-encoding": "identity"} | sent)
    unchanged = again(http, first, **sent)
    assert unchanged.status_code == 304
    wanted = ["Accept"] if sent.get("accept") == ARROW else ["Accept", "Accept-Encoding"]
    for answer in (first, unchanged):
        assert answer.headers["vary"].split(", ") == wanted


def test_lists_weak_tags_and_the_star_are_understood(http: httpx.Client) -> None:
    write(http, numbered(3))
    tag = page(http).headers["etag"]
    for header in (f'"x", {tag}', f"W/{tag}", "*"):
        answer = http.get("/v0/topics/t/records", headers={"if-none-match": header})
        assert answer.status_code == 304, header
    for header in ('"1.0.0-s"', '"zz.0.0-s"', '"-s"', "nonsense", '"ffffffffffffffff.0.0-s"'):
        answer = http.get("/v0/topics/t/records", headers={"if-none-match": header})
        assert answer.status_code == 200, header


# Arrow


def arrow_page(http: httpx.Client, **query: object) -> tuple[pa.Table, dict[str, Any]]:
    answer = http.get(
        "/v0/topics/t/records",
        params=query,  # type: ignore[arg-type]
        headers={"accept": ARROW},
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == ARROW
    assert "etag" in answer.headers
    table = pa.ipc.open_stream(answer.content).read_all()
    said = {name.decode(): text.decode() for name, text in table.schema.metadata.items()}
    shown = {name: text if name == "topic" else json.loads(text) for name, text in said.items()}
    check_coverage(table, shown["coverage"], shown["next_from_seq"])
    return table, shown


def check_coverage(table: pa.Table, coverage: dict[str, Any], next_from_seq: int) -> None:
    dead = sum(hi - lo + 1 for lo, hi, _ in coverage["runs"])
    covered = coverage["to"] - coverage["from"] + 1
    assert coverage["records"] == len(table)
    assert coverage["records"] + coverage["filtered"] + dead == covered
    assert coverage["to"] == next_from_seq


def test_an_arrow_page_has_every_column_with_its_type(http: httpx.Client) -> None:
    write(http, [{"data": {"ä": 1e2}, "tag": "a", "node": "n", "meta": [1]}, {"data": None}])
    table, shown = arrow_page(http)
    assert table.schema.names == COLUMNS
    assert [str(field.type) for field in table.schema] == [
        "int64",
        "timestamp[us, tz=UTC]",
        *["string"] * 4,
    ]
    first, second = table.to_pylist()
    assert first["data"] == '{"ä":100.0}'
    assert (first["node"], first["tag"], first["meta"]) == ("n", "a", "[1]")
    assert second["data"] == "null"
    assert (second["node"], second["tag"], second["meta"]) == (None, None, None)
    ts = page(http).json()["records"][0]["$ts"]
    assert first["ts"].timestamp() * 1000 == pytest.approx(ts)
    state = http.get("/v0/topics/t").json()
    assert shown["topic"] == "t"
    assert shown["epoch"] == state["epoch"]
    assert shown["caught_up"] is True
    assert shown["tombstone"] is None
    assert shown["coverage"] == {"from": 1, "to": 2, "records": 2, "filtered": 0, "runs": []}


def test_arrow_and_json_agree_over_many_slices(http: httpx.Client) -> None:
    for _ in range(3):
        write(http, numbered(5000, size=50))
    delete(http, before_seq=100)
    table, shown = arrow_page(http, limit=1_000_000)
    assert table["seq"].to_pylist() == list(range(100, 15001))
    assert shown["coverage"]["runs"] == [[1, 99, "deleted"]]
    assert table.to_batches()[0].num_rows < 15000, "a large page comes in several batches"
    expected = [json.dumps(r["data"], separators=(",", ":")) for r in numbered(5000, size=50)]
    assert table["data"].to_pylist() == (expected * 3)[99:]


def test_the_byte_budget_ends_an_arrow_page(http: httpx.Client) -> None:
    write(http, numbered(1000, size=1000))
    table, shown = arrow_page(http, limit=1000, max_batch_bytes=100_000)
    assert 0 < len(table) < 100
    assert shown["next_from_seq"] == len(table)
    assert shown["caught_up"] is False


def test_coverage_tells_every_kind_of_hole(http: httpx.Client) -> None:
    http.put("/v0/topics/t", json={"cap_records": 50}).raise_for_status()
    write(http, [{"data": n, "tag": f"k{n % 10}"} for n in range(40)])
    delete(http, match="k3")
    write(http, numbered(40))
    table, shown = arrow_page(http)
    kinds = {kind for _, _, kind in shown["coverage"]["runs"]}
    assert kinds == {"cap", "deleted"}
    assert shown["coverage"]["from"] == 1
    assert shown["tombstone"]["gap_from"] == 1
    assert len(table) == 50


def test_a_filter_counts_what_it_leaves_out(http: httpx.Client) -> None:
    write(http, [{"data": n, "tag": "a" if n % 4 == 0 else "b"} for n in range(100)])
    delete(http, before_seq=11)
    table, shown = arrow_page(http, match="a", limit=5)
    assert table["seq"].to_pylist() == [13, 17, 21, 25, 29]
    assert shown["coverage"]["filtered"] == 29 - 10 - 5
    assert shown["next_from_seq"] == 29


def test_a_page_ends_at_ten_thousand_dead_runs(http: httpx.Client) -> None:
    for _ in range(3):
        write(http, [{"data": 0, "tag": "gone" if n % 2 else "kept"} for n in range(10_000)])
    delete(http, match="gone")
    table, shown = arrow_page(http, limit=1_000_000)
    assert len(shown["coverage"]["runs"]) == 10_000
    assert shown["caught_up"] is False
    rest, shown = arrow_page(http, limit=1_000_000, from_seq=shown["next_from_seq"])
    assert len(table) + len(rest) == 15_000
    assert shown["caught_up"] is True


def test_pages_can_be_cut_at_to_seq_below_a_loss(http: httpx.Client) -> None:
    http.put("/v0/topics/t", json={"cap_records": 10}).raise_for_status()
    write(http, numbered(60))
    _, shown = arrow_page(http, to_seq=20)
    assert shown["coverage"]["to"] == 20
    assert shown["coverage"]["runs"] == [[1, 20, "cap"]]
    _, shown = arrow_page(http, from_seq=20, to_seq=60)
    assert shown["coverage"]["runs"] == [[21, 50, "cap"]]


def test_records_in_segments_read_the_same(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_SEGMENT_MAX_EVENTS": "700"})
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        for _ in range(4):
            write(http, [{"data": {"n": n}, "tag": f"t{n % 7}"} for n in range(1000)])
        delete(http, match="t3")
        before, covered = arrow_page(http, limit=10_000)
    assert server.stop() == 0
    server.start()
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        after, covered_after = arrow_page(http, limit=10_000)
        assert after.equals(before)
        assert covered_after == covered
        some, shown = arrow_page(http, limit=10_000, match="t5", from_seq=500, to_seq=3500)
        assert all(tag == "t5" for tag in some["tag"].to_pylist())
        assert shown["next_from_seq"] == 3500


def test_head_of_an_arrow_page_has_no_body(http: httpx.Client) -> None:
    write(http, numbered(3))
    answer = http.head("/v0/topics/t/records", headers={"accept": ARROW})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == ARROW
    assert answer.content == b""


def test_an_arrow_page_comes_over_http2_too(shared_server: ServerProcess) -> None:
    with httpx.Client(
        base_url=shared_server.url, http1=False, http2=True, timeout=PATIENCE_S
    ) as http:
        http.delete("/v0/topics/t").raise_for_status()
        write(http, numbered(8000, size=200))
        table, _ = arrow_page(http, limit=10_000)
        assert table["seq"].to_pylist() == list(range(1, 8001))


def test_without_pyarrow_arrow_is_not_acceptable(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyarrow'] = None")
    server = server_factory(env={"PYTHONPATH": str(tmp_path)})
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        write(http, numbered(3))
        answer = http.get("/v0/topics/t/records", headers={"accept": ARROW})
        assert answer.status_code == 406
        assert answer.json()["error"]["code"] == "not_acceptable"
        assert "pip install 'topics[arrow]'" in answer.json()["error"]["message"]
        answer = http.post("/v0/stages/a/1/0/0", content=b"", headers={"content-type": ARROW})
        assert answer.status_code == 415
        assert "pip install 'topics[arrow]'" in answer.json()["error"]["message"]
        assert seqs(page(http)) == [1, 2, 3]


def test_a_reader_that_leaves_in_the_middle_harms_nobody(
    shared_server: ServerProcess, http: httpx.Client
) -> None:
    for _ in range(4):
        write(http, numbered(5000, size=1000))
    query = {"limit": 1_000_000, "max_batch_bytes": 64 << 20}
    for _ in range(3):
        with http.stream(
            "GET", "/v0/topics/t/records", params=query, headers={"accept": ARROW}
        ) as answer:
            assert next(answer.iter_raw(1000))
    table, _ = arrow_page(http, **query)
    assert len(table) == 20_000
    assert "Traceback" not in shared_server.stderr


# Plans


def test_a_plan_covers_the_range_without_gaps(http: httpx.Client) -> None:
    for _ in range(3):
        write(http, numbered(1000, size=200))
    body = {"from_seq": 0, "to_seq": 10**9, "target_bytes": 1}
    plan = http.post("/v0/topics/t/plan", json=body).json()
    assert list(plan) == [
        "topic",
        "epoch",
        "delete_version",
        "head_seq",
        "evict_floor",
        "ranges",
        "next_from_seq",
        "performance",
    ]
    edges = [(lo, hi) for lo, hi, _, _ in plan["ranges"]]
    assert len(edges) > 2
    assert edges[0][0] == 1
    assert edges[-1][1] == 3000
    assert all(b[0] == a[1] + 1 for a, b in pairwise(edges))
    assert sum(count for _, _, count, _ in plan["ranges"]) == 3000
    assert plan["next_from_seq"] == 3001


@pytest.mark.parametrize("body", [{}, {"from_seq": 0}, {"from_seq": 0, "to_seq": -1}])
def test_a_plan_needs_its_fields(http: httpx.Client, body: dict[str, object]) -> None:
    write(http, numbered(1))
    answer = http.post("/v0/topics/t/plan", json=body)
    assert answer.status_code == 400
    answer = http.post("/v0/topics/none/plan", json={"from_seq": 0, "to_seq": 1, "target_bytes": 1})
    assert answer.status_code == 404
