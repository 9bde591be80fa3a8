"""Idempotency keys inside their window."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from topics.core import keys as keys_module
from topics.core.facts import KeyRemembered
from topics.core.keys import KeyWindow, slots_of


def remember(keys: KeyWindow, key: str, ts: int, first: int = 1, count: int = 1) -> None:
    keys.remember(KeyRemembered(1, ts, key, first, count, first + count - 1))


def test_a_key_answers_until_its_window_has_passed() -> None:
    keys = KeyWindow(10)
    remember(keys, "k", 100, first=5, count=3)
    found = keys.find("k", now_ms=200, window_ms=100)
    assert found is not None
    assert (found.first_seq, found.count, found.head) == (5, 3, 7)
    assert keys.find("k", now_ms=201, window_ms=100) is None
    assert keys.find("other", now_ms=100, window_ms=100) is None


def test_a_shorter_window_applies_to_what_is_already_remembered() -> None:
    keys = KeyWindow(10)
    remember(keys, "k", 100)
    assert keys.find("k", now_ms=150, window_ms=10) is None


def test_the_oldest_key_makes_room() -> None:
    keys = KeyWindow(2)
    for ts, key in enumerate(("a", "b", "c")):
        remember(keys, key, ts)
    assert [key for key, _ in keys.items()] == ["b", "c"]


def test_a_key_that_is_forgotten_is_nowhere_in_the_window() -> None:
    keys = KeyWindow(10)
    for ts, key in enumerate(("a", "b", "a", "c")):
        remember(keys, key, ts)
    keys.forget(["a", "absent"])
    assert [key for key, _ in slots_of(keys.blocks())] == ["b", "c"]
    assert keys.find("a", now_ms=2, window_ms=100) is None


def test_a_key_that_comes_again_is_young_again() -> None:
    keys = KeyWindow(2)
    for ts, key in enumerate(("a", "b", "a", "c")):
        remember(keys, key, ts)
    assert [key for key, _ in keys.items()] == ["a", "c"]


def test_expired_keys_leave_from_the_old_end_a_few_at_a_time() -> None:
    keys = KeyWindow(100)
    for ts in range(10):
        remember(keys, f"k{ts}", ts)
    keys.expire(now_ms=12, window_ms=5, at_most=3)
    assert len(keys) == 7
    keys.expire(now_ms=12, window_ms=5)
    assert [entry.ts for _, entry in keys.items()] == [7, 8, 9]


def test_whether_more_keys_have_expired_is_told() -> None:
    keys = KeyWindow(100)
    for ts in range(10):
        remember(keys, f"k{ts}", ts)
    assert keys.expire(now_ms=12, window_ms=5, at_most=3)
    assert not keys.expire(now_ms=12, window_ms=5, at_most=30)
    assert not keys.expire(now_ms=99, window_ms=5, at_most=30)
    assert len(keys) == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("remember"), st.sampled_from("abcdef")),
            st.tuples(st.just("expire"), st.integers(1, 4)),
            st.just(("clear", 0)),
        ),
        max_size=60,
    ),
    st.integers(1, 5),
)
def test_keys_come_and_go_like_those_of_an_ordered_dict(
    changes: list[tuple[str, str | int]], limit: int
) -> None:
    keys, expected = KeyWindow(limit), dict[str, int]()
    with mock.patch.object(keys_module, "BLOCK", 3):
        for ts, (what, how) in enumerate(changes):
            if isinstance(how, str):
                remember(keys, how, ts)
                expected.pop(how, None)
                expected[how] = ts
                expected = dict(list(expected.items())[-limit:])
            elif what == "expire":
                keys.expire(now_ms=ts, window_ms=10, at_most=99)
                expected = {key: at for key, at in expected.items() if ts - at <= 10}
            else:
                keys.clear()
                expected = {}
            assert [(key, entry.ts) for key, entry in keys.items()] == list(expected.items())
            assert len(keys) == len(expected)


def test_what_was_taken_over_stays_as_it_was() -> None:
    keys = KeyWindow(100)
    with mock.patch.object(keys_module, "BLOCK", 3):
        for ts in range(8):
            remember(keys, f"k{ts}", ts)
        keys.expire(now_ms=12, window_ms=10)
        blocks = keys.blocks()
        for ts in range(8, 20):
            remember(keys, f"k{ts}", ts)
        keys.expire(now_ms=99, window_ms=10, at_most=99)
    assert [key for key, _ in slots_of(blocks)] == ["k2", "k3", "k4", "k5", "k6", "k7"]


def test_a_key_of_a_wrong_clock_leaves_with_the_age_of_its_write() -> None:
    window = KeyWindow(10)
    for seq, ts in ((1, 10**9), (5, 10**9), (9, 100)):
        window.remember(KeyRemembered(1, ts, f"k{seq}", seq, 1, seq))
    found = [window.find(f"k{seq}", now_ms=100, window_ms=50, aged=5) for seq in (1, 5, 9)]
    assert [entry is not None for entry in found] == [False, False, True]
    window.expire(now_ms=100, window_ms=50, aged=5)
    assert [key for key, _ in window.items()] == ["k9"]
    window.expire(now_ms=100, window_ms=50, aged=9)
    window.expire(now_ms=100, window_ms=50, aged=9)
    assert len(window) == 0
