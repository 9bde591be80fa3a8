"""`topics spark`: what this machine offers Spark, and bulk jobs that run on it."""

from __future__ import annotations

import click

from topics.cli._exit import NO, OK
from topics.cli._options import as_json_option
from topics.cli._output import print_facts, print_json, style


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def spark() -> None:
    """Check Spark on this machine, and run bulk jobs over topics with it."""


@spark.command()
@as_json_option
def doctor(*, as_json: bool) -> int:
    """Say what Spark would run on here, and what to do if it cannot run.

    Exits with 1 if a session could not start. Starts nothing itself.
    """
    from topics.spark.doctor import examine  # noqa: PLC0415 - help must not wait for it

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
