"""Staged writes over HTTP: kept aside, then visible all at once and exactly once."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerFactory, ServerProcess

import topics
from topics.cli import _checks
from topics.client.sync_http import Http
from topics.errors import NotFound

ARROW = "application/vnd.apache.arrow.stream"
_apps = count()


@pytest.fixture
def http(shared_server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url, timeout=PATIENCE_S) as client:
        client.delete("/v0/topics/t").raise_for_status()
        client.delete("/v0/topics/u").raise_for_status()
        yield client


@pytest.fixture
def app() -> str:
    return f"app-{next(_apps)}"


def row(topic: str, data: object, **more: object) -> dict[str, object]:
    return {"topic": topic, "data": data, **more}


def stage(http: httpx.Client, path: str, *rows: dict[str, object]) -> httpx.Response:
    return http.post(f"/v0/stages/{path}", json={"records": list(rows)})


def commit(http: httpx.Client, path: str, *parts: list[int]) -> httpx.Response:
    return http.post(f"/v0/stages/{path}/commit", json={"parts": list(parts)})


def datas(http: httpx.Client, topic: str) -> list[Any]:
    answer = http.post(f"/v0/topics/{topic}/diff", json={})
    if answer.status_code == 404:
        return []
    return [record["data"] for record in answer.json()["records"]]


def as_stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_a_stage_answers_with_exactly_these_fields(http: httpx.Client, app: str) -> None:
    answer = stage(http, f"{app}/1/0/7", row("t", {"a": 1}), row("t", 2, meta=[1]))
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert set(body.pop("performance")) == {"server_total_ms"}
    assert body == {"app": app, "epoch": 1, "part": 0, "attempt": 7, "records": 2, "bytes": 11}


def test_staged_records_are_invisible_until_their_commit(http: httpx.Client, app: str) -> None:
    stage(http, f"{app}/1/1/0", row("t", "b"), row("u", "c"))
    stage(http, f"{app}/1/0/0", row("t", "a"))
    assert datas(http, "t") == []
    answer = commit(http, f"{app}/1", [1, 0], [0, 0])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    body.pop("performance")
    assert body == {
        "app": app,
        "epoch": 1,
        "deduped": False,
        "topics": {
            "t": {"first_seq": 1, "last_seq": 2, "count": 2},
            "u": {"first_seq": 1, "last_seq": 1, "count": 1},
        },
    }
    assert datas(http, "t") == ["a", "b"], "in order of part and row"


def test_only_the_named_attempts_count(http: httpx.Client, app: str) -> None:
    stage(http, f"{app}/1/0/0", row("t", "loser"))
    stage(http, f"{app}/1/0/1", row("t", "winner"))
    commit(http, f"{app}/1", [0, 1]).raise_for_status()
    assert datas(http, "t") == ["winner"]


def test_the_same_stage_again_replaces_it(http: httpx.Client, app: str) -> None:
    stage(http, f"{app}/1/0/0", row("t", "old"), row("t", "older"))
    stage(http, f"{app}/1/0/0", row("t", "new"))
    commit(http, f"{app}/1", [0, 0]).raise_for_status()
    assert datas(http, "t") == ["new"]


def test_a_committed_epoch_is_answered_again_and_not_appended(http: httpx.Client, app: str) -> None:
    stage(http, f"{app}/3/0/0", row("t", 1))
    first = commit(http, f"{app}/3", [0, 0]).json()
    second = commit(http, f"{app}/3", [0, 0]).json()
    assert second["deduped"] is True
    assert second["topics"] == first["topics"]
    staged = stage(http, f"{app}/3/0/0", row("t", 1)).json()
    assert staged["deduped"] is True
    assert datas(http, "t") == [1]


def test_the_last_commit_of_an_app_can_be_read(http: httpx.Client, app: str) -> None:
    stage(http, f"{app}/1/0/0", row("t", 1), row("u", 2))
    assert http.get(f"/v0/stages/{app}").json()["error"]["code"] == "not_found"
    for epoch in (1, 2):
        stage(http, f"{app}/{epoch}/0/0", row("t", 1), row("u", 2))
        done = commit(http, f"{app}/{epoch}", [0, 0]).json()
        last = http.get(f"/v0/stages/{app}").json()
        assert (last["epoch"], last["deduped"]) == (epoch, True)
        assert last["topics"] == done["topics"]
    with topics.open(str(http.base_url)) as log:
        assert log.last_commit(app).epoch == 2
        with pytest.raises(NotFound):
            log.last_commit("never")


def test_a_lower_epoch_is_stale(http: httpx.Client, app: str) -> None:
    commit(http, f"{app}/3").raise_for_status()
    for answer in (stage(http, f"{app}/2/0/0", row("t", 1)), commit(http, f"{app}/2")):
        assert answer.status_code == 409
        error = answer.json()["error"]
        assert error["code"] == "stale_epoch"
        assert error["detail"] == {"app": app, "epoch": 2, "last_epoch": 3}


def test_a_missing_stage_leaves_everything_undone(http: httpx.Client, app: str) -> None:
    stage(http, f"{app}/1/0/0", row("t", 1))
    answer = commit(http, f"{app}/1", [0, 0], [1, 0])
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
    assert datas(http, "t") == []
    commit(http, f"{app}/1", [0, 0]).raise_for_status()


@pytest.mark.parametrize(
    "path", ["{app}/x/0/0", "{app}/1/-1/0", "{app}/1/0/18446744073709551616", ".bad/1/0/0"]
)
def test_a_bad_path_is_refused(http: httpx.Client, app: str, path: str) -> None:
    answer = stage(http, path.format(app=app), row("t", 1))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_request"),
        ({"records": [{"data": 1}]}, 400, "invalid_request"),
        ({"records": [{"topic": "t"}]}, 400, "invalid_request"),
        ({"records": [{"topic": ".bad", "data": 1}]}, 400, "invalid_request"),
        ({"records": [{"topic": "t", "data": "x" * 1_048_577}]}, 400, "record_too_large"),
        ({"records": [{"topic": "t", "data": 1, "tag": "x" * 257}]}, 400, "invalid_request"),
    ],
)
def test_a_bad_record_is_refused_at_staging(
    http: httpx.Client, app: str, body: object, status: int, code: str
) -> None:
    answer = http.post(f"/v0/stages/{app}/1/0/0", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


def test_a_body_needs_its_content_type(http: httpx.Client, app: str) -> None:
    answer = http.post(f"/v0/stages/{app}/1/0/0", content=b'{"records":[]}')
    assert answer.status_code == 415
    answer = http.post(f"/v0/stages/{app}/1/commit", content=b'{"parts":[]}')
    assert answer.status_code == 415
    assert http.get(f"/v0/stages/{app}/1/0/0").status_code == 405


def test_nothing_can_be_staged_and_committed(http: httpx.Client, app: str) -> None:
    assert stage(http, f"{app}/1/0/0").json()["records"] == 0
    assert commit(http, f"{app}/1", [0, 0]).json()["topics"] == {}


def test_ephemeral_topics_are_refused(http: httpx.Client, app: str) -> None:
    http.put("/v0/topics/t", json={"durability": "ephemeral"}).raise_for_status()
    stage(http, f"{app}/1/0/0", row("t", 1))
    assert commit(http, f"{app}/1", [0, 0]).status_code == 400


# Arrow


def test_an_arrow_stream_stages_the_same_records(http: httpx.Client, app: str) -> None:
    table = pa.table(
        {
            "topic": ["t", "u", "t"],
            "data": ['{"a": 1}', None, '"ä"'],
            "tag": ["x", None, None],
            "node": [None, "n", None],
            "meta": ["[1]", None, "null"],
            "seq": [9, 9, 9],
        }
    )
    answer = http.post(
        f"/v0/stages/{app}/1/0/0", content=as_stream(table), headers={"content-type": ARROW}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["records"] == 3
    commit(http, f"{app}/1", [0, 0]).raise_for_status()
    body = {"include_tags": True}
    first, second = http.post("/v0/topics/t/diff", json=body).json()["records"]
    assert (first["data"], first["$tag"], first["meta"]) == ({"a": 1}, "x", [1])
    assert second["data"] == "ä"
    assert "meta" not in second
    (other,) = http.post("/v0/topics/u/diff", json=body).json()["records"]
    assert other["data"] is None
    assert other["$node"] == "n"


def test_what_records_gave_can_be_staged_again(http: httpx.Client, app: str) -> None:
    http.post("/v0/topics/t", json={"records": [{"data": n, "tag": "a"} for n in range(5)]})
    page = http.get("/v0/topics/t/records", headers={"accept": ARROW})
    table = pa.ipc.open_stream(page.content).read_all()
    copy = table.append_column("topic", pa.array(["u"] * 5))
    http.post(
        f"/v0/stages/{app}/1/0/0", content=as_stream(copy), headers={"content-type": ARROW}
    ).raise_for_status()
    commit(http, f"{app}/1", [0, 0]).raise_for_status()
    assert datas(http, "u") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        as_stream(pa.table({"data": ["1"]})),
        as_stream(pa.table({"topic": ["t"]})),
        as_stream(pa.table({"topic": [None], "data": ["1"]})),
        as_stream(pa.table({"topic": ["t"], "data": ["{not json"]})),
        as_stream(pa.table({"topic": ["t"], "data": [[1]]})),
        as_stream(pa.table({"topic": ["t"], "data": ["1"], "tag": [[1]]})),
        as_stream(pa.table({"topic": ["t"], "data": ["1"]}))[:-40],
    ],
)
def test_a_bad_arrow_stream_is_refused(http: httpx.Client, app: str, content: bytes) -> None:
    answer = http.post(f"/v0/stages/{app}/1/0/0", content=content, headers={"content-type": ARROW})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "invalid_request"


def test_a_commit_into_thousands_of_topics_is_answered_whole(
    server_factory: ServerFactory,
) -> None:
    names = [f"wide-{number:04d}" for number in range(2100)]
    with httpx.Client(base_url=server_factory().url, timeout=PATIENCE_S) as http:
        stage(http, "wide/1/0/0", *[row(name, 1) for name in names]).raise_for_status()
        answers = [commit(http, "wide/1", [0, 0]).json() for _ in range(2)]
        assert [answer["deduped"] for answer in answers] == [False, True]
        for answer in answers:
            assert list(answer["topics"]) == names
            assert answer["topics"][names[-1]] == {"first_seq": 1, "last_seq": 1, "count": 1}
        assert datas(http, names[-1]) == [1]


def test_an_arrow_stream_is_as_large_as_what_it_stands_for(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_MAX_BODY_BYTES": "100000"})
    table = pa.table({"topic": ["t"] * 200, "data": ['"' + "x" * 1000 + '"'] * 200})
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body = sink.getvalue()
    assert len(body) < 100_000
    answer = httpx.post(
        f"{server.url}/v0/stages/a/1/0/0",
        content=body,
        headers={"content-type": ARROW},
        timeout=PATIENCE_S,
    )
    assert answer.status_code == 413, answer.text
    assert answer.json()["error"]["code"] == "payload_too_large"


# Keys, limits, restarts


def by(server: ServerProcess, key: str) -> httpx.Client:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S)


def refusal(answer: httpx.Response) -> tuple[int, str, dict[str, object] | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error.get("detail")


def test_stages_belong_to_the_key_that_began_their_app(server_factory: ServerFactory) -> None:
    """Keys and limits on one server. Its two keys share the room: each may take a quarter."""
    server = server_factory(
        env={
            "TOPICS_API_KEYS": "owner,limited:rw:mine.,reader:r",
            "TOPICS_MAX_STAGES": "8",
            "TOPICS_MAX_STAGE_APPS": "12",
        }
    )
    not_yours = (403, "forbidden", {"app": "app"})
    with by(server, "owner") as owner, by(server, "limited") as limited:
        stage(owner, "app/1/0/0", row("t", 1)).raise_for_status()
        assert refusal(stage(limited, "app/1/0/0")) == not_yours, "replaces a stage by nothing"
        assert refusal(commit(limited, "app/1")) == not_yours, "commits an epoch of another key"
        assert refusal(commit(limited, f"app/{2**64 - 1}")) == not_yours, "uses up all epochs"
    server.restart()
    with by(server, "owner") as owner, by(server, "limited") as limited:
        assert refusal(commit(limited, "app/1")) == not_yours
        assert commit(owner, "app/1", [0, 0]).json()["deduped"] is False
        assert datas(owner, "t") == [1]
        assert refusal(commit(limited, "app/1", [0, 0])) == not_yours
        far = commit(owner, f"app/{2**32 + 2}")
        assert refusal(far)[:2] == (400, "invalid_request")

        refused = stage(limited, "mine.app/1/0/0", row("mine.a", 1), row("other", 2))
        assert refusal(refused) == (403, "forbidden", {"topic": "other"})
        assert refusal(stage(limited, "app2/1/0/0"))[2] == {"app": "app2"}, "not its prefix"
        with by(server, "reader") as reader:
            assert refusal(stage(reader, "mine.app/1/0/0"))[0] == 403
        stage(limited, "mine.app/1/0/0", row("mine.a", 1)).raise_for_status()
        stage(limited, "mine.app/1/1/0").raise_for_status()
        share = refusal(stage(limited, "mine.app/1/2/0"))
        assert share[0] == 429
        assert share[2] == {"limit": "max_stages_per_key", "max": 2, "retry_after_ms": 1000}
        stage(owner, "app/2/0/0").raise_for_status()
        commit(limited, "mine.app/1", [0, 0], [1, 0]).raise_for_status()
        for n in (2, 3):
            commit(limited, f"mine.app{n}/1").raise_for_status()
        share = refusal(commit(limited, "mine.app4/1"))
        assert share[2] == {"limit": "max_stage_apps_per_key", "max": 3, "retry_after_ms": 1000}
        commit(owner, "app4/1").raise_for_status()


def test_stages_of_dead_runs_can_be_seen_and_go(server_factory: ServerFactory) -> None:
    """A run dies with its server, another takes over, an operator drops what is left."""
    server = server_factory(env={"TOPICS_API_KEYS": "admin,owner:rw,limited:rw:mine."})
    with by(server, "owner") as owner:
        for part in range(2):
            stage(owner, f"app/1/{part}/{7 << 24 | part}?by_run=true", row("t", part))
    server.restart()
    with by(server, "owner") as owner, by(server, "limited") as limited:
        stage(owner, f"app/1/2/{7 << 24 | 2}?by_run=true", row("t", 2)).raise_for_status()
        stage(owner, f"app/2/0/{8 << 24}?by_run=true", row("t", 8)).raise_for_status()
        late = stage(owner, f"app/1/3/{7 << 24}?by_run=true", row("t", 3))
        assert refusal(late)[:2] == (400, "invalid_request")
        assert limited.get("/v0/stages").json()["stages"] == []
        assert refusal(owner.delete("/v0/stages/app"))[0] == 403, "needs admin"
        metrics = httpx.get(f"{server.url}/v0/metrics", headers={"Authorization": "Bearer admin"})
        assert "topics_stages 1\n" in metrics.text
        assert "topics_stage_disk_bytes 4096\n" in metrics.text
    with topics.open(server.url, token="admin") as log:
        (waiting,) = log.stages()
        assert (waiting.app, waiting.epoch, waiting.stages, waiting.records) == ("app", 2, 1, 1)
    with Http(server.url, token="admin") as http:
        young, old = (list(_checks.server_stages(http, time.time() + late)) for late in (0, 700))
    assert [check.found for check in young] == ["1 epoch under way"]
    assert [check.remedy for check in old] == [
        "if its driver is dead: topics spark stages drop app"
    ]
    shown = cli("spark", "stages", "ls", "--url", server.url)
    assert shown.splitlines()[1].split()[:4] == ["app", "2", "1", "1"]
    dropped = cli("spark", "stages", "drop", "app", "--yes", "--url", server.url)
    assert dropped == "dropped 1 stage of app, 4.0 KiB\n"
    with by(server, "owner") as owner:
        assert owner.get("/v0/stages").json()["stages"] == []


def cli(*arguments: str) -> str:
    command = [sys.executable, "-m", "topics.cli", *arguments]
    env = os.environ | {"TOPICS_TOKEN": "admin"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=env
    )
    return done.stdout


def test_names_in_a_stage_count_against_the_byte_limit(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_MAX_STAGE_BYTES": "10000"})
    rows = [row("t" * 255, 1, tag="g" * 256, node="n" * 128)] * 1000
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        stage(http, "app/1/0/0", *rows).raise_for_status()
        assert refusal(stage(http, "app/1/1/0", *rows))[2] == {
            "limit": "max_stage_bytes",
            "max": 10000,
            "retry_after_ms": 1000,
        }
        stage(http, "app/1/0/0", *rows).raise_for_status()  # in place of itself


def test_stages_beyond_the_byte_limit_are_throttled(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_MAX_STAGE_BYTES": "100"})
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        stage(http, "app/1/0/0", row("t", "x" * 80)).raise_for_status()
        answer = stage(http, "app/1/1/0", row("t", "x" * 80))
        assert answer.status_code == 429
        assert answer.json()["error"]["detail"]["limit"] == "max_stage_bytes"
        assert answer.headers["retry-after"] == "1"
        stage(http, "app/1/0/0", row("t", "y" * 90)).raise_for_status()


def test_commits_and_stages_survive_a_kill(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        stage(http, "app/1/0/0", row("t", 1), row("u", 2)).raise_for_status()
        done = commit(http, "app/1", [0, 0]).json()
        stage(http, "app/2/0/0", row("t", 3)).raise_for_status()
    server.restart()
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        again = commit(http, "app/1", [0, 0]).json()
        assert again["deduped"] is True
        assert again["topics"] == done["topics"]
        commit(http, "app/2", [0, 0]).raise_for_status()
        assert datas(http, "t") == [1, 3]
        assert datas(http, "u") == [2]
