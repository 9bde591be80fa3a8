"""`topics produce`: lines of a file or of standard input become records."""

from __future__ import annotations

import os
import select
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from topics.cli import _output as out
from topics.cli._exit import OK
from topics.cli._options import Where, json_option, topic_argument, with_where
from topics.errors import InvalidRequest, TopicsError
from topics.values import Ack
from topics.wire.jsonbytes import compact

if TYPE_CHECKING:
    from topics.client.interface import AnyLog

Draft = Mapping[str, Any]
READ_BYTES = 1 << 16
MAX_LINE_BYTES = 64 << 20
MAX_BATCH_BYTES = 4 << 20
LINGER_SECONDS = 0.1
PROGRESS_SECONDS = 0.2


class _LinesFile(click.File):
    """The file. If a message is given in its place, the error tells how to append the message."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as in the base class
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> IO[Any]:
        if isinstance(value, str) and value != "-" and not os.path.exists(value):
            topic = "TOPIC" if ctx is None else ctx.params.get("topic", "TOPIC")
            raise click.BadParameter(
                f"there is no file {value!r}. To append that text itself: "
                f"topics produce {topic} -m {shlex.quote(value)}",
                ctx,
                param,
            )
        return super().convert(value, param, ctx)


@click.command()
@topic_argument
@click.argument("file", type=_LinesFile("rb"), default="-")
@click.option(
    "--message",
    "-m",
    "messages",
    multiple=True,
    help="Append this text instead of the lines of a file. May be repeated.",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(["text", "json", "records"]),
    default="text",
    show_default=True,
    help="What a line is: a string, any JSON, or a record with data, tag, node and meta.",
)
@click.option("--tag", help="Tag for records without a tag of their own.")
@click.option("--node", help="Node for records without a node of their own.")
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=500,
    show_default=True,
    help="Largest number of records in one write.",
)
@click.option("--no-create", is_flag=True, help="Fail if the topic does not exist.")
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show progress on standard error. Default: only on a terminal.",
)
@json_option("Print what was appended as JSON. For lines that are JSON: --as json.")
@with_where
def produce(
    where: Where,
    *,
    topic: str,
    file: IO[bytes],
    messages: tuple[str, ...],
    kind: str,
    tag: str | None,
    node: str | None,
    batch: int,
    no_create: bool,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Append the lines of FILE, or of standard input, to TOPIC: one record a line.

    `topics produce TOPIC -m hello` appends a record without any file.
    `topics read --json a | topics produce b --as records` copies a topic. Lines that arrive
    slowly are appended as they arrive. The first line that is not valid (see --as) stops the
    command. The lines before that line are appended; the error names the line and says how many.
    """
    tally = Tally(topic, shows=sys.stderr.isatty() if progress is None else progress)
    draft = {"text": _text, "json": _json, "records": _record}[kind]
    with where.writing(may_create=not no_create) as log:
        send = Sender(log, topic, node=node, create=False if no_create else None, tally=tally)
        try:
            for number, line in _chosen(file, messages):
                if line is None or send.is_full(batch):
                    send.flush()
                if line is not None and not (kind == "records" and _is_loss(line, number)):
                    send.add_line(draft, line, number, tag)
            send.flush()
        except TopicsError as error:
            tally.close()
            raise _telling(error, tally) from error
        except KeyboardInterrupt:
            tally.close()
            print(tally.words(), file=sys.stderr)
            raise
    tally.close()
    out.tell(tally.facts(), tally.words(), as_json=as_json)
    return OK


class Tally:
    """What was appended so far, and the line on standard error that says so."""

    def __init__(self, topic: str, *, shows: bool) -> None:
        self.topic = topic
        self.count = 0
        self.first: int | None = None
        self.last: int | None = None
        self.created = False
        self._shows = shows
        self._started = time.monotonic()
        self._next = 0.0

    def add(self, ack: Ack) -> None:
        self.count += ack.count
        self.first = ack.first_seq if self.first is None else self.first
        self.last = ack.last_seq
        self.created = self.created or ack.created
        now = time.monotonic()
        if self._shows and now >= self._next:
            self._next = now + PROGRESS_SECONDS
            rate = self.count / max(now - self._started, 0.001)
            print(f"\r{self.count} records, {rate:.0f}/s ", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._shows and self._next:
            print(file=sys.stderr)

    def facts(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "count": self.count,
            "first_seq": self.first,
            "last_seq": self.last,
            "created": self.created,
        }

    def words(self) -> str:
        if self.count == 0:
            return f"appended nothing to {self.topic}"
        records, seqs = out.counted(self.count, "record"), out.seqs(self.first, self.last)
        return f"appended {records} to {self.topic}, {seqs}"


class Sender:
    """Gathers records and appends them together."""

    def __init__(
        self, log: AnyLog, topic: str, *, node: str | None, create: bool | None, tally: Tally
    ) -> None:
        self._log = log
        self._topic = topic
        self._node = node
        self._create = create
        self._tally = tally
        self._batch: list[Draft] = []
        self._bytes = 0

    def add_line(
        self, draft: Callable[[bytes], Draft], line: bytes, number: int, tag: str | None
    ) -> None:
        """Take a line; one that is no record sends what came before it and raises."""
        try:
            if len(line) > MAX_LINE_BYTES:
                longest = out.size(MAX_LINE_BYTES)
                raise ValueError(f"longer than {longest}, which no record may be")
            made = draft(line)
        except (ValueError, msgspec.MsgspecError, InvalidRequest) as error:
            self.flush()
            raise InvalidRequest(f"line {number}: {error}") from None
        self._batch.append(made if tag is None or "tag" in made else {**made, "tag": tag})
        self._bytes += len(line)

    def is_full(self, most: int) -> bool:
        return len(self._batch) >= most or self._bytes >= MAX_BATCH_BYTES

    def flush(self) -> None:
        if self._batch:
            batch, self._batch, self._bytes = self._batch, [], 0
            self._tally.add(
                self._log.append(self._topic, batch, node=self._node, create=self._create)
            )


def _chosen(file: IO[bytes], messages: tuple[str, ...]) -> Iterator[tuple[int, bytes | None]]:
    """The lines of the file, or the messages, with their numbers."""
    if not messages:
        if file is sys.stdin.buffer and sys.stdin.isatty():
            print("Type records, one a line; end with Ctrl-D.", file=sys.stderr)
        return numbered(lines_of(file))
    if file is not sys.stdin.buffer:
        raise click.UsageError("Give a file or messages, not both.")
    return enumerate((message.encode() for message in messages), 1)


def lines_of(file: IO[bytes]) -> Iterator[bytes | None]:
    """Lines without their ends; None when no line came for a moment, so that records are sent."""
    try:
        number = file.fileno()
    except OSError:  # in memory, with nothing to wait for
        return (line.rstrip(b"\r\n") for line in file)
    return _patient_lines(number)


def _patient_lines(number: int) -> Iterator[bytes | None]:
    begun: list[bytes] = []  # the parts of a line whose end has not come
    size, idle = 0, False
    while size <= MAX_LINE_BYTES:
        if not idle and not select.select([number], [], [], LINGER_SECONDS)[0]:
            idle = True
            yield None
            continue
        part = os.read(number, READ_BYTES)
        idle = False
        if not part:
            break
        *whole, rest = part.split(b"\n")
        if whole:
            yield b"".join((*begun, whole[0])).removesuffix(b"\r")
            yield from (line.removesuffix(b"\r") for line in whole[1:])
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
    if size:
        yield b"".join(begun).removesuffix(b"\r")


def numbered(lines: Iterator[bytes | None]) -> Iterator[tuple[int, bytes | None]]:
    """Each line with its number, from 1; empty lines are counted and left out."""
    number = 0
    for line in lines:
        number += line is not None
        if line is None or line.strip():
            yield number, line


def _text(line: bytes) -> Draft:
    return {"data": line.decode()}


def _json(line: bytes) -> Draft:
    return {"data": compact(line)}


class _GivenLine(msgspec.Struct, omit_defaults=True):
    """A record as `topics read --json` prints it, or as the API takes it."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = msgspec.Raw()  # empty: there is none
    shown_tag: str | None = msgspec.field(default=None, name="$tag")
    shown_node: str | None = msgspec.field(default=None, name="$node")


def _record(line: bytes) -> Draft:
    given = msgspec.json.decode(line, type=_GivenLine)
    draft: dict[str, Any] = {"data": compact(bytes(given.data))}
    tag = given.tag if given.tag is not None else given.shown_tag
    node = given.node if given.node is not None else given.shown_node
    if tag is not None:
        draft["tag"] = tag
    if node is not None:
        draft["node"] = node
    if given.meta:
        draft["meta"] = compact(bytes(given.meta))
    return draft


def _is_loss(line: bytes, number: int) -> bool:
    """Whether a line announces a loss; a copy goes on without, and says so."""
    if not line.startswith(b'{"tombstone"'):
        return False
    print(f"line {number} announces a loss, which cannot be copied", file=sys.stderr)
    return True


def _telling(error: TopicsError, tally: Tally) -> TopicsError:
    """The same error, which also says what was done before it."""
    error.args = (f"{error} ({tally.words()} before that)",)
    return error
