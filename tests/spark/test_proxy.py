"""The proxy of the kill tests does what they rely on."""

from __future__ import annotations

import threading

import httpx
import pytest
from tests.blackbox.conftest import ServerProcess
from tests.spark.proxy import Proxy, Request


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=60)


def is_write(request: Request) -> bool:
    return request.method == "POST"


def test_requests_pass_with_their_bodies_and_answers(
    shared_server: ServerProcess, topic: str
) -> None:
    with Proxy(shared_server.address) as proxy, client(proxy.url) as http:
        written = http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}]})
        assert written.status_code == 201
        assert http.get(f"/v0/topics/{topic}").json()["head_seq"] == 1
        assert http.get("/v0/topics/nobody").status_code == 404
        assert [request.method for request in proxy.seen] == ["POST", "GET", "GET"]


@pytest.mark.parametrize(("answered", "heads"), [(False, 0), (True, 1)])
def test_a_held_request_is_on_one_side_of_the_server(
    shared_server: ServerProcess, topic: str, answered: bool, heads: int
) -> None:
    with Proxy(shared_server.address) as proxy, client(shared_server.url) as direct:
        held = proxy.hold(is_write, answered=answered)
        errors: list[Exception] = []

        def write() -> None:
            try:
                with client(proxy.url) as http:
                    http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}]})
            except httpx.TransportError as error:
                errors.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        (request,) = held.wait()
        assert b'"data"' in request.body
        found = direct.get(f"/v0/topics/{topic}")
        assert (found.json()["head_seq"] if found.status_code == 200 else 0) == heads
        held.cut_off()
        writer.join()
        assert len(errors) == 1
        write()
        assert direct.get(f"/v0/topics/{topic}").json()["head_seq"] == heads + 1
