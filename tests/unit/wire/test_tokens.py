import re

import pytest

from topics.errors import InvalidRequest
from topics.wire.tokens import lease_token, parse_lease, watch_id


@pytest.mark.parametrize("lease_id", [0, 10, 255, (1 << 64) - 1])
def test_a_lease_token_is_lower_case_hex_and_comes_back(lease_id: int) -> None:
    assert re.fullmatch(r"lease_[0-9a-f]+", lease_token(lease_id))
    assert parse_lease(lease_token(lease_id)) == lease_id


def test_the_empty_token_stands_for_any_lease() -> None:
    assert parse_lease("") is None


@pytest.mark.parametrize(
    "token", ["lease_", "lease_A", "lease_10000000000000000", "x", "lease_1\n"]
)
def test_anything_else_is_no_token(token: str) -> None:
    with pytest.raises(InvalidRequest, match="lease id"):
        parse_lease(token)


def test_a_watch_id_shows_all_its_entropy_in_url_safe_letters() -> None:
    name = watch_id(bytes(range(240, 256)))
    assert len(name) == 26
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", name)
    assert name != watch_id(bytes(16))
