"""What a failure of the server tells whom."""

from __future__ import annotations

import pytest

from topics.errors import Internal, LogFailed, LogFull, TopicNotFound, TopicsError
from topics.http.api.errors import as_told

FAILURE = Internal("records of topic 'secret' could not be read")
LOG = "log shard 0"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FAILURE, "internal error; see the server log"),
        (LogFull(shard=0, reason="no space"), LOG),
        (LogFailed(shard=0, reason="sync"), LOG),
        (TopicNotFound("mine.t"), "mine.t"),
    ],
)
def test_a_key_limited_to_prefixes_hears_no_names_of_a_failure(
    error: TopicsError, text: str
) -> None:
    assert text in str(as_told(error, is_limited=True))
    assert as_told(error, is_limited=False) is error
