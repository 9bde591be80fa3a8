"""What whole chunks weigh is remembered, and stays true when records go."""

from topics.core.live import Weights
from topics.core.seqset import CHUNK


def known() -> Weights:
    weights = Weights()
    for chunk in range(4):
        weights.put(chunk, (10, 100))
    return weights


def test_the_weight_of_records_that_are_gone_is_taken_off() -> None:
    weights = known()
    weights.take_off(1, 2, 30)
    weights.take_off(9, 2, 30)
    assert weights.get(1) == (8, 70)
    assert weights.get(9) is None


def test_a_range_of_which_much_is_gone_is_forgotten_however_long_it_is() -> None:
    weights = known()
    weights.forget(CHUNK, 2 * CHUNK - 1)
    assert [weights.get(chunk) for chunk in range(4)] == [(10, 100), None, (10, 100), (10, 100)]
    weights.forget(2 * CHUNK, 1000 * CHUNK)
    assert len(weights) == 1
    weights.clear()
    weights.forget(0, 1000 * CHUNK)
    assert len(weights) == 0


def test_a_front_is_known_when_all_of_its_chunks_are_but_the_last() -> None:
    weights = known()
    assert weights.has_all(5, 4 * CHUNK + 9)
    assert not weights.has_all(5, 5 * CHUNK + 2)
    assert weights.has_all(9 * CHUNK, 9 * CHUNK + 3), "it has no chunk but the last"
    weights.forget(CHUNK, CHUNK)
    assert not weights.has_all(1, 2 * CHUNK + 1)


def test_topics_that_nobody_weighs_share_what_they_do_not_know() -> None:
    known()
    assert len(Weights()) == 0
