"""`topics spark`: what this machine offers Spark, and bulk jobs that run on it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from topics.cli._exit import NO, OK
from topics.cli._groups import CommandGroup
from topics.cli._options import Where, as_json_option, master_option, on_a_log
from topics.cli._output import notices, print_facts, print_json, print_json_line, style
from topics.cli.stages import stages

if TYPE_CHECKING:
    from topics.spark.bulk.exporting import Done
    from topics.spark.bulk.importing import Step

say = notices("spark")


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
def spark() -> None:
    """Check Spark on this machine, and run bulk jobs over topics with it."""


spark.add_command(stages)


@spark.command()
@as_json_option
def doctor(*, as_json: bool) -> int:
    """Say what Spark would run on here, and what to do if it cannot run.

    Exits with 1 if a session could not start. Starts nothing itself.
    """
    from topics.spark.setup.doctor import examine  # noqa: PLC0415 - help must not wait for it

    report = examine()
    if as_json:
        print_json(report.to_dict())
        return OK if report.is_good else NO
    print_facts(report.found)
    print()
    print("A session would")
    for line in report.would:
        print(f"  {line}")
    for remedy in report.remedies:
        print(style(f"cannot start: {remedy}", "red"))
    return OK if report.is_good else NO


@spark.command(short_help="Check every byte of DIRECTORY with all cores.")
@click.argument("directory", type=click.Path())
@click.option(
    "--cold-dir",
    type=click.Path(),
    envvar="TOPICS_COLD_DIR",
    help="Where the store keeps its old segments, if it has such a place.",
)
@master_option
@as_json_option
def audit(*, directory: str, cold_dir: str | None, master: str, as_json: bool) -> int:
    """Check every byte of DIRECTORY, a data directory, with all cores: checksums, seqs, indexes.

    Reports per topic whether what was written is live, deleted or lost. Exits with 1 when anything
    is wrong, naming file, offset and seq. Reads only; the directory may be in use.
    """
    from topics.cli._bulk import existing, print_audit  # noqa: PLC0415 - help must not wait
    from topics.spark.bulk.auditing import audit as run  # noqa: PLC0415
    from topics.spark.jobs.session import job_session  # noqa: PLC0415

    where = existing(directory)
    with job_session("audit", master, say) as session:
        found = run(session, where, cold_dir=cold_dir, notice=say)
    if as_json:
        print_json(found.to_dict())
    else:
        print_audit(found)
    return OK if found.ok else NO


@spark.command(name="import", short_help="Import rows into TOPIC, every row once.")
@click.argument("source", metavar="TABLE|PARQUET|JSONL", type=click.Path())
@click.argument("topic")
@click.option("--name", default="", help="Begin another import of files imported before.")
@master_option
@on_a_log
def import_(where: Where, *, source: str, topic: str, name: str, master: str, as_json: bool) -> int:
    """Import a Delta table, Parquet files or JSON lines into TOPIC, every row once.

    Interrupt it at any time: the next run goes on with the first epoch that is not in the topic. An
    epoch is at most 256 MiB of input, and all of its records become visible at once.
    """
    from topics.cli._bulk import server_of  # noqa: PLC0415 - help must not wait
    from topics.spark.bulk.importing import ImportTask, import_files  # noqa: PLC0415
    from topics.spark.jobs.session import job_session  # noqa: PLC0415

    target = where.target()
    task = ImportTask(source, topic, server_of(target), name)
    cut = task.plan()
    with job_session(f"import {topic}", master, say) as session:
        done = import_files(
            session, task, cut, report=lambda step: _show(step, as_json=as_json), notice=say
        )
    if as_json:
        print_json_line({"topic": topic, "ended": asdict(done)})
    else:
        print(
            f"{done.records:,} records imported into {topic} in {done.epochs - done.skipped} of "
            f"{done.epochs} epochs, {done.seconds:.1f} s"
        )
    return OK


@spark.command(short_help="Export TOPIC as Parquet files or JSON lines.")
@click.argument("topic")
@click.argument("output", metavar="PARQUET|JSONL", type=click.Path())
@click.option(
    "--format",
    "asked",
    type=click.Choice(["parquet", "jsonl"]),
    help="Default: jsonl if OUTPUT ends in it, else parquet.",
)
@master_option
@on_a_log
def export(
    where: Where, *, topic: str, output: str, asked: str | None, master: str, as_json: bool
) -> int:
    """Export TOPIC to the directory OUTPUT as Parquet files or JSON lines.

    Interrupt it at any time: the next run writes what is missing, and a run over a finished export
    adds what the topic has got since. Runs of records that the log has lost are listed in
    _topics_export.json there.
    """
    import os  # noqa: PLC0415

    from topics.cli._bulk import existing  # noqa: PLC0415 - help must not wait
    from topics.spark.bulk.exporting import (  # noqa: PLC0415
        ExportTask,
        export_topic,
        format_of,
        plan_export,
    )
    from topics.spark.jobs.session import job_session  # noqa: PLC0415

    target = where.target()
    if target.path is not None:
        existing(target.path)
    task = ExportTask(
        topic,
        os.path.abspath(output),
        target,
        format_of(output, asked),
        os.environ.get("TOPICS_COLD_DIR") or None,
    )
    to_do = plan_export(task)
    with job_session(f"export {topic}", master, say) as session:
        done = export_topic(
            session, task, to_do, report=lambda piece: _show(piece, as_json=as_json), notice=say
        )
    if as_json:
        print_json_line({"topic": topic, "ended": asdict(done)})
    else:
        print(
            f"{done.records:,} records exported from {topic} in {done.pieces - done.skipped} "
            f"pieces, up to seq {done.last_seq:,}, {done.seconds:.1f} s"
            + (f", {done.lost_runs} lost runs" if done.lost_runs else "")
        )
    return OK


def _show(step: Step | Done, *, as_json: bool) -> None:
    if as_json:
        print_json_line(asdict(step))
    else:
        print(step.line(), flush=True)
