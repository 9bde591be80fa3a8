"""The table of the API: every endpoint, declared once, with its example.

The server's routes and what they ask of a key, the OpenAPI document, the paths that the client
calls, the types of its answers, the HTTP reference and the tests that every call is covered are all
made from this table.
"""

from topics.wire.endpoints import queues, records, server, stages, streams, topics
from topics.wire.endpoints.parts import Endpoint, Scope

GROUPS: dict[str, tuple[str, tuple[Endpoint, ...]]] = {
    "topics": ("Create, configure, list and drop topics.", topics.TOPICS),
    "records": ("Append, read and delete records, and account for every seq.", records.RECORDS),
    "cursors": ("Positions of consumers that the server keeps by name.", topics.CURSORS),
    "routers": ("Rules that copy records from one topic to another.", topics.ROUTERS),
    "streams": ("Live delivery as server-sent events or over a WebSocket.", streams.STREAMS),
    "queues": ("Take jobs on lease, finish them, give them back.", queues.QUEUES),
    "stages": ("Writes of several parts that become visible together, once.", stages.STAGES),
    "server": ("Probes, metrics and this document.", server.SERVER),
}
"""The headings under which endpoints are listed, in order."""

ENDPOINTS = tuple(endpoint for _, listed in GROUPS.values() for endpoint in listed)
BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}

OTHER_METHODS: tuple[tuple[str, Scope], ...] = (
    ("/v0/topics/{topic}", "write"),
    ("/v0/routers/{router}", "admin"),
    ("/v0/stages/", "write"),
)
"""The scope for methods that a path does not have, by the beginning of the path: a key without the
scope gets 403 instead of 405. On all other paths no scope is needed."""
