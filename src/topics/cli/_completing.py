"""What a shell offers behind a command: names of contexts and of topics.

The user has pressed a key and waits. So a server is asked once, with a short time-out. A directory,
which may take long to open, is not asked, and an error offers nothing.
"""

from __future__ import annotations

import json
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from topics.client import targets
from topics.core.config import NAME
from topics.errors import TopicsError

PATIENCE_SECONDS = 1.0
MOST = 100


def complete_context(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Contexts that begin so."""
    with suppress(TopicsError, OSError):
        known = sorted(targets.load_contexts().contexts)
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]
    return []


def complete_topic(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Topics of the server that the line so far leads to."""
    with suppress(TopicsError, OSError, ValueError, LookupError, TypeError):
        return [CompletionItem(name) for name in _names(ctx, incomplete)]
    return []


def _names(ctx: click.Context, prefix: str) -> list[str]:
    given = ctx.params.get
    file = given("token_file")
    token = None if file is None else targets.read_token(file)
    target = targets.resolve(given("url"), given("dir"), given("context"), token)
    if target.url is None:
        return []
    from topics.client.sync_http import Http  # noqa: PLC0415 - help does without

    ca_file = given("ca_file") or target.ca_file
    with Http(
        target.url, token=target.token, ca_file=ca_file, timeout=PATIENCE_SECONDS, retries=0
    ) as http:
        query = {"prefix": prefix, "page_size": str(MOST)}
        found = json.loads(http.request("GET", "/v0/topics", query=query).body)
    names = [topic["topic"] for topic in found["topics"]]
    # What a server offers is put into a line that a shell will run.
    return [name for name in names if NAME.match(name) and name.startswith(prefix)]
