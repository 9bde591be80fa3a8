"""`topics spark stages`: what sinks have staged and not committed."""

from __future__ import annotations

import time

import click

from topics.cli import _output as out
from topics.cli._exit import NO, OK
from topics.cli._groups import CommandGroup
from topics.cli._options import Where, ask, on_a_log, yes_option
from topics.values import WaitingStages


@click.group(cls=CommandGroup)
def stages() -> None:
    """See and drop what sinks have staged and not committed.

    A running batch stages its rows until its driver commits them. The stages of a dead driver go
    when its query starts again, or when nothing was heard of it for TOPICS_STAGE_LEASE_MS.
    """


@stages.command("ls")
@on_a_log
def list_stages(where: Where, *, as_json: bool) -> int:
    """List what waits for its commit, by app and epoch."""
    with where.reading() as log:
        found = log.stages()
    now = time.time()
    headings = ["app", "epoch", "stages", "records", "data", "on disk", "begun", "last"]
    out.print_list("stages", found, headings, lambda each: _row(each, now), as_json=as_json)
    return OK


@stages.command("drop")
@click.argument("app")
@click.option("--epoch", type=click.IntRange(min=0), help="Only the stages of this epoch.")
@yes_option
@on_a_log
def drop_stages(where: Where, *, app: str, epoch: int | None, yes: bool, as_json: bool) -> int:
    """Drop what APP has staged and not committed. Needs the admin scope.

    A running batch of APP then fails and is repeated by its query. What is committed stays.
    """
    with where.writing() as log:
        what = app if epoch is None else f"epoch {epoch} of {app}"
        if not ask(f"Drop what is staged for {what} and not committed?", yes=yes):
            return NO
        done = log.drop_stages(app, epoch=epoch)
    words = f"dropped {out.counted(done.dropped, 'stage')} of {what}, {out.size(done.disk_bytes)}"
    out.tell(done.to_dict(), words, as_json=as_json)
    return OK


def _row(found: WaitingStages, now: float) -> list[object]:
    return [
        found.app,
        found.epoch,
        found.stages,
        found.records,
        out.size(found.bytes),
        out.size(found.disk_bytes),
        f"{out.span(max(0.0, now - found.oldest_ts / 1000))} ago",
        f"{out.span(max(0.0, now - found.newest_ts / 1000))} ago",
    ]
