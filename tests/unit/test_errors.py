import json
import pickle
from collections.abc import Iterator

import pytest

from topics import errors
from topics.errors import (
    BatchTooLarge,
    Closed,
    DirectoryLocked,
    Forbidden,
    ForkedChild,
    HeadMismatch,
    Internal,
    Interrupted,
    InvalidRequest,
    InvalidSetting,
    LogFailed,
    LogFull,
    MethodNotAllowed,
    MisspeltField,
    NotAcceptable,
    NotAQueue,
    NotFound,
    NotReady,
    ObjectStoreFailed,
    PayloadTooLarge,
    ReadOnly,
    RecordTooLarge,
    RefusedToOpen,
    RouterCycle,
    RouterNotFound,
    ShuttingDown,
    StaleEpoch,
    Throttled,
    TopicExists,
    TopicExistsIncompatible,
    TopicFull,
    TopicNotEmpty,
    TopicNotFound,
    TopicsError,
    Unauthorized,
    Unreachable,
    UnsupportedMediaType,
    Untrusted,
    error_for,
    from_wire,
)

# Every way to build an error, with the code and the detail a caller must see.
EXAMPLES: list[tuple[TopicsError, str, dict[str, object] | None]] = [
    (InvalidRequest("tag is too long"), "invalid_request", None),
    (InvalidRequest("bad name", dead_letter=".x"), "invalid_request", {"dead_letter": ".x"}),
    (
        MisspeltField("mtach", did_you_mean="match"),
        "invalid_request",
        {"field": "mtach", "did_you_mean": "match"},
    ),
    (BatchTooLarge(records=10001, maximum=10000), "batch_too_large", None),
    (BatchTooLarge(seqs=1001, maximum=1000), "batch_too_large", {"seqs": 1001, "max": 1000}),
    (RecordTooLarge(size_bytes=9, max_bytes=8), "record_too_large", None),
    (RecordTooLarge(size_bytes=9, max_bytes=8, index=3), "record_too_large", None),
    (
        RecordTooLarge.for_cap("t", cap="cap_bytes", size=9, maximum=8),
        "record_too_large",
        None,
    ),
    (PayloadTooLarge(max_bytes=67108864), "payload_too_large", None),
    (UnsupportedMediaType(), "unsupported_media_type", None),
    (UnsupportedMediaType(content_type="text/plain"), "unsupported_media_type", None),
    (UnsupportedMediaType(content_coding="br"), "unsupported_media_type", None),
    (Unauthorized(), "unauthorized", None),
    (Forbidden(scope="write"), "forbidden", None),
    (Forbidden(name="other.topic"), "forbidden", None),
    (Forbidden(topic="other.topic"), "forbidden", {"topic": "other.topic"}),
    (Forbidden(scope="admin", topic="new"), "forbidden", {"topic": "new"}),
    (MethodNotAllowed("PUT", path="/v0/x", allowed=["POST"]), "method_not_allowed", None),
    (MethodNotAllowed("PUT", path="/v0/x"), "method_not_allowed", None),
    (NotAcceptable("text/html", offered="text/event-stream"), "not_acceptable", None),
    (TopicNotFound("greenhouse"), "topic_not_found", {"topic": "greenhouse"}),
    (RouterNotFound("a->b"), "router_not_found", {"router": "a->b"}),
    (NotFound("path /v0/nope"), "not_found", None),
    (RouterCycle(["a", "b", "a"]), "router_cycle", {"cycle": ["a", "b", "a"]}),
    (
        TopicExistsIncompatible.type_change("t", existing_type="queue", requested_type="log"),
        "topic_exists_incompatible",
        {"topic": "t", "existing_type": "queue", "requested_type": "log"},
    ),
    (
        TopicExists("t", {"ttl_ms": (0, 5)}),
        "topic_exists_incompatible",
        {"topic": "t", "differences": {"ttl_ms": {"is": 0, "asked": 5}}},
    ),
    (
        TopicExistsIncompatible.fan_in("t"),
        "topic_exists_incompatible",
        {"topic": "t", "reason": "router_dest_fan_in"},
    ),
    (
        TopicExistsIncompatible.repoint_unseen("r"),
        "topic_exists_incompatible",
        {"router": "r", "reason": "router_repoint_forbidden"},
    ),
    (
        RouterCycle(["a", "b", "a"]).without(lambda topic: topic == "b"),
        "router_cycle",
        {"cycle": ["a", "a"]},
    ),
    (
        TopicExistsIncompatible.repoint("r", existing_source="a", existing_dest="b"),
        "topic_exists_incompatible",
        {
            "router": "r",
            "reason": "router_repoint_forbidden",
            "existing_source": "a",
            "existing_dest": "b",
        },
    ),
    (TopicNotEmpty("t", count=3), "topic_not_empty", {"topic": "t", "count": 3}),
    (NotAQueue("t"), "not_a_queue", {"topic": "t"}),
    (
        HeadMismatch("t", expected=4, head_seq=7),
        "head_mismatch",
        {"topic": "t", "expected": 4, "head_seq": 7},
    ),
    (
        StaleEpoch("etl", epoch=2, last_epoch=5),
        "stale_epoch",
        {"app": "etl", "epoch": 2, "last_epoch": 5},
    ),
    (
        TopicFull("t", cap_records=3, cap_bytes=0, head_seq=9, earliest_seq=7),
        "topic_full",
        {"topic": "t", "cap_records": 3, "cap_bytes": 0, "head_seq": 9, "earliest_seq": 7},
    ),
    (
        Throttled("max_topics", maximum=10),
        "throttled",
        {"limit": "max_topics", "max": 10, "retry_after_ms": 1000},
    ),
    (
        Throttled.backlog(pressure=1.0, retry_after_ms=250),
        "throttled",
        {"reason": "backlog", "pressure": 1.0, "retry_after_ms": 250},
    ),
    (Internal(), "internal", None),
    (
        LogFull(shard=1, reason="ENOSPC"),
        "internal",
        {"reason": "disk_full", "shard": 1, "needed_bytes": 0},
    ),
    (LogFailed(shard=1, reason="EIO"), "internal", {"reason": "wal_failed", "shard": 1}),
    (NotReady(replay_progress=0.25), "not_ready", {"replay_progress": 0.25}),
    (NotReady.shard("disk_full"), "not_ready", {"reason": "disk_full"}),
    (NotReady.shard("wal_failed"), "not_ready", {"reason": "wal_failed"}),
    (ShuttingDown(), "shutting_down", None),
    (Unreachable("http://h:1", reason="connection refused"), "unreachable", None),
    (Unreachable("http://h:1", reason="time-out", sent=True), "unreachable", None),
    (Untrusted("https://h:1", reason="self-signed certificate"), "unreachable", None),
    (
        RefusedToOpen("wal_corrupt", message="frame is rotten", file="wal/1", offset=64),
        "refused",
        {"refused": "wal_corrupt", "file": "wal/1", "offset": 64},
    ),
    (
        DirectoryLocked("d/.topics.lock", pid=42, host="box", since_ms=1_790_000_000_000),
        "locked",
        {"refused": "locked", "file": "d/.topics.lock", "offset": None},
    ),
    (
        DirectoryLocked("d/.topics.lock"),
        "locked",
        {"refused": "locked", "file": "d/.topics.lock", "offset": None},
    ),
    (
        ObjectStoreFailed("s3://b/p", doing="write a", reason="it is slow", retryable=True),
        "object_store",
        None,
    ),
    (InvalidSetting("TOPICS_PORT", allowed="a port", got="'x'"), "invalid_setting", None),
    (Closed(), "closed", None),
    (ForkedChild(), "forked", None),
    (ReadOnly("delete records"), "read_only", None),
    (Interrupted.in_memory(), "log_interrupted", None),
    (Interrupted.nested(), "log_interrupted", None),
]


def every_class() -> Iterator[type[TopicsError]]:
    """The public tree; the engine keeps a few finer ones to itself."""
    pending = [TopicsError]
    while pending:
        found = pending.pop().__subclasses__()
        pending += found
        yield from (kind for kind in found if kind.__module__ == "topics.errors")


@pytest.mark.parametrize(("error", "code", "detail"), EXAMPLES)
def test_an_error_carries_its_code_detail_and_a_message(
    error: TopicsError, code: str, detail: dict[str, object] | None
) -> None:
    assert error.code == code
    assert error.detail == detail
    assert str(error).strip()


@pytest.mark.parametrize("error", [example[0] for example in EXAMPLES])
def test_an_error_survives_pickling_whole(error: TopicsError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.code == error.code
    assert vars(copy) == vars(error)


def test_every_class_has_an_example() -> None:
    assert {type(error) for error, _, _ in EXAMPLES} == set(every_class())


def test_every_code_leads_to_the_class_that_declares_it() -> None:
    for cls in every_class():
        if "code" in vars(cls):
            assert error_for(cls.code) is cls


def test_a_failed_log_shard_is_an_internal_error_to_the_caller() -> None:
    assert error_for("internal") is Internal
    assert issubclass(LogFull, Internal)
    assert issubclass(LogFailed, Internal)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_error_read_from_the_wire_is_the_one_the_engine_raises(
    example: tuple[TopicsError, str, dict[str, object] | None],
) -> None:
    error, code, detail = example
    received = from_wire(code, str(error), detail)
    assert isinstance(error, type(received))
    assert (str(received), received.code, received.detail) == (str(error), code, detail)


def test_a_code_of_a_newer_server_is_kept_as_spelled() -> None:
    received = from_wire("quantum_flux", "too much flux", {"flux": 3})
    assert type(received) is TopicsError
    assert received.code == "quantum_flux"
    assert pickle.loads(pickle.dumps(received)).code == "quantum_flux"
    assert TopicsError.code == "error"


def test_a_batch_names_either_records_or_seqs() -> None:
    with pytest.raises(AssertionError):
        BatchTooLarge(maximum=1)
    with pytest.raises(AssertionError):
        BatchTooLarge(records=2, seqs=2, maximum=1)


def test_a_throttled_caller_learns_when_to_come_back() -> None:
    assert Throttled("max_topics", maximum=1).retry_after_ms == 1000
    assert Throttled.backlog(pressure=1.0, retry_after_ms=70).retry_after_ms == 70
    received = from_wire("throttled", "later")
    assert isinstance(received, Throttled)
    assert received.retry_after_ms == 1000


def test_a_locked_directory_says_who_holds_it() -> None:
    message = str(DirectoryLocked("f", pid=42, host="box", since_ms=1_790_000_000_000))
    assert "process 42 on box has this directory open since 2026-09-21 14:13:20 UTC" in message


def test_a_lock_from_an_impossible_time_is_still_an_answer() -> None:
    assert f"since {10**18} ms after 1970" in str(DirectoryLocked("f", pid=1, since_ms=10**18))


def test_a_bad_setting_is_named_with_its_value_and_what_is_allowed() -> None:
    error = InvalidSetting("TOPICS_PORT", allowed="an integer from 0 to 65535", got="'64k'")
    assert error.setting == "TOPICS_PORT"
    assert str(error) == "TOPICS_PORT must be an integer from 0 to 65535; got '64k'"


def test_a_refusal_prints_one_json_line() -> None:
    refusal = RefusedToOpen("wal_short", message='lost "bytes"\nhere', file="wal/7", offset=12)
    line = refusal.line()
    assert "\n" not in line
    assert json.loads(line) == {
        "refused": "wal_short",
        "file": "wal/7",
        "offset": 12,
        "message": 'lost "bytes"\nhere',
    }
    assert json.loads(DirectoryLocked("f").line())["refused"] == "locked"


def test_the_refusal_reasons_are_a_closed_list() -> None:
    assert len(errors.REFUSAL_REASONS) == 11
    assert {"locked", "io_error", "wal_corrupt"} <= errors.REFUSAL_REASONS


def test_a_cycle_is_told_without_the_topics_that_a_caller_may_not_know() -> None:
    whole = RouterCycle(["near.a", "far.b", "near.a"])
    assert whole.without(lambda topic: False) is whole
    shown = whole.without(lambda topic: topic.startswith("far."))
    assert isinstance(shown, RouterCycle)
    assert "far." not in str(shown)
    assert "near.a -> near.a and topics that the API key may not use" in str(shown)


def test_a_router_that_cannot_be_moved_is_told_without_its_topics() -> None:
    seen = TopicExistsIncompatible.repoint("r", existing_source="far.a", existing_dest="far.b")
    unseen = TopicExistsIncompatible.repoint_unseen("r")
    assert "far." in str(seen)
    assert 'router "r" joins other topics, which the API key may not use' in str(unseen)
