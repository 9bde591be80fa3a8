"""`topics inspect`, `verify` and `dump`: a data directory from the outside, without a lock."""

from __future__ import annotations

import os
import sys

import click

from topics.cli._options import as_json_option
from topics.cli._types import SEQ
from topics.errors import NotFound

_PAGE_RECORDS = 1000

_directory = click.argument("directory", type=click.Path())
_cold_dir = click.option(
    "--cold-dir",
    type=click.Path(),
    envvar="TOPICS_COLD_DIR",
    help="Cold directory of the log, if it has one (TOPICS_COLD_DIR).",
)


@click.command()
@_directory
@click.argument("topic", required=False)
@_cold_dir
@as_json_option
def inspect(directory: str, topic: str | None, cold_dir: str | None, as_json: bool) -> int:
    """Show what is in DIRECTORY, or in one TOPIC of it, and what opening it would do.

    Reads only; a program that has the directory open is not disturbed.
    """
    from topics.cli import _inspect  # noqa: PLC0415 - the engine takes a while to import

    return _inspect.run(_existing(directory), topic, cold_dir=cold_dir, as_json=as_json)


@click.command()
@_directory
@_cold_dir
@as_json_option
def verify(directory: str, cold_dir: str | None, as_json: bool) -> int:
    """Check every byte of DIRECTORY that is under a checksum, and whether all of it fits together.

    Exits with 1 when anything is wrong, naming file, offset and seq. Reads only.
    """
    from topics.cli import _verify  # noqa: PLC0415

    return _verify.run(_existing(directory), cold_dir=cold_dir, as_json=as_json)


@click.command()
@_directory
@click.argument("topic")
@click.option("--after", type=SEQ, default=0, help="Start after this seq.")
@click.option("--limit", type=click.IntRange(min=0), help="Largest number of records.")
@_cold_dir
@click.option(
    "--json", "as_json", is_flag=True, help="Accepted for uniformity: the output is JSON anyway."
)
def dump(
    directory: str,
    topic: str,
    *,
    after: int,
    limit: int | None,
    cold_dir: str | None,
    as_json: bool,
) -> int:
    """Write the records of TOPIC as JSON lines, loss among them as {"tombstone": ...}.

    Reads only; stops quietly when its output is closed.
    """
    _dump(_existing(directory), topic, after=after, limit=limit, cold_dir=cold_dir)
    return 0


def _existing(directory: str) -> str:
    where = os.path.abspath(directory)
    if not os.path.exists(where):
        raise NotFound(f"the directory {where}")
    return where


def _dump(
    directory: str, topic: str, *, after: int, limit: int | None, cold_dir: str | None
) -> None:
    """Print until the topic's end as it was when the command began, or until `limit`."""
    import msgspec  # noqa: PLC0415

    import topics  # noqa: PLC0415
    from topics.cli._output import stored_json  # noqa: PLC0415
    from topics.wire.rendering import EVERYTHING, render_records, rows_of  # noqa: PLC0415

    left = limit
    out = sys.stdout.buffer
    with topics.open(directory, read_only=True, cold_dir=cold_dir) as log:
        while left is None or left > 0:
            wanted = _PAGE_RECORDS if left is None else min(left, _PAGE_RECORDS)
            page = log.read(topic, after=after, limit=wanted)
            if page.tombstone is not None:
                out.write(msgspec.json.encode({"tombstone": page.tombstone.to_dict()}) + b"\n")
            for row in rows_of(page.records):
                line = render_records([row], EVERYTHING)[1:-1]
                out.write(stored_json(line.decode()).encode() + b"\n")
            if left is not None:
                left -= len(page.records)
            after = page.next_from_seq
            if page.caught_up:
                break
        else:
            log.state(topic)  # a limit of 0 still tells whether the topic exists
