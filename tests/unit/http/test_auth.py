"""Keys, what they grant, and how a request presents one."""

import hashlib
import hmac
import pickle
from urllib.parse import urlencode

import pytest

from topics.errors import InvalidSetting, Unauthorized
from topics.http.api import auth
from topics.http.api.auth import (
    ALL_SCOPES,
    ANYONE,
    Keyring,
    Principal,
    Scope,
    bearer_token,
    may_open,
    stream_token,
)
from topics.wire.query import parse_query

READ, WRITE, DELETE, ADMIN = Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN


def principal(text: str, token: bytes = b"k") -> Principal:
    return Keyring(text).authenticate(token)


def refusal(text: str) -> str:
    with pytest.raises(InvalidSetting) as caught:
        Keyring(text)
    assert caught.value.setting == "TOPICS_API_KEYS"
    return str(caught.value)


# Off and on


@pytest.mark.parametrize("text", ["", " ", ",", " , ,"])
def test_without_entries_everybody_may_do_everything(text: str) -> None:
    keyring = Keyring(text)
    assert not keyring.enabled
    for token in (None, b"", b"whatever"):
        assert keyring.authenticate(token) is ANYONE
    assert ANYONE.may(ALL_SCOPES)
    assert ANYONE.allows("any.name")
    assert ANYONE.key_id is None


@pytest.mark.parametrize("token", [None, b"", b"K", b"k ", b"kk", b"k:rw", b"\xff"])
def test_with_keys_a_missing_or_unknown_token_is_refused(token: bytes | None) -> None:
    keyring = Keyring("k:rw")
    assert keyring.enabled
    assert keyring.find(token) is None
    with pytest.raises(Unauthorized):
        keyring.authenticate(token)


@pytest.mark.parametrize("text", [":", ":rw", " :rw:a", "::a", ":,"])
def test_an_entry_with_an_empty_secret_locks_the_door_and_opens_nothing(text: str) -> None:
    keyring = Keyring(text)
    assert keyring.enabled
    assert keyring.find(b"") is None
    assert keyring.find(None) is None


def test_a_usable_key_works_beside_an_empty_one() -> None:
    assert principal(":rw, ,k:r").scopes == READ


def test_a_secret_may_be_any_text() -> None:
    assert Keyring("schlüssel").find("schlüssel".encode()) is not None
    assert Keyring("raw\udcff").find(b"raw\xff") is not None


# Scopes


@pytest.mark.parametrize(
    ("field", "scopes"),
    [
        ("read", READ),
        ("r", READ),
        ("write", WRITE),
        ("w", WRITE),
        ("delete", DELETE),
        ("del", DELETE),
        ("d", DELETE),
        ("admin", ADMIN),
        ("a", ADMIN),
        ("rw", READ | WRITE),
        ("READ+Write", READ | WRITE),
        ("r+w+d+a", ALL_SCOPES),
        (" rw + d ", READ | WRITE | DELETE),
        ("r+", READ),
        ("+r++r", READ),
    ],
)
def test_scope_words_grant_exactly_themselves(field: str, scopes: Scope) -> None:
    assert principal(f"k:{field}").scopes == scopes
    assert principal(f"k:{field}:p.").scopes == scopes


@pytest.mark.parametrize("text", ["k", "k:", "k::", "k::p.", " k ", "k:  "])
def test_an_absent_or_empty_scope_field_grants_all(text: str) -> None:
    assert principal(text).scopes == ALL_SCOPES == READ | WRITE | DELETE | ADMIN


@pytest.mark.parametrize("field", ["x", "read+x", "reads", "rwd", "all", "*", "r|w"])
def test_an_unknown_scope_stops_the_start(field: str) -> None:
    message = refusal(f"fine:rw,k:{field}")
    assert "unknown scope" in message
    assert "read, write, delete, admin" in message


@pytest.mark.parametrize("text", ["k:+", "k:++:p", "k: :p", "k: + "])
def test_a_scope_field_without_a_scope_stops_the_start(text: str) -> None:
    assert "without any scope" in refusal(text)


def test_a_refusal_names_the_entry_and_the_word_but_no_secret() -> None:
    message = refusal("hunter2:rw,,swordfish:banana:p.")
    assert "entry 3" in message
    assert "'banana'" in message
    assert "hunter2" not in message
    assert "swordfish" not in message


def test_a_refusal_names_the_flag_the_keys_came_from() -> None:
    with pytest.raises(InvalidSetting, match=r"^--api-keys must be"):
        Keyring("k:x", setting="--api-keys")


def test_a_call_that_needs_two_scopes_needs_both() -> None:
    reader, worker = principal("k:r"), principal("k:rw")
    assert reader.may(READ)
    assert not reader.may(WRITE)
    assert not reader.may(READ | WRITE)
    assert worker.may(READ | WRITE)
    assert not worker.may(READ | DELETE)


# Prefixes


@pytest.mark.parametrize(
    ("text", "prefixes"),
    [
        ("k", ()),
        ("k:rw", ()),
        ("k:rw:", ()),
        ("k:rw: | ", ()),
        ("k:rw:a.|b.", ("a.", "b.")),
        ("k:rw: a. || b. ", ("a.", "b.")),
        ("k::a.", ("a.",)),
        ("k:rw:fleet7:|shared.", ("fleet7:", "shared.")),
        ("k:::a:b:", (":a:b:",)),
    ],
)
def test_prefixes_begin_after_the_second_colon(text: str, prefixes: tuple[str, ...]) -> None:
    assert principal(text).prefixes == prefixes


def test_a_prefix_limits_names_letter_by_letter() -> None:
    limited = principal("k:rw:fleet7:|shared.")
    assert limited.allows("fleet7:orders")
    assert limited.allows("fleet7:")
    assert limited.allows("shared.audit")
    for name in ("fleet7", "Fleet7:orders", "fleet70", "other", "", "xfleet7:"):
        assert not limited.allows(name)


def test_without_prefixes_every_name_is_allowed() -> None:
    assert principal("k:r").allows("anything")
    assert principal("k:r").allows("")


# Which key


def test_each_key_has_its_own_rights_and_identity() -> None:
    keyring = Keyring("one:r, two:w:a. ,three")
    found = [keyring.authenticate(token) for token in (b"one", b"two", b"three")]
    assert [p.scopes for p in found] == [READ, WRITE, ALL_SCOPES]
    assert len({p.key_id for p in found}) == 3
    assert found[0] == Keyring("one:r, two:w:a. ,three").authenticate(b"one")


def test_the_same_key_twice_is_one_key() -> None:
    assert principal("k:rw:a|b,k:w+r:b|a") == principal("k:rw:a|b")


def test_one_secret_with_two_sets_of_rights_stops_the_start() -> None:
    message = refusal("swordfish:r,swordfish:w")
    assert "entry 2" in message
    assert "swordfish" not in message


def test_every_digest_is_compared_whichever_key_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(known: bytes, presented: bytes) -> bool:
        compared.append(known)
        return known == presented

    keyring = Keyring("one,two,three")
    monkeypatch.setattr(hmac, "compare_digest", compare)
    expected = [hashlib.sha256(secret).digest() for secret in (b"one", b"two", b"three")]
    for token in (b"one", b"three", b"nobody", None):
        compared.clear()
        keyring.find(token)
        assert compared == expected


def test_nothing_that_can_be_shown_or_stored_holds_a_secret() -> None:
    keyring = Keyring("swordfish:rw:a.,hunter2")
    found = keyring.authenticate(b"swordfish")
    digest = hashlib.sha256(b"swordfish")
    shown = repr(keyring) + str(keyring) + repr(found) + repr(vars(auth))
    assert "swordfish" not in shown
    assert digest.hexdigest() not in shown
    assert repr(digest.digest()) not in shown
    assert b"swordfish" not in pickle.dumps((keyring, found))
    assert "2 keys" in repr(keyring)


# Sessions


def test_a_session_opens_only_for_the_key_that_made_it() -> None:
    keyring = Keyring("one,two")
    one, two = keyring.authenticate(b"one"), keyring.authenticate(b"two")
    assert may_open(one.key_id, one)
    assert may_open(one.key_id, keyring.find(b"one"))
    assert not may_open(one.key_id, two)
    assert not may_open(one.key_id, None)


def test_a_session_made_without_authentication_opens_for_everybody() -> None:
    assert may_open(ANYONE.key_id, ANYONE)
    assert may_open(None, None)


# Tokens in requests


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Bearer k", b"k"),
        (b"Bearer   k  ", b"k"),
        (b"Bearer \t k\t", b"k"),
        (b" Bearer k", b"k"),
        (b"Bearer a b", b"a b"),
        (b"Bearer Bearer k", b"Bearer k"),
        (b"bearer k", None),
        (b"BEARER k", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Bearerk", None),
        (b"Basic azpr", None),
        (b"k", None),
        (b"", None),
        (None, None),
    ],
)
def test_a_bearer_header_is_read_strictly(header: bytes | None, token: bytes | None) -> None:
    assert bearer_token(header) == token


@pytest.mark.parametrize(
    ("header", "pairs", "token"),
    [
        (None, [("token", "k")], b"k"),
        (None, [("a", "1"), ("token", "k"), ("b", "2")], b"k"),
        (None, [("token", "one"), ("token", "two")], b"one"),
        (None, [("token", ""), ("token", "two")], b""),
        (None, [("token", " k+x ")], b"k+x"),
        (None, [("token", "é")], "é".encode()),
        (None, [("Token", "k")], None),
        (None, [], None),
        (b"Bearer h", [("token", "k")], b"h"),
        (b"Basic eA==", [("token", "k")], b"k"),
        (b"Bearer ", [("token", "k")], b"k"),
    ],
)
def test_a_stream_takes_the_header_first_then_the_first_token_of_the_query(
    header: bytes | None, pairs: list[tuple[str, str]], token: bytes | None
) -> None:
    assert stream_token(header, parse_query(urlencode(pairs).encode())) == token


def test_a_missing_key_and_an_unknown_one_are_told_apart() -> None:
    keys = Keyring("hush")
    with pytest.raises(Unauthorized, match="an API key is required"):
        keys.authenticate(None)
    with pytest.raises(Unauthorized, match="does not know this API key"):
        keys.authenticate(b"loud")
