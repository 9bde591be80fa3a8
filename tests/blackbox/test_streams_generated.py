"""Made-up commands on a WebSocket, and made-up work streams: neither is in the API's document.

Every command gets exactly one reply, in order, of a documented kind and with its own request id; a
work stream is opened or refused as documented. Whatever comes, the connection and the server live.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.blackbox.api_client import Api, refused
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from websockets.sync.client import ClientConnection, connect

EXAMPLES = settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
REPLIES = {
    "subscribe": {"subscribed", "error"},
    "unsubscribe": {"unsubscribed", "error"},
    "publish": {"ack", "error"},
    "ping": {"pong"},
}
CODES = {
    "invalid_json",
    "invalid_request",
    "topic_not_found",
    "batch_too_large",
    "record_too_large",
    "topic_exists_incompatible",
    "head_mismatch",
    "not_a_queue",
}
LAST = "the last one"

names = st.sampled_from(["t", "queue", "absent", ".bad", "", "x" * 300])
numbers = st.one_of(st.integers(-2, 5), st.sampled_from([2**32, 2**63, 2**64]))
anything = st.one_of(
    st.none(), st.booleans(), numbers, st.floats(allow_nan=False), st.text(max_size=5), names
)
records = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"data": anything}, optional={"tag": anything, "node": anything, "meta": anything}
        ),
        anything,
    ),
    max_size=3,
)
starts = st.fixed_dictionaries(
    {}, optional={"from_seq": anything, "tail": anything, "from_ts": anything}
)
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "subscribe": {
        "topic": st.one_of(names, anything),
        "topics": st.one_of(st.dictionaries(names, starts, max_size=3), anything),
        "from_seq": anything,
        "tail": anything,
        "limit": anything,
        "include_data": anything,
        "lenient": anything,
    },
    "unsubscribe": {
        "topic": st.one_of(names, anything),
        "topics": st.one_of(st.lists(names, max_size=3), anything),
    },
    "publish": {
        "topic": names,
        "records": st.one_of(records, anything),
        "return_seqs": anything,
        "create": anything,
        "expect_head": anything,
        "idempotency_key": anything,
    },
    "ping": {},
}


@st.composite
def commands(draw: st.DrawFn) -> dict[str, Any]:
    op = draw(st.sampled_from(sorted(FIELDS)))
    return {"op": op, **draw(st.fixed_dictionaries({}, optional=FIELDS[op]))}


@pytest.fixture(scope="module")
def prepared(shared_server: ServerProcess) -> ServerProcess:
    api = Api(shared_server)
    api.make("t")
    api.write("t", 1, 2)
    api.make("queue", type="queue")
    api.write("queue", 1)
    api.close()
    return shared_server


@pytest.fixture
def sock(prepared: ServerProcess) -> Iterator[ClientConnection]:
    url = f"ws://{prepared.address}/v0/ws"
    with connect(
        url,
        compression=None,
        max_size=None,
        open_timeout=PATIENCE_S,
        ping_timeout=PATIENCE_S,
        close_timeout=1,
        proxy=None,
    ) as opened:
        yield opened


def replies(sock: ClientConnection) -> list[dict[str, Any]]:
    """Every reply up to the one to the last ping; records and the like come in between."""
    found = []
    while True:
        message = json.loads(sock.recv(PATIENCE_S))
        if message["op"] in {"subscribed", "unsubscribed", "ack", "pong", "error"}:
            found.append(message)
            if message.get("request_id") == LAST:
                return found


def check(command: dict[str, Any], number: int, reply: dict[str, Any]) -> None:
    assert reply["op"] in REPLIES[command["op"]], (command, reply)
    if reply["op"] != "error":
        assert reply["request_id"] == number
        return
    assert reply["code"] in CODES, (command, reply)
    assert reply["message"]
    assert "detail" not in reply
    expected = None if reply["code"] == "invalid_json" else number
    assert reply["request_id"] == expected, (command, reply)


def test_every_command_gets_its_one_reply_in_order(sock: ClientConnection) -> None:
    @EXAMPLES
    @seed(1)
    @given(st.lists(commands(), max_size=6))
    def run(sent: list[dict[str, Any]]) -> None:
        for number, command in enumerate(sent):
            sock.send(json.dumps({**command, "request_id": number}))
        sock.send(json.dumps({"op": "ping", "request_id": LAST}))
        *answers, last = replies(sock)
        assert last["op"] == "pong"
        assert len(answers) == len(sent), (sent, answers)
        for number, (command, reply) in enumerate(zip(sent, answers, strict=True)):
            check(command, number, reply)

    run()


values = st.one_of(st.text(max_size=6), st.integers(-5, 2000).map(str), st.just("x" * 200))


def test_every_made_up_work_stream_is_opened_or_refused_as_documented(
    prepared: ServerProcess,
) -> None:
    with httpx.Client(base_url=prepared.url, timeout=PATIENCE_S) as client:

        @EXAMPLES
        @seed(1)
        @given(
            topic=st.sampled_from(["queue", "t", "absent"]),
            query=st.fixed_dictionaries(
                {}, optional={"node": values, "max": values, "lease_ms": values, "other": values}
            ),
            accept=st.sampled_from(["text/event-stream", "*/*", "text/html", "TEXT/EVENT-STREAM"]),
        )
        def run(topic: str, query: dict[str, str], accept: str) -> None:
            path = f"/v0/topics/{topic}/work"
            with client.stream("GET", path, params=query, headers={"accept": accept}) as answer:
                expected = _expected(topic, query, accept)
                assert answer.status_code == expected, (topic, query, accept)
                if expected != 200:
                    answer.read()
                    refused(answer)
                else:
                    assert next(answer.iter_lines()) == "retry: 2000"

        run()


def _expected(topic: str, query: dict[str, str], accept: str) -> int:
    if accept not in ("text/event-stream", "*/*"):
        return 406
    if not 0 < len(query.get("node", "").encode()) <= 128:
        return 400
    return {"absent": 404, "t": 409}.get(topic, 200)
