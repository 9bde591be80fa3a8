"""Pages of the documentation that are made from the code while the site is built.

`[openapi]` in a page becomes the list of HTTP calls, `[commands]` every command's help, `[errors]`
every error code, `[settings]` every setting of a topic: they cannot go out of date.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import topics
from topics import errors
from topics.cli._app import app
from topics.client._retry import is_passing
from topics.topic_settings import DEFAULTS, known
from topics.wire import examples, openapi
from topics.wire.statuses import STATUS

Json = Mapping[str, Any]
_CELL_CODE = re.compile(r"(?<=<code>)[^<]{20,}(?=</code>(?:(?!<td|<pre).)*</td>)", re.DOTALL)
_BREAK = re.compile(r"::|[/_=,](?=\w)")


def on_config(config: Any) -> None:  # noqa: ANN401 -- mkdocs has no type hints to import
    """Called by mkdocs first: every decision gets its place, and links to the ones beside it."""
    explanation = next(part["Explanation"] for part in config["nav"] if "Explanation" in part)
    decisions = next(part["Decisions"] for part in explanation if "Decisions" in part)
    decisions += [f"adr/{page.name}" for page in sorted(Path(config["docs_dir"], "adr").glob("0*"))]


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for each page."""
    if "[openapi]" in markdown:
        markdown = markdown.replace("[openapi]", "\n".join(http_calls()))
    if "[errors]" in markdown:
        markdown = markdown.replace("[errors]", "\n".join(error_codes()))
    if "[settings]" in markdown:
        markdown = markdown.replace("[settings]", "\n".join(topic_settings()))
    if "[commands]" in markdown:
        markdown = markdown.replace("[commands]", "\n".join(commands(app, ["topics"])))
    return markdown


def on_page_content(html: str, **_: object) -> str:
    """Called by mkdocs for each page: let long names in tables break, so that no table is cut."""
    return _CELL_CODE.sub(lambda code: _BREAK.sub(r"\g<0><wbr>", code[0]), html)


def topic_settings() -> Iterator[str]:
    """One row a setting: its default and what it does."""
    yield "| Setting | Default | Meaning |\n|---|---|---|"
    for name, setting in known().items():
        of_queues = "queue: " if setting.is_for_queues else ""
        yield f"| `{name}` | {json.dumps(DEFAULTS[name])} | {of_queues}{setting.help} |"


def error_codes() -> Iterator[str]:
    """One row a code: its status, the class in Python, what it means."""
    yield "| code, and class in Python | status | meaning | repeat |\n|---|---|---|---|"
    shown = set()
    for kind in _below(errors.TopicsError):
        if kind.code in shown:
            continue
        shown.add(kind.code)
        status = STATUS.get(kind.code, "")
        meaning = (kind.__doc__ or "").splitlines()[0]
        again = "yes" if is_passing(kind.__new__(kind)) else "no"
        yield f"| `{kind.code}`<br>`{kind.__name__}` | {status} | {meaning} | {again} |"
    yield ""


def _below(kind: type[errors.TopicsError]) -> Iterator[type[errors.TopicsError]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _below(sub)


def http_calls() -> Iterator[str]:
    description = openapi.describe(topics.__version__)
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation['summary']}.\n"
            yield from _security(operation)
            yield from _body(operation)
            yield from _answers(operation)
            yield from _example(method, path, operation)
    yield "## Shapes\n"
    yield "What bodies and answers look like. Most answers also have `performance`.\n"
    for name, schema in sorted(description["components"]["schemas"].items()):
        yield from _fields(name, schema)


def _fields(name: str, schema: Json) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{schema['description']}\n"
    yield "| field | type | default |\n|---|---|---|"
    required = schema.get("required", [])
    for field, kind in schema.get("properties", {}).items():
        if field in required:
            default = "required"
        else:
            default = f"`{json.dumps(kind['default'])}`" if "default" in kind else "may be absent"
        yield f"| `{field}` | {_type(kind)} | {default} |"
    yield ""


def _type(kind: Json) -> str:
    """A JSON schema in a few words; a shape as a link to it."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in kind:
        return " or ".join(_type(way) for way in kind["anyOf"])
    if "enum" in kind:
        return " or ".join(f"`{json.dumps(value)}`" for value in kind["enum"])
    return _container(kind) or str(kind.get("format") or kind.get("type") or "any JSON")


def _container(kind: Json) -> str:
    if "prefixItems" in kind:
        return f"[{', '.join(_type(item) for item in kind['prefixItems'])}]"
    if kind.get("type") == "array":
        return f"array of {_type(kind['items'])}"
    if isinstance(kind.get("additionalProperties"), Mapping):
        return f"object of {_type(kind['additionalProperties'])}"
    return ""


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
        shapes = {_shape(media) for media in answer.get("content", {}).values()} - {""}
        shown = f" {', '.join(sorted(shapes))}" if status < "300" else ""
        yield f"| {status} | {answer['description']}{shown} |"
    yield ""


def _example(method: str, path: str, operation: Json) -> Iterator[str]:
    """The call as `curl` sends it, and what comes back."""
    example = examples.examples().get(operation["operationId"])
    if example is None:
        return
    for name, value in example.path.items():
        path = path.replace(f"{{{name}}}", str(value))
    address = f"http://127.0.0.1:4000{path}{'?' + example.query if example.query else ''}"
    call = "curl" if method == "get" else f"curl -X {method.upper()}"
    call += f" '{address}'" if example.query else f" {address}"
    if example.body is not None:
        sent = json.dumps(example.body, ensure_ascii=False)
        call += f" \\\n  -H 'content-type: application/json' \\\n  -d '{sent}'"
    yield f"```bash\n{call}\n```\n"
    if isinstance(example.answer, str):
        yield f"```text\n{example.answer.rstrip()}\n```\n"
    else:
        yield f"```json\n{json.dumps(example.answer, indent=2, ensure_ascii=False)}\n```\n"


def _shape(media: Json) -> str:
    schema = media.get("schema", {})
    named = schema if "$ref" in schema else next(iter(schema.get("allOf", [])), {})
    return _type(named) if "$ref" in named else ""


def commands(command: click.Command, words: list[str]) -> Iterator[str]:
    context = click.Context(
        command, info_name=" ".join(words), max_content_width=96, help_option_names=["-h", "--help"]
    )
    yield f"{'#' * min(len(words) + 1, 4)} {' '.join(words)}\n"
    yield f"```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(below, [*words, name])
