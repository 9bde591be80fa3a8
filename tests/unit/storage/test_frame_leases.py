"""Lease frames made together are those made one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.facts import LeaseChanged
from topics.storage.frames.buffer import encode
from topics.storage.frames.leases import encode_leases

numbers = st.integers(0, (1 << 64) - 1)
events = st.builds(
    LeaseChanged,
    topic_id=numbers,
    seq=numbers,
    ts=numbers,
    event=st.integers(LeaseChanged.CLAIMED, LeaseChanged.ACKED),
    lease_id=numbers,
    deadline_ms=numbers,
    deliveries=numbers,
    node=st.sampled_from(["", "w", "wörker", "x" * 128]),
)


@given(st.lists(events, max_size=6))
def test_frames_are_the_same_as_one_by_one(facts: list[LeaseChanged]) -> None:
    assert encode_leases(facts) == b"".join(map(encode, facts))


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown lease event 4"):
        encode_leases([LeaseChanged(1, 1, 1, 4, 1, 1, 1, "w")])
