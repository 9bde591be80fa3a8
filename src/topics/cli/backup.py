"""`topics backup` and `topics restore`: copies of a log that can be restored to any moment."""

from __future__ import annotations

import click

from topics.cli._groups import CommandGroup
from topics.cli._options import as_json_option, yes_option
from topics.cli._types import SEQ, moment_option, time_option

_destination = click.argument("destination")


class _BackupGroup(CommandGroup):
    """`topics backup DIR DEST` is short for `topics backup run DIR DEST`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_BackupGroup)
def backup() -> None:
    """Keep a copy of a log that can be restored to any moment.

    topics backup DIR DESTINATION is short for topics backup run DIR DESTINATION. DESTINATION is a
    directory or a URL: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, file:///PATH.
    """


@backup.command()
@click.argument("directory", type=click.Path())
@_destination
@click.option(
    "--cold-dir",
    type=click.Path(),
    envvar="TOPICS_COLD_DIR",
    help="Cold directory of the log, if it has one (TOPICS_COLD_DIR).",
)
@time_option("--every", help="Go on, with a backup as often as this: 30s, 5m, 1h.")
@click.option("--stream", is_flag=True, help="Go on, and copy the log as it is written.")
@time_option("--keep", help="Remove what only older moments need: 12h, 30d.")
@as_json_option
def run(
    *,
    directory: str,
    destination: str,
    cold_dir: str | None,
    every: int | None,
    stream: bool,
    keep: int | None,
    as_json: bool,
) -> int:
    """Copy what is new in DIRECTORY to DESTINATION.

    The log may be open in a server or a program meanwhile; it is only read. What is there already
    is not copied again, also after a run that was killed. Exits with 1 if something in DIRECTORY
    was damaged and was copied as it is.
    """
    from topics.cli import _backup  # noqa: PLC0415 - the engine takes a while to import

    return _backup.run(
        directory,
        destination,
        cold_dir=cold_dir,
        every_ms=every,
        stream=stream,
        keep_ms=keep,
        as_json=as_json,
    )


@backup.command()
@_destination
@as_json_option
def ls(destination: str, as_json: bool) -> int:
    """Show which moments DESTINATION covers, and its points."""
    from topics.cli import _backup  # noqa: PLC0415

    return _backup.ls(destination, as_json=as_json)


@backup.command()
@_destination
@as_json_option
def verify(destination: str, as_json: bool) -> int:
    """Read every object in DESTINATION and check it. Exits with 1 when anything is wrong.

    `topics restore --check` goes further: it restores, and checks the result.
    """
    from topics.cli import _backup  # noqa: PLC0415

    return _backup.verify(destination, as_json=as_json)


@backup.command()
@_destination
@time_option("--keep", help="Keep every moment of this long: 12h, 30d.")
@yes_option
@as_json_option
def prune(destination: str, keep: int | None, yes: bool, as_json: bool) -> int:
    """Remove what only older moments need.

    What killed runs left goes, too; without --keep only that. The newest point always stays.
    """
    from topics.cli import _backup  # noqa: PLC0415

    return _backup.prune(destination, keep_ms=keep, yes=yes, as_json=as_json)


@click.command()
@click.argument("source")
@click.argument("directory", type=click.Path(), required=False)
@moment_option("--at", help="The moment to restore: ms since 1970, ISO 8601, 2h for two hours ago.")
@click.option("--at-seq", metavar="TOPIC=SEQ", help="Restore up to this record of a topic.")
@click.option("--topics", metavar="TOPIC,...", help="Restore only these topics.")
@click.option(
    "--ledger",
    type=click.Path(),
    help="A data directory whose ledger of erasures is newer than the backup's.",
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be done, and what is missing.")
@click.option("--check", is_flag=True, help="Restore to a scratch directory and check the result.")
@as_json_option
def restore(
    *,
    source: str,
    directory: str | None,
    at: int | None,
    at_seq: str | None,
    topics: str | None,
    ledger: str | None,
    dry_run: bool,
    check: bool,
    as_json: bool,
) -> int:
    """Restore the backup SOURCE to the new directory DIRECTORY.

    Without a moment everything that SOURCE has is restored. Seqs that were given out after the
    moment are announced to readers as lost, and never used again.
    """
    from topics.cli import _backup  # noqa: PLC0415

    if directory is None and not (check or dry_run):
        raise click.UsageError("give the new DIRECTORY, or --check for a scratch directory")
    if at is not None and at_seq is not None:
        raise click.UsageError("give --at or --at-seq, not both")
    return _backup.restore(
        source,
        directory,
        target=(at, *_topic_and_seq(at_seq)),
        topics=() if topics is None else tuple(topics.split(",")),
        ledger=ledger,
        dry_run=dry_run,
        check=check,
        as_json=as_json,
    )


def _topic_and_seq(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    topic, equals, seq = text.rpartition("=")
    if not equals or not topic or not seq.isdecimal():
        raise click.BadParameter(f"{text!r} is not TOPIC=SEQ", param_hint="--at-seq")
    return topic, int(SEQ.convert(seq, None, None))
