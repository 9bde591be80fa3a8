"""`topics flow`: run a flow, see which ones run, stop one."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topics.cli._exit import NO, OK
from topics.cli._groups import CommandGroup
from topics.cli._options import Where, as_json_option, master_option, with_where
from topics.cli._output import notices, print_json_line, safe

if TYPE_CHECKING:
    from topics.spark.flows.progress import BatchProgress
    from topics.spark.flows.state import State


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
def flow() -> None:
    """Topics in, SQL or Python, a topic or a table out: exactly once, on Spark."""


@flow.command(short_help="Run the flow in FILE until it ends or is told to.")
@click.argument("file", type=click.Path())
@master_option
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's.")
@click.option("--once", is_flag=True, help="Read what is there and end, whatever the file says.")
@with_where
@as_json_option
def run(
    where: Where, *, file: str, master: str, conf: tuple[str, ...], once: bool, as_json: bool
) -> int:
    """Run the flow in FILE, YAML or Python, until it ends or is told to stop.

    SIGTERM, Ctrl-C and `topics flow stop` let it finish the batch at hand. The next run goes on
    from there.
    """
    import dataclasses  # noqa: PLC0415

    from topics.cli._bulk import existing  # noqa: PLC0415
    from topics.spark.errors import FlowFailed  # noqa: PLC0415
    from topics.spark.flows import file as flows  # noqa: PLC0415 - help must not wait for Spark
    from topics.spark.flows.running import run as run_flow  # noqa: PLC0415
    from topics.spark.source.options import READ_OPTIONS  # noqa: PLC0415

    described = flows.load(file, source_options=READ_OPTIONS)
    target = where.target()
    if target.path is not None:
        existing(target.path)
    if once:
        described = dataclasses.replace(described, trigger="once")
    show = _RunOutput(described.name, as_json)
    try:
        outcome = run_flow(
            described,
            target,
            master=master,
            conf=dict(map(_setting, conf)),
            report=show.batch,
            notice=notices("flow"),
        )
    except FlowFailed as error:
        show.failed(error, described.name)
        return NO
    show.ended(dataclasses.asdict(outcome))
    return OK


def _setting(text: str) -> tuple[str, str]:
    name, is_set, value = text.partition("=")
    if not is_set or not name:
        raise click.UsageError(f"--conf takes NAME=VALUE, got {text!r}")
    return name, value


class _RunOutput:
    """Batches go to standard output, words about the run to standard error."""

    def __init__(self, name: str, as_json: bool) -> None:
        self._name = name
        self._as_json = as_json

    def batch(self, done: BatchProgress) -> None:
        if self._as_json:
            print_json_line({"flow": self._name, **_fields(done)})
        else:
            print(f"{self._name}  {done.line()}", flush=True)

    def failed(self, error: Exception, name: str) -> None:
        from topics.spark.flows import state  # noqa: PLC0415

        if self._as_json:
            print_json_line({"flow": name, "error": str(error)})
        print(f"topics: {safe(str(error))}", file=sys.stderr)
        log = next((each.log for each in state.find_all() if each.name == name), None)
        if log is not None and Path(log).exists():
            print(f"topics: what Spark said is in {log}", file=sys.stderr)

    def ended(self, facts: dict[str, Any]) -> None:
        if self._as_json:
            print_json_line({"flow": self._name, "ended": facts})
            return
        lost = f", {facts['lost']:,} records were lost before it read them" if facts["lost"] else ""
        print(
            f"{self._name} ended: {facts['rows']:,} records in {facts['batches']} batches, "
            f"{facts['seconds']:.1f} s{lost}",
            flush=True,
        )


@flow.command(name="list")
@as_json_option
def list_(as_json: bool) -> int:
    """List the flows that run on this machine or have run here."""
    from topics.spark.flows import state  # noqa: PLC0415

    states = state.find_all()
    if as_json:
        print_json_line([_fields(each) for each in states])
    elif states:
        _print_table([_row(each) for each in states])
    else:
        print("No flow has run here yet.")
    return OK


@flow.command(short_help="Show how the flow NAME is doing.")
@click.argument("name")
@as_json_option
def status(name: str, as_json: bool) -> int:
    """Show how the flow NAME is doing; exits with 1 when it failed or was killed."""
    from topics.spark.flows import state  # noqa: PLC0415

    found = state.find(name)
    if as_json:
        print_json_line(_fields(found))
    else:
        for label, text in _details(found):
            print(f"{label:<11} {safe(text)}")
    return NO if found.status in ("failed", "lost") else OK


@flow.command(short_help="Let the flow NAME finish its batch and end.")
@click.argument("name")
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Seconds to wait.")
@as_json_option
def stop(name: str, timeout: float, as_json: bool) -> int:
    """Let the flow NAME finish its batch and end; exits with 1 when it did not within the time."""
    from topics.spark.flows import state  # noqa: PLC0415

    before = state.find(name)
    after = state.stop(name, timeout=timeout)
    still_runs = state.is_running(after)
    if as_json:
        print_json_line(_fields(after))
    elif not state.is_running(before):
        print(f"{name} does not run: {before.status}")
    elif still_runs:
        print(f"{name} still runs after {timeout:.0f} s, process {after.pid}", file=sys.stderr)
    else:
        print(f"{name} {after.status} after batch {after.batch}")
    return NO if still_runs else OK


# What is shown


def _row(found: State) -> Sequence[str]:
    return (
        found.name,
        found.status,
        f"{', '.join(found.sources)} -> {found.target}",
        f"{found.rows:,}",
        f"{sum(found.lag.values()):,}" if found.lag else "-",
    )


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    table = [("flow", "status", "from -> to", "records", "lag"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(safe("  ".join(cells).rstrip()))


def _details(found: State) -> list[tuple[str, str]]:
    details = [
        ("flow", found.name),
        ("status", found.status),
        ("from", ", ".join(found.sources)),
        ("to", found.target),
        ("server", found.server),
        ("process", f"{found.pid} on {found.host}, {found.master}"),
        ("started", _moment(found.started)),
        ("file", found.file),
        ("checkpoint", found.checkpoint),
    ]
    if found.ended is not None:
        details.append(("ended", _moment(found.ended)))
    if found.batch is not None:
        rate = f"{found.rows_per_second or 0:,.0f}/s, {found.batch_seconds or 0:.1f} s"
        details.append(("last batch", f"{found.batch} ({rate})"))
        details.append(("records", f"{found.rows:,} in this run"))
        lag = ", ".join(f"{topic} {count:,}" for topic, count in found.lag.items())
        details.append(("lag", lag or "unknown"))
    if found.error is not None:
        details.append(("error", found.error))
    if found.log is not None:
        details.append(("log", found.log))
    return details


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _fields(value: object) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    fields: dict[str, Any] = msgspec.to_builtins(value)
    return fields
