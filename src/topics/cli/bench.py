"""`topics bench`: measurements, each in a module of `topics.bench` with a `main` of its own."""

from __future__ import annotations

from importlib import import_module

import click

BENCHES = {"engine": "topics.bench.engine"}


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("name", type=click.Choice(sorted(BENCHES)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> int:
    """Measure speed and memory beside raw numbers; `topics bench engine --help` tells more."""
    code: int = import_module(BENCHES[name]).main(list(arguments))
    return code
