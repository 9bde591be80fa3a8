"""`topics context`: names for the logs one works with."""

from __future__ import annotations

import os

import click

from topics.cli import _output as out
from topics.cli._completing import complete_context
from topics.cli._exit import NO, OK
from topics.cli._groups import CommandGroup
from topics.cli._options import as_json_option, ask, yes_option
from topics.client import targets
from topics.client.targets import Context, Contexts

_name = click.argument("name", shell_complete=complete_context)


@click.group(cls=CommandGroup)
def context() -> None:
    """Keep names for the logs you work with; `topics ls --context prod` uses one."""


@context.command()
@click.argument("name")
@click.option("--url", metavar="URL", help="The server, like http://127.0.0.1:4000.")
@click.option("--dir", metavar="PATH", type=click.Path(), help="A data directory instead.")
@click.option(
    "--token-file", metavar="PATH", type=click.Path(), help="A file with the key for the server."
)
@click.option(
    "--ca-file",
    metavar="PATH",
    type=click.Path(),
    help="Certificates of an authority of your own.",
)
@click.option("--use", is_flag=True, help="Make it the current one.")
@as_json_option
def add(
    *,
    name: str,
    url: str | None,
    dir: str | None,
    token_file: str | None,
    ca_file: str | None,
    use: bool,
    as_json: bool,
) -> int:
    """Add the context NAME, or replace it. The first one becomes the current one.

    Only the path of the key's file is kept, never the key.
    """
    if token_file is not None:
        targets.read_token(token_file)  # a wrong path is better found now
        token_file = os.path.abspath(os.path.expanduser(token_file))
    made = Context(
        url=None if url is None else targets.checked_url(url, "--url"),
        dir=None if dir is None else os.path.abspath(os.path.expanduser(dir)),
        token_file=token_file,
        ca_file=None if ca_file is None else targets.checked_ca_file(ca_file),
    )
    contexts = targets.load_contexts().with_context(name, made)
    contexts = contexts.using(name) if use else contexts
    targets.save_contexts(contexts)
    current = ", which is now the current one" if contexts.current == name else ""
    out.tell(_facts(name, contexts), f"added {name}{current}", as_json=as_json)
    return OK


@context.command("ls")
@as_json_option
def list_contexts(*, as_json: bool) -> int:
    """List the contexts there are. A star marks the current one."""
    contexts = targets.load_contexts()
    names = sorted(contexts.contexts)
    if as_json:
        out.print_json({"contexts": [_facts(name, contexts) for name in names]})
    elif names:
        rows = []
        for name in names:
            found = contexts.contexts[name]
            mark = "*" if name == contexts.current else ""
            rows.append([mark, name, found.url or found.dir, found.token_file])
        out.print_table(["", "name", "log", "key in"], rows)
    else:
        click.echo("no contexts; add one with `topics context add`", err=True)
    return OK


@context.command()
@_name
@as_json_option
def use(*, name: str, as_json: bool) -> int:
    """Make NAME the current context. Commands use it when nothing else is said."""
    contexts = targets.load_contexts().using(name)
    targets.save_contexts(contexts)
    out.tell(_facts(name, contexts), f"now using {name}", as_json=as_json)
    return OK


@context.command()
@_name
@yes_option
@as_json_option
def rm(*, name: str, yes: bool, as_json: bool) -> int:
    """Forget the context NAME. The log itself and the key's file are not touched."""
    contexts = targets.load_contexts().without(name)
    if not ask(f"Forget the context {name}?", yes=yes):
        return NO
    targets.save_contexts(contexts)
    out.tell({"context": name, "removed": True}, f"forgot {name}", as_json=as_json)
    return OK


@context.command()
@click.argument("name", required=False, shell_complete=complete_context)
@as_json_option
def show(*, name: str | None, as_json: bool) -> int:
    """Show which log commands would use now. With NAME, show that context."""
    if name is not None:
        facts = _facts(name, targets.load_contexts())
    else:
        target = targets.resolve()
        facts = {
            "url": target.url,
            "dir": target.path,
            "key": target.token is not None,
            "chosen_by": target.source,
        }
    if as_json:
        out.print_json(facts)
    else:
        out.print_facts({fact.replace("_", " "): value for fact, value in facts.items()})
    return OK


def _facts(name: str, contexts: Contexts) -> dict[str, object]:
    found = contexts.get(name)
    return {
        "name": name,
        "url": found.url,
        "dir": found.dir,
        "token_file": found.token_file,
        "ca_file": found.ca_file,
        "current": contexts.current == name,
    }
