"""What a dead letter tells of the job that it was."""

from __future__ import annotations

from typing import Any

import pytest

from topics.values import Failure
from topics.wire import letters

FAILURE = Failure("w1", 7, "ValueError", "bad")


@pytest.mark.parametrize(
    "failure", [FAILURE, Failure("w1", 7, "", "bad"), Failure("w1", 7, "ValueError", ""), None]
)
def test_a_letter_gives_back_the_failure_it_was_told(failure: Failure | None) -> None:
    told = letters.members("q", 3, 9, failure)
    assert all(isinstance(value, str) for value in told.values())
    assert letters.failure_in(told) == failure
    assert set(told) <= set(letters.MEMBERS)


@pytest.mark.parametrize(
    "meta",
    [{}, {letters.WORKER: "w"}, {letters.WORKER: 1, letters.FAILED_AT: "7"}]
    + [{letters.WORKER: "w", letters.FAILED_AT: at} for at in (7, "soon", "-1")],
)
def test_meta_that_somebody_made_up_says_nothing(meta: dict[str, Any]) -> None:
    assert letters.failure_in(meta) is None


def test_an_error_is_told_by_type_and_message_and_cut_where_it_is_long() -> None:
    assert letters.error_of(KeyError("k")) == {"type": "KeyError", "message": "'k'"}
    assert letters.error_of("out of paper") == {"type": "", "message": "out of paper"}
    message = letters.error_of("x" * 5000)["message"]
    assert len(message) == letters.MAX_MESSAGE_CHARS
    assert message.endswith("x…")


def test_text_that_cannot_be_encoded_is_sent_all_the_same() -> None:
    assert letters.error_of("a\ud800b")["message"] == "a?b"


def test_a_failure_reads_like_the_last_line_of_a_traceback() -> None:
    assert str(FAILURE) == "ValueError: bad"
    assert str(Failure("w", 1, "", "bad")) == "bad"
    assert str(Failure("w", 1, "", "")) == "an error without a message"
