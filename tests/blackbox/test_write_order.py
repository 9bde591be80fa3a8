"""Writes sent one behind the other on a connection get their seqs in that order, come what may."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from tests.blackbox.api_client import good
from tests.blackbox.conftest import Connect, ServerProcess

IN_LINE = 40
ROUNDS = 30
SIZES = ([1], [1, 50], [200, 1, 1], [1])
"""Of the writes of each client, over and over: large ones wait where small ones need not."""


def first_seqs(server: ServerProcess, topic: str, sizes: Sequence[int]) -> list[int]:
    """Write many times, always a whole line of requests at once; the first seq of each write."""
    line = b"".join(a_write(topic, sizes[number % len(sizes)]) for number in range(IN_LINE))
    with (
        socket.create_connection((server.host, server.port), timeout=90) as connection,
        connection.makefile("rb") as answers,
    ):
        found: list[int] = []
        for _ in range(ROUNDS):
            connection.sendall(line)
            found += [first_seq(answers) for _ in range(IN_LINE)]
        return found


def a_write(topic: str, size: int, **more: object) -> bytes:
    body = json.dumps({"records": [{"data": 1}] * size, **more})
    return (
        f"POST /v0/topics/{topic} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()


def first_seq(answers: BinaryIO) -> int:
    status, ack = next_answer(answers)
    assert status == 200, ack
    seq: int = ack["first_seq"]
    return seq


def next_answer(answers: BinaryIO) -> tuple[int, dict[str, Any]]:
    status, length = int(answers.readline().split()[1]), 0
    while (field := answers.readline().strip().lower()) != b"":
        name, _, value = field.partition(b":")
        length = int(value) if name == b"content-length" else length
    return status, json.loads(answers.read(length))


def test_of_pipelined_writes_to_a_new_topic_the_first_makes_it_for_the_others(
    shared_server: ServerProcess, topic: str
) -> None:
    line = (
        a_write(topic, 2, idempotency_key="k"),
        a_write(topic, 1, create=False),
        a_write(topic, 1, config={"auto_create": False}),
        a_write(topic, 1, expect_head=4),
        a_write(topic, 1, expect_head=4),
        a_write(topic, 1, idempotency_key="k"),
    )
    address = (shared_server.host, shared_server.port)
    with (
        socket.create_connection(address, timeout=90) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(b"".join(line))
        found = [next_answer(answers) for _ in line]
    assert [status for status, _ in found] == [201, 200, 200, 200, 409, 200]
    acks = [ack for _, ack in found if "error" not in ack]
    assert [ack["first_seq"] for ack in acks] == [1, 3, 4, 5, 1]
    assert [ack["created"] for ack in acks] == [True, False, False, False, False]
    assert [ack["deduped"] for ack in acks] == [False, False, False, False, True]


def test_pipelined_writes_stay_in_order_while_routers_come_and_go(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api, is_over = connect(shared_server), threading.Event()
    good(api.put(f"/v0/topics/{topic}", {"durability": "disk", "cap_records": 1000}))

    def reroute() -> None:
        while not is_over.is_set():
            good(api.put(f"/v0/routers/{topic}", {"source": topic, "dest": f"{topic}.copy"}))
            good(api.delete(f"/v0/routers/{topic}"))

    with ThreadPoolExecutor(len(SIZES) + 1) as pool:
        try:
            routing = pool.submit(reroute)
            writing = [pool.submit(first_seqs, shared_server, topic, sizes) for sizes in SIZES]
            found = [each.result() for each in writing]
        finally:
            is_over.set()
        routing.result()
    for seqs in found:
        assert len(seqs) == IN_LINE * ROUNDS
        assert seqs == sorted(seqs)
