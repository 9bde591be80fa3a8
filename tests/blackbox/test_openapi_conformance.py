"""The description of the API and the server agree: generated requests find no difference.

For every operation of the served document schemathesis makes up requests, good ones and bad ones,
and looks at each answer: a status the document names, a body of the documented shape, never a
failure of the server. Most requests go to topics that exist, so that answers are more than
refusals. `TOPICS_OPENAPI_EXAMPLES` sets how many of each kind are tried per operation, and
`TOPICS_OPENAPI_SEED` which ones.
"""

from __future__ import annotations

import json
import os
from typing import Any, TypeAlias
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok
from tests.blackbox.api_client import Api, good
from tests.blackbox.conftest import PATIENCE_S, ServerFactory, ServerProcess
from tests.seeds import seed_for

from topics.wire.endpoints import ENDPOINTS
from topics.wire.endpoints.parts import Endpoint
from topics.wire.examples import examples
from topics.wire.openapi import document

SERVER_ENV = {"TOPICS_MAX_BODY_BYTES": "200000", "TOPICS_TEST_MIN_HEARTBEAT_MS": "50"}
GENERATED = int(os.environ.get("TOPICS_OPENAPI_EXAMPLES", "15"))
SEED = seed_for("TOPICS_OPENAPI_SEED")
STREAMS = {"openWebSocket", "streamJobs"}
"""They answer with something else than one body: other tests follow them."""
BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS if endpoint.name not in STREAMS}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
AnyCase: TypeAlias = Case[Any]
Operations: TypeAlias = dict[str, schemathesis.APIOperation[Any, Any, Any, Any]]
_statuses: dict[str, set[int]] = {}


def _can_be_wrong(endpoint: Endpoint) -> bool:
    """Whether there is anything in a request that a schema forbids."""
    typed = [part for part in endpoint.query if part.schema.get("type") != "string"]
    return endpoint.body is not None or bool(typed)


CASES = [
    (name, mode)
    for name, endpoint in BY_NAME.items()
    for mode in GenerationMode
    # The document itself is where schemathesis found it, so it leaves that one out.
    if name != "openapi" and (mode is GenerationMode.POSITIVE or _can_be_wrong(endpoint))
]


@pytest.fixture(scope="module")
def operations(shared_server: ServerProcess) -> Operations:
    schema = schemathesis.openapi.from_url(f"{shared_server.url}/v0/openapi.json")
    found = list(schema.get_all_operations())
    return {result.ok().label: result.ok() for result in found if isinstance(result, Ok)}


def prepare(server: ServerProcess) -> None:
    """Things for generated requests to meet, whatever the ones before them did."""
    api = Api(server)
    api.put("/v0/topics/log", {})
    api.post("/v0/topics/log", {"records": [{"data": {"n": 1}, "tag": "a", "meta": {"m": 1}}] * 3})
    api.put("/v0/topics/log/cursors/log", {"seq": 1})
    api.put("/v0/topics/queue", {"type": "queue", "dead_letter": "log"})
    api.post("/v0/topics/queue", {"records": [{"data": 1}] * 3})
    for router in api.get("/v0/routers?page_size=1000").json()["routers"]:
        api.delete(f"/v0/routers/{quote(router['router'], safe='')}")  # one of them may feed `copy`
    good(api.put("/v0/routers/log", {"source": "log", "dest": "copy"}))
    api.close()


def aim(case: AnyCase, target: str) -> None:
    """Let a request meet what exists; all else in it stays as it was made up."""
    for part in ("topic", "router", "cursor", "app"):
        if part in (case.path_parameters or {}):
            case.path_parameters[part] = target
    if isinstance(case.body, dict):
        case.body = aimed(case.body, target)


def aimed(body: dict[str, Any], target: str) -> dict[str, Any]:
    """The same for the names and positions in a body."""
    whole: dict[str, Any] = _whole(body)
    whole.pop("lease_ids", None)  # only a claim knows good ones
    match whole:
        case {"topics": {**options}}:
            whole["topics"] = {target: next(iter(options.values()), {})}
        case {"source": str(), "dest": str()}:
            whole |= {"source": target, "dest": "copy"}
        case {"seq": int(seq)}:
            whole["seq"] = seq % 3
        case {"node": str(), "seqs": _} | {"node": str(), "max": _}:
            whole["node"] = "worker"
        case {"records": [*records]}:
            for record in records:
                if isinstance(record, dict) and isinstance(record.get("topic"), str):
                    record["topic"] = target
    return whole


def _whole(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """To a schema 1.0 is an integer; the server wants integers to look like some."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {k: _whole(v) for k, v in value.items()} if isinstance(value, dict) else value


def test_the_served_document_is_the_generated_one(shared_server: ServerProcess) -> None:
    api = Api(shared_server)
    served = api.get("/v0/openapi.json").json()
    api.close()
    assert served == json.loads(document(served["info"]["version"]))
    assert served["openapi"].startswith("3.1")


def test_refusals_that_nobody_makes_up_are_described_too(shared_server: ServerProcess) -> None:
    api = Api(shared_server)
    described = api.get("/v0/openapi.json").json()["paths"]
    for name, cap in (("full", 1), ("small", 0)):
        config = {"discard": "reject", "cap_records": cap, "cap_bytes": 0 if cap else 1}
        good(api.put(f"/v0/topics/{name}", config))
    good(api.post("/v0/topics/full", {"records": [{"data": 1}]}))
    met = []
    for epoch, (topic, data) in enumerate([("full", 1), ("small", "more than fits")]):
        records = [{"topic": topic, "data": data}]
        good(api.post(f"/v0/stages/described/{epoch}/0/0", {"records": records}))
        answer = api.post(f"/v0/stages/described/{epoch}/commit", {"parts": [[0, 0]]})
        met.append(("/v0/stages/{app}/{epoch}/commit", "post", answer))
    met.append(("/v0/topics/{topic}", "get", api.get("/v0/topics/%ff")))
    met.append(("/v0/topics/{topic}/audit", "get", api.get("/v0/topics/%ff/audit")))
    api.close()
    assert [answer.status_code for *_, answer in met] == [422, 400, 400, 400]
    for path, method, answer in met:
        refusal = described[path][method]["responses"][str(answer.status_code)]
        assert answer.json()["error"]["code"] in refusal["x-error-codes"]


VOLATILE = {"performance", "wal", "wid", "stream_url", "uptime_ms", "version", "lag_seconds"}
VOLATILE |= {"effective_priority", "forwarded_total", "lag"}
"""Members that differ from run to run; so does every time of day."""


def settled(value: Any, name: str = "") -> Any:  # noqa: ANN401 - any JSON
    """An answer with what differs from run to run replaced by its type."""
    if isinstance(value, dict) and name not in ("performance", "wal"):
        return {key: settled(kept, key) for key, kept in value.items()}
    if isinstance(value, list):
        return [settled(kept, name) for kept in value]
    if name in VOLATILE or (isinstance(value, int) and value > 1_700_000_000_000):
        return type(value).__name__
    return value


PREPARING: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "claimJobs": [
        (
            "PUT",
            "/v0/topics/mails",
            {"type": "queue", "max_deliveries": 1, "dead_letter": "mails.dead"},
        ),
        (
            "POST",
            "/v0/topics/mails",
            {"records": [{"data": {"to": f"{n}@example.org"}} for n in "abc"]},
        ),
    ],
    "redriveJobs": [("POST", "/v0/topics/mails/claim", {"node": "worker-1"})],
}
"""Calls that the story of the examples leaves out, each before the example that needs them."""


def test_every_example_of_the_document_is_what_a_server_answers(
    server_factory: ServerFactory,
) -> None:
    api = Api(server_factory())
    for name, example in examples().items():
        if isinstance(example.answer, str):
            continue  # a stream: its frames have tests of their own
        for method, path, body in PREPARING.get(name, ()):
            good(api.call(method, path, body))
        endpoint = BY_NAME[name]
        path = endpoint.path.format(
            **{key: quote(str(part), safe="") for key, part in example.path.items()}
        )
        wanted = {"accept": "application/json"}
        address = f"{path}?{example.query}"
        answer = api.call(endpoint.method, address, example.body, headers=wanted)
        assert answer.status_code == example.status, (name, answer.text)
        if name in ("metrics", "history"):  # what they say depends on the time
            assert answer.json().keys() == example.answer.keys()
        else:
            assert settled(answer.json()) == settled(example.answer), name
    api.close()


@pytest.mark.parametrize(("name", "mode"), CASES, ids=[f"{n} {m.value}" for n, m in CASES])
def test_no_generated_request_finds_the_description_wrong(
    shared_server: ServerProcess, operations: Operations, name: str, mode: GenerationMode
) -> None:
    operation = operations[f"{BY_NAME[name].method} {BY_NAME[name].path}"]
    prepare(shared_server)
    existing = st.sampled_from([None, "queue" if name.endswith("Jobs") else "log", "queue"])

    @settings(
        max_examples=GENERATED,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        database=None,
    )
    @seed(SEED)
    @given(case=operation.as_strategy(mode), target=existing)
    def run(case: AnyCase, target: str | None) -> None:
        if target is not None:
            aim(case, target)
        if isinstance(case.body, dict):
            case.body.pop("wait_ms", None)  # nobody waits here
        answer = case.call_and_validate(checks=CHECKS, timeout=PATIENCE_S)
        _statuses.setdefault(name, set()).add(answer.status_code)
        reply = BY_NAME[name].replies.get(answer.status_code)
        if reply is None:
            refusal = operation.definition.raw["responses"][str(answer.status_code)]
            assert answer.json()["error"]["code"] in refusal["x-error-codes"]
        elif reply.shape is not None and reply.performance:
            assert "performance" in answer.json()

    run()


def test_the_requests_were_more_than_refusals() -> None:
    """Runs after the others: most operations have to have succeeded at least once.

    Not all of them: what is made up for a router or a commit may well be refused every time.
    """
    if len(_statuses) < len(BY_NAME) - 1:
        return  # only some were chosen to run
    never = {name for name, seen in _statuses.items() if min(seen) >= 300}
    assert len(never) <= len(_statuses) // 4, never
