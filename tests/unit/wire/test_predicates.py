import pytest

from topics.errors import InvalidRequest
from topics.wire.predicates import Predicate, parse_match


@pytest.mark.parametrize(
    ("sent", "op", "value", "literal"),
    [
        ("room:4", "Eq", "room:4", "room:4"),
        ("room:*", "Glob", "room:*", "room:"),
        ("*", "Glob", "*", ""),
        ("", "Eq", "", ""),
        ("a*b", "Eq", "a*b", "a*b"),
        ("a**", "Glob", "a**", "a*"),
        (["tag", "Eq", "room:*"], "Eq", "room:*", "room:*"),
        (("tag", "Glob", "room:*"), "Glob", "room:*", "room:"),
    ],
)
def test_a_selector_is_understood(sent: str, op: str, value: str, literal: str) -> None:
    found = parse_match(sent)
    assert (found.op, found.value, found.literal) == (op, value, literal)
    assert found.is_prefix is (op == "Glob")


def test_either_form_is_echoed_as_a_triple_that_means_the_same() -> None:
    for sent in ("room:4", "room:*", ["tag", "Eq", "x*"]):
        found = parse_match(sent)
        assert found.triple == ("tag", found.op, found.value)
        assert parse_match(found.triple) == found


@pytest.mark.parametrize(
    "sent",
    [[], ["tag"], ["tag", "Eq"], ["tag", "Eq", "a", "b"], ["node", "Eq", "a"], ["tag", "eq", "a"]],
)
def test_anything_else_is_no_selector(sent: list[object]) -> None:
    with pytest.raises(InvalidRequest, match="a selector is"):
        parse_match(sent)


def test_a_glob_without_its_star_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidRequest, match="use Eq"):
        parse_match(["tag", "Glob", "room:4"])


def test_a_predicate_is_a_plain_pair() -> None:
    assert Predicate("Eq", "a") == ("Eq", "a")
