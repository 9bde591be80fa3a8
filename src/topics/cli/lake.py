"""`topics lake`: a topic as a Delta table; deletes reach it, and receipts prove erasure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from topics.cli._exit import NO, OK
from topics.cli._groups import CommandGroup
from topics.cli._options import Where, as_json_option, ask, master_option, on_a_log, yes_option
from topics.cli._output import notices, print_json, print_json_line, safe, size, style, tell
from topics.cli._types import bytes_of

if TYPE_CHECKING:
    from topics.client.targets import Target
    from topics.spark.lake.origin import SourceTopic
    from topics.spark.lake.place import TablePath
    from topics.spark.lake.syncing import SyncedEpoch
    from topics.spark.lake.upkeep import Receipt

_table = click.argument("table", metavar="TABLE")
_QUICKLY_S = 2.0
_SMALLEST_FILE = 1 << 20
say = notices("lake")


def _interval(_: click.Context, parameter: click.Parameter, text: str) -> str:
    """A time as Spark spells it; one that makes no sense is told before Spark starts."""
    from topics.spark.errors import InvalidOption  # noqa: PLC0415 - help must not wait
    from topics.spark.source.options import duration_ms  # noqa: PLC0415

    try:
        return f"{duration_ms(parameter.opts[0], text)} milliseconds"
    except InvalidOption as error:
        raise click.UsageError(str(error)) from error


def _file_size(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    found = None if text is None else bytes_of(text)
    if text is not None and (found is None or found < _SMALLEST_FILE):
        raise click.UsageError(
            f"--file-size takes a size from 1MiB on such as 128MiB; got {text!r}"
        )
    return found


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
def lake() -> None:
    """Keep a topic as a Delta table; carry deletes into it; erase, and prove it.

    TABLE is a directory or a file:// address.
    """


@lake.command(short_help="Write TOPIC to TABLE, each record once.")
@click.argument("topic")
@_table
@click.option("--once", is_flag=True, help="Sync what is there, then end.")
@click.option("--reconcile", is_flag=True, help="Check every row of the table for deletes.")
@click.option(
    "--trigger",
    default="5 seconds",
    show_default=True,
    callback=_interval,
    help="Time between epochs.",
)
@click.option("--checkpoint", metavar="DIR", help="Default: _topics_checkpoint in TABLE.")
@click.option(
    "--schema", metavar="auto|FILE", help="Fields of data as columns: seen, or as FILE declares."
)
@click.option(
    "--file-size",
    metavar="SIZE",
    callback=_file_size,
    help="How large files become, such as 128MiB; kept with TABLE.",
)
@click.option("--keep-data", is_flag=True, help="With --schema: data as text in a column, too.")
@master_option
@on_a_log
def sync(
    where: Where,
    *,
    topic: str,
    table: str,
    once: bool,
    reconcile: bool,
    trigger: str,
    checkpoint: str | None,
    schema: str | None,
    keep_data: bool,
    file_size: int | None,
    master: str,
    as_json: bool,
) -> int:
    """Write TOPIC to TABLE, each record once, and go on as the topic grows.

    What the log lost before it could be written lands in TABLE__loss. What is deleted in the topic
    leaves the table. SIGTERM and Ctrl-C let the epoch at hand finish; the next run goes on there.

    With --schema a new table has the fields of data as columns, and records that do not fit land in
    TABLE__bad with the reason. Later runs go on that way without it.
    """
    from topics.spark.jobs.ending import told_to_stop  # noqa: PLC0415 - help must not wait
    from topics.spark.jobs.session import job_session  # noqa: PLC0415
    from topics.spark.lake.place import TablePath  # noqa: PLC0415
    from topics.spark.lake.syncing import Sync, SyncTask  # noqa: PLC0415
    from topics.spark.lake.typed import TypedAs  # noqa: PLC0415

    place = TablePath.of(table)
    if keep_data and schema is None:
        raise click.UsageError("--keep-data goes with --schema")
    typed = None if schema is None else TypedAs.from_file(schema, keep_data=keep_data)
    task = SyncTask(
        topic=topic,
        place=place,
        target=_server(where.target()),
        once=once,
        reconcile=reconcile,
        trigger=trigger,
        checkpoint=checkpoint,
        typed=typed,
        file_bytes=file_size,
    )
    task.require_ready()

    def show(epoch: SyncedEpoch) -> None:
        if as_json:
            print_json_line({"table": place.name, **asdict(epoch)})
        else:
            print(f"{place.name}  {epoch.line()}", flush=True)

    run = Sync(task, report=show, notice=say)
    with (
        told_to_stop() as stopping,
        job_session(f"lake {place.name}", master, say, stopping=stopping) as spark,
    ):
        done = run.run(spark, stopping)
    if as_json:
        print_json_line({"table": place.path, "ended": asdict(done)})
    else:
        print(
            f"{place.name} ended: {done.rows:,} rows in {done.epochs} epochs, {done.deleted:,} "
            f"deleted, up to seq {done.position:,}, {done.seconds:.1f} s"
        )
    return OK


@lake.command(short_help="Delete rows of TABLE by their tag.")
@_table
@click.option(
    "--match", required=True, metavar="TAG", help="The tag; one that ends in * is a prefix."
)
@yes_option
@as_json_option
def delete(*, table: str, match: str, yes: bool, as_json: bool) -> int:
    """Delete rows of TABLE by their tag, also those that the topic has long evicted.

    This changes the table only: delete the records of the topic with `topics delete`. Then run
    `topics lake maintain`, which takes the bytes away and proves it.
    """
    from topics.spark.lake.erasing import erase_everywhere, matching  # noqa: PLC0415
    from topics.spark.lake.place import TablePath, committing  # noqa: PLC0415
    from topics.spark.lake.table import LakeTable  # noqa: PLC0415

    place = TablePath.of(table)
    topic = LakeTable.open(place).topic
    found = len(matching(place, match))
    if found and not ask(f"Delete {found:,} rows from {place.path}?", yes=yes):
        return NO
    with committing(place):
        erased = erase_everywhere(place, matching(place, match), cause="match")
    facts = {
        "table": place.path,
        "topic": topic,
        "deleted": erased.rows,
        "files": erased.files,
        "table_version": erased.version,
    }
    words = f"deleted {erased.rows:,} rows of {place.name}, {erased.files} files written anew"
    tell(facts, words, as_json=as_json)
    return OK


@lake.command(short_help="Compact TABLE, and write an erasure receipt.")
@_table
@click.option(
    "--retain", default="7d", show_default=True, help="Keep files the table let go this long."
)
@click.option("--receipt", metavar="FILE", help="Default: TABLE__receipts/<time>.json.")
@click.option("--needle-file", metavar="FILE", help="Texts to search for as well, one a line.")
@on_a_log
def maintain(
    where: Where,
    *,
    table: str,
    retain: str,
    receipt: str | None,
    needle_file: str | None,
    as_json: bool,
) -> int:
    """Compact TABLE, take away the bytes of what it let go, and write an erasure receipt.

    Every file under TABLE is then searched, Parquet decoded, for rows that were erased and for the
    texts in the needle file. Exits with 1 when anything is found.

    For a week a program that has opened TABLE can read on: what the table let go stays that long,
    and erased rows are found in it. --retain 0h takes them away at once, and breaks such readers.
    """
    from topics.spark.lake import upkeep  # noqa: PLC0415 - help must not wait
    from topics.spark.lake.place import TablePath  # noqa: PLC0415
    from topics.spark.lake.upkeep import default_path  # noqa: PLC0415

    place = TablePath.of(table)
    needles = [] if needle_file is None else upkeep.needles_of(needle_file)
    task = upkeep.Maintenance(upkeep.hours_of(retain), needles)
    with _origin(where, place) as origin:
        made = upkeep.maintain(place, task, origin=origin, say=say)
    path = receipt or default_path(place, made.started)
    made.write(path)
    if as_json:
        print_json({**made.to_dict(), "receipt": path})
    else:
        _print_receipt(made, path)
    return NO if made.found else OK


@lake.command(short_help="Tell up to where TABLE is complete.")
@_table
@as_json_option
def certify(*, table: str, as_json: bool) -> int:
    """Tell up to which seq and time TABLE is complete, and what was lost and deleted.

    The counts in TABLE's log are held against its rows. Exits with 1 if they do not agree.
    """
    from topics.spark.lake.certifying import certify as look  # noqa: PLC0415 - help must not wait
    from topics.spark.lake.place import TablePath  # noqa: PLC0415

    made = look(TablePath.of(table))
    if as_json:
        print_json(made.to_dict())
        return OK if made.ok else NO
    for each in made.epochs:
        lost = "not counted" if each.lost is None else f"{each.lost:,} lost"
        print(
            f"{made.topic} (epoch {each.epoch}): complete up to seq {each.seq:,}"
            + (f", {each.time}" if each.time else "")
        )
        print(f"  {each.rows:,} rows, {each.unfit:,} unfit, {each.deleted:,} deleted, {lost}")
        for problem in each.problems:
            print(style(f"  not complete: {problem}", "red"))
    print(f"version {made.table_version}: " + ("complete" if made.ok else "NOT COMPLETE"))
    return OK if made.ok else NO


def _server(target: Target) -> Target:
    if target.url is None:
        raise click.UsageError(
            "a lake sync needs a server, which knows what was deleted; name one with --url"
        )
    return target


@contextmanager
def _origin(where: Where, place: TablePath) -> Iterator[SourceTopic | None]:
    """The server the table is made from, if that is the one meant; the receipt asks it little."""
    from topics.spark.lake.origin import SourceTopic  # noqa: PLC0415
    from topics.spark.lake.table import ORIGIN, LakeTable  # noqa: PLC0415

    target = where.target()
    table = LakeTable.open(place)
    if target.url is None or table.settings.get(ORIGIN) != target.url:
        yield None
        return
    with SourceTopic(target, table.topic, retry_s=_QUICKLY_S) as origin:
        yield origin


def _print_receipt(made: Receipt, path: str) -> None:
    for hit in made.scanned.hits:
        print(f"FOUND {safe(str(hit))}")
    freed = sum(file.bytes for file in made.files_removed)
    searched = made.scanned
    print(f"{len(made.files_removed)} files removed, {size(freed)}")
    print(
        f"{searched.files} files searched, {size(searched.bytes)}, "
        f"{searched.decoded_rows:,} rows decoded"
    )
    print(f"{len(made.erased):,} rows erased so far, {made.found} found")
    if made.retained:
        held = sum(file.bytes for file in made.retained)
        print(
            f"{len(made.retained)} files of {size(held)} stay for readers until they were let go "
            f"{made.retain_hours} h ago; --retain 0h removes them now"
        )
    for kept in made.kept_elsewhere:
        print(safe(f"kept elsewhere: {kept.what}: {kept.where} ({kept.why})"))
    print(f"receipt: {path}")
