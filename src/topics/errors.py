"""Every error this package raises on purpose, in one tree.

    TopicsError
      InvalidRequest  BatchTooLarge  RecordTooLarge  PayloadTooLarge  UnsupportedMediaType
      Unauthorized  Forbidden  MethodNotAllowed  NotAcceptable
      TopicNotFound  RouterNotFound  NotFound
      RouterCycle  TopicNotEmpty  NotAQueue  HeadMismatch  StaleEpoch
      TopicExistsIncompatible
        TopicExists     it was to be created with other settings than it has
      TopicFull  Throttled
      Internal          the log or the program failed
        LogFull         a log shard has no room on disk; heals by itself
        LogFailed       a log shard stopped writing until restart
      NotReady  ShuttingDown
      Unreachable       no server answered
        Untrusted       TLS failed; trying again does not help
      RefusedToOpen     the directory cannot be opened safely; nothing was changed
        DirectoryLocked another process has it open
      ObjectStoreFailed a backup's destination could not be used
      InvalidSetting    a server setting makes no sense; nothing was started
      Closed  ForkedChild  ReadOnly
      Interrupted       a signal handler raised in a call, and memory holds half of it

An error carries facts: a stable `code`, a message that says what to do, and `detail`, the
machine-readable part with exactly the fields the HTTP API documents (None when it has none).
Status codes and headers belong to the HTTP layer and must not appear here.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Self, get_args

import msgspec

Detail = dict[str, Any]

CAP_RETRY_AFTER_MS = 1000
"""How long to wait after hitting a resource cap; when room appears is unknown."""

_SHOWN_CHARS = 200
"""Of text that a client sent, in a message."""

_NAME_CHARS = 300
"""Of a name in a message or in `detail`: every valid one is shorter."""


def shortened(name: str) -> str:
    """A name that a caller gave, to be shown; one of many megabytes is no name and is cut."""
    return name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}..."


RefusalReason = Literal[
    "format",
    "metadata_lost",
    "wal_short",
    "wal_corrupt",
    "wal_missing",
    "foreign_frame",
    "seq_gap",
    "segment_missing",
    "cold_missing",
    "io_error",
    "locked",
]
REFUSAL_REASONS: frozenset[str] = frozenset(get_args(RefusalReason))


class TopicsError(Exception):
    """Base of the tree: catch this to catch everything raised here on purpose."""

    code: str = "error"
    detail: Detail | None

    def __init__(self, message: str, *, detail: Detail | None = None) -> None:
        super().__init__(message)
        self.detail = detail

    @classmethod
    def _made(cls, message: str, detail: Detail | None) -> Self:
        """An instance without its constructor: for parts already worded elsewhere."""
        error = cls.__new__(cls, message)
        error.detail = detail
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the constructor with the message alone, and most
        # constructors want facts instead.
        return _unpickle, (type(self), self.args, dict(self.__dict__))


def _unpickle(cls: type[TopicsError], args: tuple[Any, ...], state: dict[str, Any]) -> TopicsError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


# What the caller sent


class InvalidRequest(TopicsError):
    """The call is malformed; repeating it unchanged cannot work."""

    code = "invalid_request"

    def __init__(self, message: str, *, dead_letter: str | None = None) -> None:
        detail = None if dead_letter is None else {"dead_letter": shortened(dead_letter)}
        super().__init__(message, detail=detail)


class MisspeltField(InvalidRequest):
    """A field or query parameter is almost a known one, and ignoring it could do harm."""

    def __init__(self, field: str, *, did_you_mean: str, thing: str = "field") -> None:
        field = shortened(field)
        super().__init__(
            f"unknown {thing} {field!r}; did you mean {did_you_mean!r}? "
            f"Nothing was done; correct the name, or begin it with x_ if you mean another {thing}"
        )
        self.detail = {"field": field, "did_you_mean": did_you_mean}


class BatchTooLarge(TopicsError):
    """Too many records in one write, or too many seqs in one queue call."""

    code = "batch_too_large"

    def __init__(
        self, *, maximum: int, records: int | None = None, seqs: int | None = None
    ) -> None:
        assert (records is None) != (seqs is None), "name either records or seqs"
        if seqs is None:
            super().__init__(
                f"the write has {records} records, at most {maximum} are allowed; "
                "split it into several writes"
            )
        else:
            super().__init__(
                f"the call names {seqs} seqs, at most {maximum} are allowed; "
                "split it into several calls",
                detail={"seqs": seqs, "max": maximum},
            )


class RecordTooLarge(TopicsError):
    """A record is over the size limit, or a write can never fit its topic."""

    code = "record_too_large"

    def __init__(self, *, size_bytes: int, max_bytes: int, index: int | None = None) -> None:
        which = "the record" if index is None else f"record {index} of the write"
        super().__init__(
            f"{which} has {size_bytes} bytes of data and meta, at most {max_bytes} are "
            "allowed; store the payload elsewhere and send a reference"
        )

    @classmethod
    def for_cap(
        cls, topic: str, *, cap: Literal["cap_records", "cap_bytes"], size: int, maximum: int
    ) -> Self:
        """The write alone exceeds the whole cap of a topic that refuses to evict."""
        return cls._made(
            f'the write ({size}) is larger than the whole {cap} ({maximum}) of topic "{topic}", '
            "which never evicts; split it or raise the cap",
            None,
        )


class PayloadTooLarge(TopicsError):
    """The request body is over the limit, before or after decompression."""

    code = "payload_too_large"

    def __init__(self, *, max_bytes: int) -> None:
        super().__init__(
            f"the request body is larger than {max_bytes} bytes; send it in smaller parts"
        )


class UnsupportedMediaType(TopicsError):
    """The body is not declared as something the server reads."""

    code = "unsupported_media_type"

    def __init__(
        self, *, content_type: str | None = None, content_coding: str | None = None
    ) -> None:
        if content_coding is not None:
            super().__init__(
                f'content coding "{content_coding}" is not supported; send gzip or no coding'
            )
        else:
            got = "none was sent" if content_type is None else f'got "{content_type}"'
            super().__init__(f"the body needs Content-Type: application/json, {got}")


# Who may do what


class Unauthorized(TopicsError):
    """No key, an unknown key, or not the key a stream is bound to."""

    code = "unauthorized"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(
            message or "a valid API key is required; send it as Authorization: Bearer <key>"
        )

    @classmethod
    def missing(cls) -> "Unauthorized":
        """No key came with the request."""
        return cls("an API key is required; send it as Authorization: Bearer <key>")

    @classmethod
    def unknown(cls) -> "Unauthorized":
        """A key came, and it is none of the server's."""
        return cls("the server does not know this API key; check that it is whole and current")


class Forbidden(TopicsError):
    """The key is known but lacks a scope or may not use a name.

    `name` is a name of the path and stays out of `detail`; `topic` is one the body
    named, so the caller learns which of several was refused. `app` is a staging app.
    """

    code = "forbidden"

    def __init__(
        self,
        *,
        scope: str | None = None,
        name: str | None = None,
        topic: str | None = None,
        app: str | None = None,
    ) -> None:
        if app is not None:
            super().__init__(
                f'the staging app "{app}" belongs to another API key, or its name does not begin '
                "with a prefix of this one; use the key that began it, or another app",
                detail={"app": app},
            )
            return
        topic = None if topic is None else shortened(topic)
        shown = topic if topic is not None else name
        subject = "" if shown is None else f' for "{shown}"'
        if scope is not None:
            message = f"the API key lacks the {scope} scope this call needs{subject}"
        else:
            message = f"the name prefixes of the API key do not allow this call{subject}"
        detail = None if topic is None else {"topic": topic}
        super().__init__(f"{message}; use another key", detail=detail)

    @classmethod
    def foreign_host(cls, host: str) -> Self:
        """Without keys a server answers only to names that no web page can make its own."""
        return cls._made(
            f'this server has no API keys and does not answer to the host "{host[:_SHOWN_CHARS]}"; '
            "use localhost or an IP address, list the host in TOPICS_ALLOWED_HOSTS, "
            "or set TOPICS_API_KEYS",
            {"reason": "foreign_host"},
        )

    @classmethod
    def foreign_origin(cls, origin: str | None) -> Self:
        """A web page of another origin asks, and that origin is not listed."""
        page = "of another site" if origin is None else f'of the origin "{origin[:_SHOWN_CHARS]}"'
        return cls._made(
            f"this server does not answer web pages {page}; "
            "list the origin in TOPICS_CORS_ORIGINS to allow it",
            {"reason": "foreign_origin"},
        )


class MethodNotAllowed(TopicsError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"

    def __init__(self, method: str, *, path: str, allowed: Sequence[str] = ()) -> None:
        hint = f"; use {' or '.join(allowed)}" if allowed else ""
        super().__init__(f"{method} is not allowed on {path}{hint}")
        self.allowed = tuple(allowed)


class NotAcceptable(TopicsError):
    """The server cannot answer in any type the caller accepts."""

    code = "not_acceptable"

    def __init__(self, accept: str, *, offered: str) -> None:
        super().__init__(f'cannot answer with "{accept}"; accept {offered}')


# What is not there


class TopicNotFound(TopicsError):
    """The topic does not exist and this call does not create it."""

    code = "topic_not_found"

    def __init__(self, topic: str, *, so: str = "create it or write to it first") -> None:
        super().__init__(f'topic "{topic}" does not exist; {so}', detail={"topic": topic})


class RouterNotFound(TopicsError):
    """The router does not exist."""

    code = "router_not_found"

    def __init__(self, router: str) -> None:
        super().__init__(
            f'router "{router}" does not exist; create it first', detail={"router": router}
        )


class NotFound(TopicsError):
    """Anything else that is absent: a path, a watch session, a cursor, a stage."""

    code = "not_found"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} does not exist")


# What the present state does not allow


class RouterCycle(TopicsError):
    """The router would send records back to where they came from."""

    code = "router_cycle"

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__(
            f"the router would close the cycle {' -> '.join(cycle)}; "
            "remove one of these routers or set allow_cycle",
            detail={"cycle": list(cycle)},
        )

    def without(self, hides: Callable[[str], bool]) -> Self:
        """The same for a caller who may not know some of the topics."""
        cycle = (self.detail or {}).get("cycle", [])
        shown = [topic for topic in cycle if not hides(topic)]
        if len(shown) == len(cycle):
            return self
        return self._made(
            f"the router would close a cycle through {' -> '.join(shown)} and topics that the API "
            "key may not use; choose other topics or set allow_cycle",
            {"cycle": shown},
        )


class TopicExistsIncompatible(TopicsError):
    """The topic or router that exists contradicts what is asked."""

    code = "topic_exists_incompatible"

    @classmethod
    def type_change(cls, topic: str, *, existing_type: str, requested_type: str) -> Self:
        """A topic never changes its type."""
        return cls._made(
            f'topic "{topic}" is a {existing_type} and cannot become a {requested_type}; '
            f'repeat "type":"{existing_type}" or use another name',
            {
                "topic": topic,
                "existing_type": existing_type,
                "requested_type": requested_type,
            },
        )

    @classmethod
    def fan_in(cls, topic: str) -> Self:
        """A topic takes forwarded records from one source only."""
        return cls._made(
            f'topic "{topic}" already receives records from another source; '
            "route into another topic",
            {"topic": topic, "reason": "router_dest_fan_in"},
        )

    @classmethod
    def repoint(cls, router: str, *, existing_source: str, existing_dest: str) -> Self:
        """A router keeps its source and dest for life."""
        return cls._made(
            f'router "{router}" goes from "{existing_source}" to "{existing_dest}" and cannot '
            "be re-pointed; delete it first or use another name",
            {
                "router": router,
                "reason": "router_repoint_forbidden",
                "existing_source": existing_source,
                "existing_dest": existing_dest,
            },
        )

    @classmethod
    def repoint_unseen(cls, router: str) -> Self:
        """The same for a caller who may not know the topics it joins."""
        return cls._made(
            f'router "{router}" joins other topics, which the API key may not use, and cannot be '
            "re-pointed; use another name",
            {"router": router, "reason": "router_repoint_forbidden"},
        )


class TopicExists(TopicExistsIncompatible):
    """A topic was to be created that exists with other settings; nothing was changed.

    `differences` maps each setting that was named to what it is and what was asked for.
    """

    def __init__(self, topic: str, differences: Mapping[str, tuple[Any, Any]]) -> None:
        self.differences = dict(differences)
        pairs = self.differences.items()
        shown = ", ".join(f"{name}: {_shown(was)} -> {_shown(now)}" for name, (was, now) in pairs)
        super().__init__(
            f'topic "{topic}" exists with other settings ({shown}); leave them out to use it as '
            "it is, or change them with `configure` (`topics config`)",
            detail={
                "topic": topic,
                "differences": {name: {"is": was, "asked": now} for name, (was, now) in pairs},
            },
        )


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()


class TopicNotEmpty(TopicsError):
    """The topic was to be dropped only if it held no records."""

    code = "topic_not_empty"

    def __init__(self, topic: str, *, count: int) -> None:
        super().__init__(
            f'topic "{topic}" still holds {count} records; '
            "delete them first or drop it without if_empty",
            detail={"topic": topic, "count": count},
        )


class NotAQueue(TopicsError):
    """Claim, ack, nack and extend need a topic of type queue."""

    code = "not_a_queue"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f'topic "{topic}" is a log, not a queue; create a topic with "type":"queue"',
            detail={"topic": topic},
        )


class HeadMismatch(TopicsError):
    """Another writer appended since the caller looked; nothing was written."""

    code = "head_mismatch"

    def __init__(self, topic: str, *, expected: int, head_seq: int) -> None:
        super().__init__(
            f'topic "{topic}" is at seq {head_seq}, not at the expected {expected}; '
            "read up to its head and decide again",
            detail={"topic": topic, "expected": expected, "head_seq": head_seq},
        )


class StaleEpoch(TopicsError):
    """A stage or commit below the epoch its app has already committed."""

    code = "stale_epoch"

    def __init__(self, app: str, *, epoch: int, last_epoch: int) -> None:
        super().__init__(
            f'app "{app}" has already committed epoch {last_epoch}, epoch {epoch} comes too '
            "late; continue after the last one",
            detail={"app": app, "epoch": epoch, "last_epoch": last_epoch},
        )


class TopicFull(TopicsError):
    """The topic refuses writes at its cap instead of evicting."""

    code = "topic_full"

    def __init__(
        self, topic: str, *, cap_records: int, cap_bytes: int, head_seq: int, earliest_seq: int
    ) -> None:
        super().__init__(
            f'topic "{topic}" is full and never evicts; delete records, raise its cap or '
            "wait for a consumer",
            detail={
                "topic": topic,
                "cap_records": cap_records,
                "cap_bytes": cap_bytes,
                "head_seq": head_seq,
                "earliest_seq": earliest_seq,
            },
        )


class Throttled(TopicsError):
    """A resource cap was hit; `backlog` when the log cannot keep up."""

    code = "throttled"

    def __init__(
        self, limit: str, *, maximum: int, retry_after_ms: int = CAP_RETRY_AFTER_MS
    ) -> None:
        super().__init__(
            f"the limit {limit} of {maximum} is reached; free some or try again later",
            detail={"limit": limit, "max": maximum, "retry_after_ms": retry_after_ms},
        )

    @classmethod
    def backlog(cls, *, pressure: float, retry_after_ms: int) -> Self:
        """The log queue is full: the call left no trace and may simply be repeated."""
        return cls._made(
            f"the log cannot keep up; nothing was written, try again in {retry_after_ms} ms",
            {"reason": "backlog", "pressure": pressure, "retry_after_ms": retry_after_ms},
        )

    @property
    def retry_after_ms(self) -> int:
        """When a repeat is worth trying."""
        wait = (self.detail or {}).get("retry_after_ms", CAP_RETRY_AFTER_MS)
        assert isinstance(wait, int)
        return wait


# What the service or the disk cannot do now


class Internal(TopicsError):
    """A bug, or the log could not be written. The caller's data may or may not be stored."""

    code = "internal"

    def __init__(self, message: str = "internal error; see the server log") -> None:
        super().__init__(message)


class LogFull(Internal):
    """A log shard has no room on disk; it writes again by itself once there is some.

    Nothing of the refused call was stored.
    """

    def __init__(self, *, shard: int, reason: str, needed_bytes: int = 0) -> None:
        needed = f"it needs {needed_bytes:,} bytes of room" if needed_bytes else reason
        super().__init__(
            f"log shard {shard} cannot write, the disk is full ({needed}); "
            "free space, writes then resume by themselves"
        )
        self.detail = {"reason": "disk_full", "shard": shard, "needed_bytes": needed_bytes}

    @property
    def needed_bytes(self) -> int:
        """How much room the log wants before it takes writes again; 0 when that is not known."""
        return int((self.detail or {}).get("needed_bytes", 0))


class LogFailed(Internal):
    """A log shard failed to write or sync; it must not write again before a restart."""

    def __init__(self, *, shard: int, reason: str) -> None:
        super().__init__(
            f"log shard {shard} failed ({reason}) and takes no writes until restart; "
            "check the disk, then open the directory again"
        )
        self.detail = {"reason": "wal_failed", "shard": shard}


class NotReady(TopicsError):
    """Recovery still runs; `shard` when a log shard cannot write."""

    code = "not_ready"

    def __init__(self, *, replay_progress: float) -> None:
        super().__init__(
            f"recovery is {replay_progress:.0%} done; try again in a second",
            detail={"replay_progress": replay_progress},
        )

    @classmethod
    def shard(cls, reason: Literal["disk_full", "wal_failed"]) -> Self:
        """Reads go on, but writes of some topics fail."""
        remedy = "free disk space" if reason == "disk_full" else "check the disk and restart"
        return cls._made(f"a log shard cannot write ({reason}); {remedy}", {"reason": reason})


class ShuttingDown(TopicsError):
    """The server finishes what runs and takes nothing new."""

    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("the server is shutting down; try again once it is back")


class Unreachable(TopicsError):
    """No answer came from the server.

    `sent` says whether the whole request had left: if so, the server may have carried it out.
    """

    code = "unreachable"

    remedy = "Check that the server runs and that the address is right"

    def __init__(self, url: str, *, reason: str, sent: bool = False) -> None:
        outcome = "the call may have been carried out" if sent else "the call was not carried out"
        self.cause = f"no answer from {url}: {reason}"
        super().__init__(f"{self.cause}; {outcome}. {self.remedy}")
        self.url = url
        self.sent = sent


class Untrusted(Unreachable):
    """TLS failed: the certificate is not trusted, or the port does not speak TLS.

    The same connection fails again, so a call is not repeated after this error.
    """

    remedy = (
        "Check that the address is right and that the port speaks TLS; if an authority of your own "
        "made the certificate, name the file with its certificates (ca_file; in Spark caFile)"
    )


# Opening and holding a data directory


class ObjectStoreFailed(TopicsError):
    """A destination of objects, a directory or an object store, could not be used.

    `retryable` says whether the same call may work later; `denied` that access was refused.
    """

    code = "object_store"

    def __init__(
        self, url: str, *, doing: str, reason: str, retryable: bool, denied: bool = False
    ) -> None:
        if denied:
            remedy = "check the credentials and what they allow"
        elif retryable:
            remedy = "try again"
        else:
            remedy = "check the address and its settings"
        super().__init__(f"{url}: cannot {doing}: {reason}; {remedy}")
        self.url = url
        self.retryable = retryable
        self.denied = denied


class RefusedToOpen(TopicsError):
    """The directory cannot be opened without risk to data; nothing in it was changed."""

    code = "refused"

    def __init__(
        self, reason: RefusalReason, *, message: str, file: str, offset: int | None = None
    ) -> None:
        super().__init__(message, detail={"refused": reason, "file": file, "offset": offset})
        self.reason = reason
        self.file = file
        self.offset = offset

    def line(self) -> str:
        """The last line a refusing process prints, as JSON for a supervisor."""
        return msgspec.json.encode(
            {
                "refused": self.reason,
                "file": self.file,
                "offset": self.offset,
                "message": str(self),
            }
        ).decode()


class DirectoryLocked(RefusedToOpen):
    """Another process holds the directory; facts come from its lock file, if readable."""

    code = "locked"

    def __init__(
        self,
        file: str,
        *,
        pid: int | None = None,
        host: str | None = None,
        since_ms: int | None = None,
    ) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        where = "" if host is None else f" on {host}"
        since = "" if since_ms is None else f" since {_moment(since_ms)}"
        super().__init__(
            "locked",
            message=(
                f"{holder}{where} has this directory open{since}; "
                "close it there, or open it read-only"
            ),
            file=file,
        )
        self.pid = pid
        self.host = host
        self.since_ms = since_ms


def _moment(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):  # no year that a date can show
        return f"{ms} ms after 1970"


class InvalidSetting(TopicsError):
    """A setting cannot be used; a start that guessed instead would surprise later."""

    code = "invalid_setting"

    def __init__(self, setting: str, *, allowed: str, got: str) -> None:
        """`got` is shown as it is: the value quoted, or only what a secret lets be said of it."""
        super().__init__(f"{setting} must be {allowed}; got {got}")
        self.setting = setting


class Closed(TopicsError):
    """The log was closed; a closed log cannot be used again."""

    code = "closed"

    def __init__(self, message: str = "the log is closed; open it again") -> None:
        super().__init__(message)


class ForkedChild(TopicsError):
    """This process is a fork of the one that opened the log and must not write to it."""

    code = "forked"

    def __init__(self) -> None:
        super().__init__(
            "the log was opened before this process was forked; open it in the parent only, "
            "or reach it through a server"
        )


class ReadOnly(TopicsError):
    """The log was opened for reading."""

    code = "read_only"

    def __init__(self, action: str = "write") -> None:
        super().__init__(f"cannot {action}: the log is open read-only; open it without read_only")


class Interrupted(TopicsError):
    """An exception came in the middle of a call, and the log cannot go on from there."""

    code = "log_interrupted"

    @classmethod
    def in_memory(cls) -> Self:
        """A log in memory has nothing to recover from."""
        return cls(
            "an earlier call was interrupted while it changed this log, and a log in memory "
            "cannot be recovered; close it and open another"
        )

    @classmethod
    def nested(cls) -> Self:
        """A signal handler, or a finalizer, ran inside a call and called the same log."""
        return cls(
            "another call of this thread is in the middle of changing this log; a signal handler "
            "or a finalizer cannot call it: note what happened and call the log later"
        )


_BY_CODE: Mapping[str, type[TopicsError]] = {
    cls.code: cls
    for cls in (
        InvalidRequest,
        BatchTooLarge,
        RecordTooLarge,
        PayloadTooLarge,
        UnsupportedMediaType,
        Unauthorized,
        Forbidden,
        MethodNotAllowed,
        NotAcceptable,
        TopicNotFound,
        RouterNotFound,
        NotFound,
        RouterCycle,
        TopicExistsIncompatible,
        TopicNotEmpty,
        NotAQueue,
        HeadMismatch,
        StaleEpoch,
        TopicFull,
        Throttled,
        Internal,
        NotReady,
        ShuttingDown,
        Unreachable,
        RefusedToOpen,
        DirectoryLocked,
        ObjectStoreFailed,
        InvalidSetting,
        Closed,
        ForkedChild,
        ReadOnly,
        Interrupted,
    )
}


_BY_REASON: Mapping[object, type[Internal]] = {"disk_full": LogFull, "wal_failed": LogFailed}


def error_for(code: str) -> type[TopicsError]:
    """The class that stands for `code`; the base for a code this version does not know."""
    return _BY_CODE.get(code, TopicsError)


def from_wire(code: str, message: str, detail: Detail | None = None) -> TopicsError:
    """The error a server reported, as the class the engine itself would have raised.

    An unknown code keeps its spelling, so that a newer server stays understandable.
    """
    cls = error_for(code)
    if cls is Internal and detail is not None:
        cls = _BY_REASON.get(detail.get("reason", ""), Internal)
    error = cls._made(message, detail)
    if error.code != code:
        error.code = code
    return error
