import pytest

from topics.client._retry import FIRST_S, MOST_S, Attempts, backoff, is_passing, is_safe
from topics.errors import (
    Internal,
    InvalidRequest,
    NotReady,
    ShuttingDown,
    Throttled,
    TopicsError,
    Unauthorized,
    Unreachable,
    Untrusted,
    from_wire,
)

LOST = Unreachable("http://h", reason="gone", sent=True)
REFUSED = Unreachable("http://h", reason="refused")
BUSY = Throttled("max_topics", maximum=1, retry_after_ms=700)


@pytest.mark.parametrize(
    ("error", "idempotent", "safe"),
    [
        (REFUSED, False, True),
        (LOST, False, False),
        (LOST, True, True),
        (BUSY, False, True),
        (NotReady(replay_progress=0.5), False, True),
        (ShuttingDown(), False, True),
        (Untrusted("https://h", reason="self-signed certificate"), True, False),
        (from_wire("http_502", "gateway"), True, True),
        (from_wire("http_502", "gateway"), False, False),
        (Internal(), True, False),
        (InvalidRequest("no"), True, False),
        (Unauthorized(), True, False),
    ],
)
def test_only_what_cannot_be_done_twice_is_repeated(
    error: TopicsError, idempotent: bool, safe: bool
) -> None:
    assert is_safe(error, idempotent=idempotent) is safe


def test_what_may_pass_is_what_a_harmless_call_repeats() -> None:
    assert is_passing(LOST)
    assert is_passing(BUSY)
    assert not is_passing(InvalidRequest("no"))


def test_backoff_doubles_up_to_a_bound_and_takes_any_part_of_it() -> None:
    bounds = [backoff(tries, chance=lambda: 1.0) for tries in range(1, 12)]
    assert bounds[:4] == [FIRST_S, FIRST_S * 2, FIRST_S * 4, FIRST_S * 8]
    assert bounds[-1] == MOST_S
    assert backoff(1000, chance=lambda: 1.0) == MOST_S
    assert backoff(5, chance=lambda: 0.0) == 0.0


def test_a_wait_is_never_shorter_than_what_the_server_asks_for() -> None:
    attempts = Attempts(9, idempotent=False, chance=lambda: 0.0)
    assert attempts.wait_after(BUSY, now=0.0, retry_after=1.0) == 0.7  # the finer of the two
    assert attempts.wait_after(ShuttingDown(), now=0.0, retry_after=3.0) == 3.0
    assert attempts.wait_after(REFUSED, now=0.0) == 0.0


def test_tries_are_bounded_in_number_and_in_time() -> None:
    attempts = Attempts(2, idempotent=True, chance=lambda: 0.0)
    attempts.wait_after(LOST, now=0.0)
    attempts.wait_after(LOST, now=0.0)
    with pytest.raises(Unreachable):
        attempts.wait_after(LOST, now=0.0)
    late = Attempts(9, idempotent=True, until=10.0, chance=lambda: 0.0)
    late.wait_after(LOST, now=9.0)
    with pytest.raises(Unreachable):
        late.wait_after(LOST, now=10.5)


def test_the_last_try_is_at_the_end_of_the_time_unless_the_server_asks_for_longer() -> None:
    late = Attempts(9, idempotent=True, until=10.0, chance=lambda: 1.0)
    assert late.wait_after(LOST, now=9.99) == pytest.approx(0.01)
    with pytest.raises(Throttled):
        late.wait_after(BUSY, now=9.5)
