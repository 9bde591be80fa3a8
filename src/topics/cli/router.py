"""`topics router`: rules that copy what is appended to one topic to another."""

from __future__ import annotations

import click

from topics.cli import _output as out
from topics.cli._exit import NO, OK
from topics.cli._groups import CommandGroup
from topics.cli._options import Where, ask, match_option, on_a_log, yes_option
from topics.errors import RouterNotFound
from topics.values import RouterState

_name = click.argument("name")


@click.group(cls=CommandGroup)
def router() -> None:
    """Copy what is appended to one topic to another."""


@router.command("ls")
@click.argument("prefix", default="")
@on_a_log
def list_routers(where: Where, *, prefix: str, as_json: bool) -> int:
    """List routers. All, or those whose names begin with PREFIX."""
    with where.reading() as log:
        found = log.routers(prefix=prefix)
    out.print_list(
        "routers",
        found,
        ["router", "source", "dest", "guarantee", "forwarded"],
        lambda r: [r.router, r.source, r.dest, r.guarantee, r.forwarded_total],
        as_json=as_json,
    )
    return OK


@router.command("get")
@_name
@on_a_log
def get_router(where: Where, *, name: str, as_json: bool) -> int:
    """Show the router NAME and how far it has come."""
    with where.reading() as log:
        found = [state for state in log.routers(prefix=name) if state.router == name]
    if not found:
        raise RouterNotFound(name)
    _show(found[0], as_json=as_json)
    return OK


@router.command("put")
@_name
@click.option(
    "--from", "--source", "source", metavar="TOPIC", required=True, help="The topic to copy from."
)
@click.option(
    "--to", "--dest", "dest", metavar="TOPIC", required=True, help="The topic to copy to."
)
@match_option
@click.option(
    "--exactly-once", is_flag=True, help="Mark each copy, so that no record is copied twice."
)
@click.option("--no-node", is_flag=True, help="Leave the node out of copies.")
@click.option("--no-tag", is_flag=True, help="Leave the tag out of copies.")
@click.option("--no-create", is_flag=True, help="Fail if the destination does not exist.")
@click.option(
    "--allow-cycle",
    is_flag=True,
    help="Allow a cycle of routers; a record is forwarded at most 8 times.",
)
@on_a_log
def put_router(
    where: Where,
    *,
    name: str,
    source: str,
    dest: str,
    match: str | None,
    exactly_once: bool,
    no_node: bool,
    no_tag: bool,
    no_create: bool,
    allow_cycle: bool,
    as_json: bool,
) -> int:
    """Make the router NAME, or change its settings.

    A new router copies records that are appended from now on, and makes missing topics. A router
    that exists keeps its position; its source and destination cannot be changed.
    """
    with where.writing(may_create=True) as log:
        state = log.route(
            name,
            source=source,
            dest=dest,
            match=match,
            preserve_node=not no_node,
            preserve_tag=not no_tag,
            create_dest=not no_create,
            allow_cycle=allow_cycle,
            exactly_once=exactly_once,
        )
    _show(state, as_json=as_json)
    return OK


@router.command("rm")
@_name
@yes_option
@on_a_log
def remove_router(where: Where, *, name: str, yes: bool, as_json: bool) -> int:
    """Stop the router NAME for good. What it copied stays."""
    with where.writing() as log:
        found = [state for state in log.routers(prefix=name) if state.router == name]
        if not found:
            raise RouterNotFound(name)
        if not ask(f"Stop copying from {found[0].source} to {found[0].dest}?", yes=yes):
            return NO
        if not log.drop_router(name):
            raise RouterNotFound(name)
    out.tell({"router": name, "deleted": True}, f"removed {name}", as_json=as_json)
    return OK


def _show(state: RouterState, *, as_json: bool) -> None:
    if as_json:
        out.print_json(state.to_dict())
        return
    out.print_facts(
        {
            "router": state.router,
            "source": state.source,
            "dest": state.dest,
            "match": None if state.filter is None else state.filter[2],
            "guarantee": state.guarantee,
            "keeps node": state.preserve_node,
            "keeps tag": state.preserve_tag,
            "cycle allowed": state.allow_cycle,
            "forwarded": state.forwarded_total,
            "still to look at": state.lag,
        }
    )
