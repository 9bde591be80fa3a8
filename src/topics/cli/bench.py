"""`topics bench`: measurements, each in a module of `topics.bench` with a `main` of its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import click

from topics.cli._groups import CommandGroup

BENCHES = {
    "compare": ("topics.bench.compare.command", "The same work on Redis, NATS and PostgreSQL."),
    "engine": ("topics.bench.engine", "The log inside this process."),
    "queues": ("topics.bench.queues", "Claiming and acking jobs, over HTTP and embedded."),
    "routers": ("topics.bench.routers", "Forwarding from topic to topic."),
    "server": ("topics.bench.server", "CPU and latency of a real server."),
    "stalls": ("topics.bench.stalls", "The longest wait beside large requests."),
    "spark": ("topics.bench.spark", "Topics in Spark beside Spark's own formats."),
}


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure speed and memory beside raw numbers; `topics bench engine --help` tells more."""


def _command(name: str, module: str, line: str) -> click.Command:
    """A command whose options its module reads by itself."""

    def run(arguments: tuple[str, ...]) -> int:
        main: Callable[[list[str]], int] = import_module(module).main
        return main(list(arguments))

    return click.Command(
        name,
        callback=run,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        add_help_option=False,
        help=line,
    )


for _name, (_module, _line) in BENCHES.items():
    bench.add_command(_command(_name, _module, _line))
bench.add_command(_command("all", "topics.bench.all", "Every benchmark, one after the other."))
