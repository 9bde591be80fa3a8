import pytest

from topics.errors import InvalidRequest
from topics.wire.query import parse_query, path_u64


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("a=1", "1"),
        ("a=%41+b", "A b"),
        ("a=%zz", "%zz"),
        ("a=%4", "%4"),
        ("a=100%", "100%"),
        ("a=%e2%82%ac", "€"),
        ("a=%ff", "�"),
        ("a", ""),
        ("a=", ""),
        ("a=1&a=2", "2"),
        ("b=1&&a=x=y", "x=y"),
        ("%61=1", "1"),
        ("", None),
        ("b=1", None),
    ],
)
def test_a_parameter_is_decoded_and_the_last_counts(raw: str, value: str | None) -> None:
    assert parse_query(raw.encode()).text("a") == value


def test_a_credential_is_taken_from_the_first_of_its_name() -> None:
    query = parse_query(b"token=a&token=b")
    assert query.first("token") == "a"
    assert parse_query(b"").first("token") is None


def test_a_repeatable_parameter_keeps_all_values_in_order() -> None:
    assert parse_query(b"node=b&node=a").every("node") == ("b", "a")
    assert parse_query(b"").every("node") == ()


def test_a_query_with_absurdly_many_fields_says_nothing() -> None:
    assert parse_query(b"&".join([b"a=1"] * 1000)).text("a") == "1"
    assert parse_query(b"&".join([b"a=1"] * 1001)).text("a") is None


def test_presence_is_told_apart_from_a_value() -> None:
    assert "a" in parse_query(b"a=")
    assert "a" not in parse_query(b"b=a")


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("1", True), ("false", False), ("0", False)]
    + [(text, None) for text in ("", "yes", "TRUE", "True", "2", "on", " true")],
)
def test_a_flag_has_two_spellings_each_and_else_its_default(text: str, value: bool | None) -> None:
    query = parse_query(f"a={text}".encode())
    assert query.flag("a", default=True) is (True if value is None else value)
    assert query.flag("a", default=False) is (False if value is None else value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("007", 7),
        ("18446744073709551615", (1 << 64) - 1),
        ("18446744073709551616", None),
        ("9" * 10_000, None),
        ("0" * 10_000, 0),
        ("", None),
        ("-1", None),
        ("%2B1", None),
        ("1.0", None),
        ("1_0", None),
        ("٣", None),
        ("²", None),
        ("x", None),
    ],
)
def test_a_number_that_does_not_parse_counts_as_not_given(text: str, value: int | None) -> None:
    assert parse_query(f"a={text}".encode()).u64("a") == value


def test_a_u32_ends_at_thirty_two_bits() -> None:
    assert parse_query(b"a=4294967295").u32("a") == 4294967295
    assert parse_query(b"a=4294967296").u32("a") is None


def test_a_number_in_a_path_must_parse() -> None:
    assert path_u64("epoch", "17") == 17
    for text in ("", "-1", "1.0", "x", "18446744073709551616"):
        with pytest.raises(InvalidRequest, match="epoch must be an integer"):
            path_u64("epoch", text)
