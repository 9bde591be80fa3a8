import importlib
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from topics import errors
from topics.wire import requests
from topics.wire.endpoints import ENDPOINTS
from topics.wire.openapi import describe, document, error_codes
from topics.wire.statuses import STATUS

DOCUMENT: dict[str, Any] = json.loads(document("1.2.3"))

SCOPES: dict[tuple[str, str], list[str] | None] = {
    ("put", "/v0/topics/{topic}"): ["admin"],
    ("get", "/v0/topics/{topic}"): ["read"],
    ("get", "/v0/topics"): ["read"],
    ("delete", "/v0/topics/{topic}"): ["delete"],
    ("post", "/v0/topics/{topic}"): ["write"],
    ("post", "/v0/topics/{topic}/diff"): ["read"],
    ("post", "/v0/topics/{topic}/delete"): ["delete"],
    ("post", "/v0/topics/{topic}/erase"): ["delete"],
    ("get", "/v0/topics/{topic}/erase"): ["delete"],
    ("put", "/v0/routers/{router}"): ["admin"],
    ("get", "/v0/routers/{router}"): ["read"],
    ("delete", "/v0/routers/{router}"): ["delete"],
    ("get", "/v0/routers"): ["read"],
    ("post", "/v0/watch"): ["read"],
    ("get", "/v0/watch/{wid}"): [],
    ("get", "/v0/ws"): [],
    ("post", "/v0/topics/{topic}/claim"): ["read", "write"],
    ("post", "/v0/topics/{topic}/ack"): ["write"],
    ("post", "/v0/topics/{topic}/nack"): ["write"],
    ("post", "/v0/topics/{topic}/extend"): ["write"],
    ("get", "/v0/topics/{topic}/jobs"): ["read"],
    ("get", "/v0/topics/{topic}/work"): ["read", "write"],
    ("get", "/v0/health"): None,
    ("get", "/healthz"): None,
    ("get", "/v0/ready"): None,
    ("get", "/readyz"): None,
    ("get", "/v0/metrics"): ["read"],
    ("get", "/v0/history"): ["read"],
    ("get", "/v0/topics/{topic}/explain"): ["read"],
    ("get", "/v0/key"): [],
    ("get", "/v0/openapi.json"): None,
    ("get", "/v0/topics/{topic}/records"): ["read"],
    ("get", "/v0/topics/{topic}/audit"): ["read"],
    ("get", "/v0/topics/{topic}/cursors"): ["read"],
    ("get", "/v0/topics/{topic}/cursors/{cursor}"): ["read"],
    ("put", "/v0/topics/{topic}/cursors/{cursor}"): ["read"],
    ("delete", "/v0/topics/{topic}/cursors/{cursor}"): ["delete"],
    ("post", "/v0/topics/{topic}/redrive"): ["write", "delete"],
    ("post", "/v0/topics/{topic}/holes"): ["read"],
    ("post", "/v0/topics/{topic}/plan"): ["read"],
    ("post", "/v0/stages/{app}/{epoch}/{part}/{attempt}"): ["write"],
    ("get", "/v0/stages"): ["read"],
    ("get", "/v0/stages/{app}"): ["read"],
    ("delete", "/v0/stages/{app}"): ["admin"],
    ("post", "/v0/stages/{app}/{epoch}/commit"): ["write"],
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def name_of(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def test_every_call_has_a_heading_and_an_example() -> None:
    headings = [tag["name"] for tag in DOCUMENT["tags"]]
    assert len(headings) == len(set(headings))
    for _, path, operation in operations():
        assert set(operation["tags"]) < set(headings), path
        if operation["operationId"] in ("openapi", "openWebSocket"):
            continue  # the document itself, and a connection without a body
        answers = [
            content
            for reply in operation["responses"].values()
            for content in reply.get("content", {}).values()
        ]
        assert any("example" in content for content in answers), path
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert "example" in content or content["schema"]["type"] == "string", path


def test_no_schema_uses_what_generators_of_clients_cannot_read() -> None:
    def keywords(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            yield from node
            for value in node.values():
                yield from keywords(value)
        elif isinstance(node, list):
            for value in node:
                yield from keywords(value)

    assert "prefixItems" not in set(keywords(DOCUMENT))
    runs = DOCUMENT["components"]["schemas"]["HolesPage"]["properties"]["runs"]["items"]
    assert (runs["minItems"], runs["maxItems"], len(runs["items"]["anyOf"])) == (3, 3, 2)
    parts = DOCUMENT["components"]["schemas"]["CommitBody"]["properties"]["parts"]["items"]
    assert parts["items"]["type"] == "integer"


def test_the_document_is_valid_openapi() -> None:
    validator = importlib.import_module("openapi_spec_validator")
    validator.validate(DOCUMENT)


def test_every_endpoint_is_there_with_its_scopes_and_no_other() -> None:
    shown = {(method, path): operation.get("x-scopes") for method, path, operation in operations()}
    assert shown == SCOPES


def test_a_key_with_these_scopes_is_asked_for_unless_none_are_set_up() -> None:
    for _, _, operation in operations():
        scopes = operation.get("x-scopes")
        if scopes is None:
            assert operation["security"] == []
        else:
            assert operation["security"][0] == {"key": scopes}
            assert operation["security"][-1] == {}


def test_only_streams_take_the_key_from_the_query() -> None:
    takers = {
        path
        for _, path, operation in operations()
        if any("streamToken" in way for way in operation["security"])
    }
    assert takers == {"/v0/watch/{wid}", "/v0/topics/{topic}/work"}


def test_every_reference_leads_somewhere() -> None:
    for reference in references(DOCUMENT):
        found: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]


def test_every_schema_is_used() -> None:
    used = {reference.rpartition("/")[2] for reference in references(DOCUMENT)}
    assert used >= set(DOCUMENT["components"]["schemas"])


def test_names_in_a_path_are_its_parameters_and_operations_have_unique_names() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    for _, path, operation in operations():
        declared = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
        assert declared == set(re.findall(r"\{(\w+)\}", path))


def test_every_code_that_has_a_status_is_an_error_of_ours_and_is_used() -> None:
    assert all(errors.error_for(code).code == code for code in STATUS)
    used = {code for endpoint in ENDPOINTS for code in error_codes(endpoint)}
    assert used == set(STATUS) - {"method_not_allowed"}


def test_refusals_list_their_codes_and_when_to_try_again() -> None:
    write = DOCUMENT["paths"]["/v0/topics/{topic}"]["post"]["responses"]
    assert set(write) == {
        *("200", "201", "400", "401", "403", "404", "409", "413", "415", "422", "429"),
        *("500", "503"),
    }
    assert write["400"]["x-error-codes"] == [
        "batch_too_large",
        "record_too_large",
        "invalid_request",
    ]
    for status in ("429", "503"):
        assert write[status]["headers"] == {
            "Retry-After": {"$ref": "#/components/headers/Retry-After"}
        }


def test_a_name_in_a_path_may_be_no_text() -> None:
    for path, operations in DOCUMENT["paths"].items():
        if "{" in path:
            assert all("400" in operation["responses"] for operation in operations.values()), path


def test_probes_answer_while_recovering_and_want_a_key_only_if_set_up_so() -> None:
    assert set(DOCUMENT["paths"]["/v0/openapi.json"]["get"]["responses"]) == {"200"}
    for path in ("/v0/health", "/healthz"):
        assert set(DOCUMENT["paths"][path]["get"]["responses"]) == {"200", "401", "429"}
    for path in ("/v0/ready", "/readyz"):
        assert set(DOCUMENT["paths"][path]["get"]["responses"]) == {"200", "401", "429", "503"}


def test_bodies_are_described_by_the_types_that_decode_them() -> None:
    for body in (requests.WriteBody, requests.DiffBody, requests.SubscribeCommand):
        described = DOCUMENT["components"]["schemas"][body.__name__]
        fields = {field.encode_name for field in msgspec.structs.fields(body)}
        assert set(described["properties"]) - {"op"} == fields
    limit = DOCUMENT["components"]["schemas"]["DiffBody"]["properties"]["limit"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (0, 4294967295, 256)
    cursor = DOCUMENT["components"]["schemas"]["CursorBody"]["properties"]["seq"]
    assert cursor["maximum"] == (1 << 64) - 1


def test_performance_closes_every_success_but_those_that_must_not_move() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    without = {
        path
        for _, path, operation in operations()
        for status, reply in operation["responses"].items()
        if int(status) < 300
        for kind, content in reply.get("content", {}).items()
        if kind == "application/json"
        and "performance" not in schemas.get(name_of(content["schema"]), {}).get("properties", {})
    }
    assert without == {
        "/v0/health",
        "/healthz",
        "/v0/ready",
        "/readyz",
        "/v0/metrics",
        "/v0/openapi.json",
        "/v0/topics/{topic}/records",
    }


def test_the_document_is_static_and_carries_the_version() -> None:
    assert document("1.2.3") is document("1.2.3")
    assert describe("2")["info"]["version"] == "2"
