"""Requests without a valid key: what is told of them, and when they have to wait."""

from __future__ import annotations

import pytest

from topics.http.api import unknown_keys
from topics.http.api.unknown_keys import UnknownKeys
from topics.http.messages import Late, Response

REFUSAL = Response(401, b"{}")


def come(who: UnknownKeys, times: int, *, now_s: float = 1000.0, peer: str = "10.0.0.7:5") -> bool:
    """Whether the last of so many requests has to wait for its refusal."""
    answers = [who.refuse(peer, REFUSAL, now_s=now_s) for _ in range(times)]
    return isinstance(answers[-1], Late)


def test_an_address_that_keeps_guessing_waits_for_its_refusals_and_others_do_not() -> None:
    who = UnknownKeys()
    assert not come(who, unknown_keys.BURST)
    assert come(who, 1, peer="10.0.0.7:6"), "another connection of the same machine"
    assert not come(who, 1, peer="[::1]:5")
    assert not come(who, 1, now_s=1010.0), "it has been forgiven some"


def test_a_late_refusal_is_the_refusal() -> None:
    late = Late(REFUSAL, 1.0)
    assert (late.status, late.body, late.headers) == (401, b"{}", ())


def test_a_guesser_is_told_of_at_once_and_then_by_the_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    who = UnknownKeys()
    come(who, 30)
    come(who, 1, now_s=1061.0)
    assert [record.getMessage() for record in caplog.records] == [
        "requests without a valid key from 10.0.0.7: 1",
        "requests without a valid key from 10.0.0.7: 30",
    ]


def test_any_number_of_addresses_takes_few_lines_and_little_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    who = UnknownKeys()
    for number in range(2 * unknown_keys.MAX_ADDRESSES):
        come(who, 1, peer=f"[fd00::{number:x}]:5")
    assert len(caplog.records) == unknown_keys.LINES_AT_ONCE
    assert len(who._by_address) == unknown_keys.MAX_ADDRESSES
