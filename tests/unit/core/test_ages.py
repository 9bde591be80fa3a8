"""How old records are at least, told by marks instead of their times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topics.core.ages import SHARE, SPACING_MS, Ages

DAY_MS = 86_400_000


def test_a_seq_is_as_old_as_the_mark_that_has_it() -> None:
    ages = Ages()
    assert ages.through(10**9) == 0
    assert ages.note(3, 0)
    assert ages.note(7, 5000)
    assert list(ages) == [(3, 0), (7, 5000)]
    assert [ages.through(at) for at in (0, 1, 5000, 5001)] == [0, 3, 3, 7]


def test_nothing_is_noted_while_nothing_comes_or_too_soon() -> None:
    ages = Ages([(3, 0)])
    assert not ages.note(3, 10 * SPACING_MS)
    assert not ages.note(4, SPACING_MS - 1)
    assert ages.note(4, SPACING_MS)
    assert len(ages) == 2


@given(st.lists(st.integers(SPACING_MS, 10 * DAY_MS), min_size=1, max_size=60))
def test_a_mark_is_never_too_old_and_not_much_too_young(steps: list[int]) -> None:
    ages, now, noted = Ages(), 0, []
    for seq, step in enumerate(steps, 1):
        now += step
        assert ages.note(seq, now)
        noted.append((seq, now))
    for seq, at_ms in noted:
        assert ages.through(at_ms) < seq, "nobody calls a record older than it is"
        late = next(at for mark, at in ages if mark >= seq) - at_ms
        assert late * SHARE <= max(0, now - at_ms)


def test_very_many_marks_of_a_year_take_little_room() -> None:
    ages = Ages()
    for number in range(2000):
        ages.note(number, number * DAY_MS // 4)
    assert len(ages) < 120
