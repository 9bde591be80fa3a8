"""Pages of the documentation that are made from the code while the site is built.

`[openapi]` in a page becomes the list of HTTP calls, `[commands]` every command's help: nobody can
forget to bring them up to date.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import click

import topics
from topics.cli._app import app
from topics.wire import openapi

Json = Mapping[str, Any]


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for each page."""
    if "[openapi]" in markdown:
        markdown = markdown.replace("[openapi]", "\n".join(http_calls()))
    if "[commands]" in markdown:
        markdown = markdown.replace("[commands]", "\n".join(commands(app, ["topics"])))
    return markdown


def http_calls() -> Iterator[str]:
    description = openapi.describe(topics.__version__)
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation['summary']}.\n"
            yield from _security(operation)
            yield from _body(operation)
            yield from _answers(operation)


def _security(operation: Json) -> Iterator[str]:
    ways = operation.get("security", [])
    scopes = [scope for way in ways for given in way.values() for scope in given]
    if scopes:
        yield f"Scope: `{'`, `'.join(scopes)}`\n"


def _body(operation: Json) -> Iterator[str]:
    for parameter in operation.get("parameters", []):
        if "name" in parameter and parameter["in"] != "path":
            yield f"- `{parameter['name']}` ({parameter['in']}): {parameter.get('description', '')}"
    yield ""
    content = operation.get("requestBody", {}).get("content", {})
    shapes = {_shape(media) for media in content.values()} - {""}
    if shapes:
        yield f"Body: {', '.join(sorted(shapes))} as {', '.join(f'`{kind}`' for kind in content)}\n"


def _answers(operation: Json) -> Iterator[str]:
    yield "| status | answer |\n|---|---|"
    for status, answer in operation["responses"].items():
        yield f"| {status} | {answer['description']} |"
    yield ""


def _shape(media: Json) -> str:
    reference = media.get("schema", {}).get("$ref", "")
    return f"`{reference.rpartition('/')[2]}`" if reference else ""


def commands(command: click.Command, words: list[str]) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(words), max_content_width=96)
    yield f"{'#' * min(len(words) + 1, 4)} {' '.join(words)}\n"
    yield f"```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(below, [*words, name])
