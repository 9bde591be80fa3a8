"""Write the blocking client from the asyncio client, where the two are alike.

Run by `make fmt`. `--check`, run by `make check`, fails if a file is not what this makes of its
source. Transports, workers and what producers wait with (`_aio_helper`, `_sync_helper`) are written
by hand: they differ in more than `await`.

A blocking log may also be one in this process. What all of them have in common is therefore cut out
into a base class: every documented call with its help text, and the calls that are made of other
calls (`SHARED`). What is left to the client is how to carry the calls out.

`_routes.py` holds the part of the table of endpoints that the client needs at run time: where each
call goes, and the type that decodes its answer. To import the table and its shapes would take about
thirty milliseconds of a program's first call.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType

if TYPE_CHECKING:
    from topics.wire.endpoints.parts import Endpoint

CLIENT = Path(__file__).resolve().parent.parent / "src" / "topics" / "client"


@dataclass(frozen=True)
class Base:
    """The base class of the one class in a file, and the file that it goes to."""

    name: str
    target: str
    summary: str


@dataclass(frozen=True)
class Twin:
    """A file of the asyncio client and what becomes of it."""

    source: str
    target: str
    header: str
    changes: tuple[tuple[str, str], ...] = ()
    base: Base | None = None


A_LOG_OF_ANY_KIND = (
    ("from topics.client.aio import AsyncRemoteLog", "from topics.client.interface import AnyLog"),
    ("AsyncRemoteLog", "AnyLog"),
)
"""Consumers and producers work on a log behind an address and on one in this process alike."""
TWINS = (
    Twin(
        "aio.py",
        "sync.py",
        '''"""`RemoteLog`: what `topics.open("http://...")` returns.

The calls, results and errors of a log in this process (`topics.embedded.Log`), over HTTP. Each
method says what to do through `_calls`; this shell only sends it. Safe for threads, and for
forked children and pickles, which connect anew.
"""''',
        base=Base(
            "AnyLog",
            "interface.py",
            "What every blocking log can do: one in this process, or one behind an address.",
        ),
    ),
    Twin(
        "aio_queue.py",
        "sync_queue.py",
        '"""`RemoteQueue`: what `queue` of a log behind a URL returns."""',
        base=Base(
            "AnyQueue",
            "queue_interface.py",
            "What a queue of a blocking log can do, in this process or behind an address.",
        ),
    ),
    Twin(
        "_aio_stream.py",
        "_sync_stream.py",
        '"""Live reads of the blocking client: event streams and WebSockets that reconnect."""',
    ),
    Twin(
        "aio_consumer.py",
        "consumer.py",
        '''"""A reader whose position is kept in the log under a name.

    consumer = log.consumer("orders", name="billing")
    for item in consumer:
        match item:
            case Record(): bill(item.data)
            case Tombstone(): alarm(item)
        consumer.commit()

What was handed out but not committed comes again after a restart: at least once. Commit as rarely
as you can afford to do work twice.
"""''',
        (
            *A_LOG_OF_ANY_KIND,
            ("For one task", "For one thread"),
            ("    async def where(self) -> int:", "    @property\n    def position(self) -> int:"),
            ("await self.where()", "self.position"),
        ),
    ),
    Twin(
        "aio_producer.py",
        "producer.py",
        '''"""A writer that gathers records into batches and sends them from a thread of its own.

    with log.producer("orders", linger_ms=5) as orders:
        for order in source:
            orders.send(order, tag=order["customer"])

Records keep their order and are appended exactly once, also when answers are lost and the server
is killed meanwhile: see `_batching`.
"""''',
        (
            *A_LOG_OF_ANY_KIND,
            ("number of tasks", "number of threads"),
            ("he producer's task", "he producer's thread"),
        ),
    ),
)

WORDS = (
    (r"AsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]"),
    (r"Awaitable\[([^\[\]]*)\]", r"\1"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bseveral tasks\b", "several threads"),
    (r"\baclosing\b", "closing"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bimport asyncio\b", "import time"),
    (r"asyncio\.get_running_loop\(\)\.time\(\)", "time.monotonic()"),
    (r"  # noqa: ASYNC\d+[^\n]*", ""),
    (r"\b_aio_(stream|helper)\b", r"_sync_\1"),
    (r"\baio_(http|queue)\b", r"sync_\1"),
    (r"\bclient\.aio\b", "client.sync"),
    (r"\baio_(consumer|producer|worker)\b", r"\1"),
    (r"\bAsync(?=[A-Z])", ""),
)


SHARED = frozenset(("create", "configure", "scan", "consumer", "producer", "worker")) | frozenset(
    ("_done", "_now_ms", "__enter__", "__exit__")
)
"""Methods that a base class has whole."""
ONLY_REMOTE = frozenset(("__init__", "url"))
"""Methods that a base class does not have, although they may be documented."""
IN_A_BASE = (
    (r'\n +transport: Transport = "sse",', ""),
    (r"= DEFAULT_NODE\b", "= ..."),
    (r"\bRemote(Log|Queue)\b", r"Any\1"),
    (r"\bsync_queue\b", "queue_interface"),
)


def made() -> Iterator[tuple[str, str]]:
    """Every target and its text."""
    for twin in TWINS:
        text = _without_waits(twin)
        if twin.base is not None:
            derived, base = _split(text, twin.base)
            yield twin.base.target, _finished(base, f'"""{twin.base.summary}"""', twin.source)
            text = derived
        yield twin.target, _finished(text, twin.header, twin.source)
    yield "_routes.py", routes()


def routes() -> str:
    """The calls of the table that the client makes, with the types of their answers."""
    from topics.wire.endpoints import ENDPOINTS  # noqa: PLC0415 - only this part needs the package

    sources = "".join(path.read_text() for path in CLIENT.glob("*.py"))
    asked = set(re.findall(r"\broutes\.([A-Z_]+)\b", sources))
    parsed = set(re.findall(r"\broutes\.([A-Z_]+)\.(?:parse|call)\b", sources))
    answers = _Answers()
    constants = []
    for endpoint in ENDPOINTS:
        name = re.sub(r"(?=[A-Z])", "_", endpoint.name).upper()
        if name in asked:
            kind = answers.of(endpoint) if name in parsed else "Raw"
            call = f'ApiRoute("{endpoint.method}", "{endpoint.path}", {kind})'
            constants.append(f"{name} = {call}")
            asked.remove(name)
    assert not asked, f"the table has no endpoints {asked}"
    header = (
        '"""The calls of the table of endpoints that the client makes, and what answers them.\n\n'
        "An answer is read into the result of the Python API that has its fields (`READ_AS` of\n"
        '`wire.shapes`), or else into a type made of its shape. Payloads stay text.\n"""'
    )
    text = (
        f"{header}\n\nfrom typing import Literal\n\n"
        f"from msgspec import UNSET, Raw, Struct, UnsetType\n\n"
        f"from topics.client._call import ApiRoute\nfrom topics.values import "
        f"{', '.join(sorted(answers.values))}\n\n"
        + "\n\n".join([*answers.made.values(), "\n".join(constants)])
    )
    return _finished(text, header, "../wire/endpoints")


class _Answers:
    """Types for answers, made of the shapes that the table names."""

    def __init__(self) -> None:
        self.values: set[str] = set()
        self.made: dict[str, str] = {}

    def of(self, endpoint: "Endpoint") -> str:
        from topics.wire.shapes import shape_of  # noqa: PLC0415

        success = endpoint.replies[min(endpoint.replies)]
        assert success.shape is not None, f"the answer of {endpoint.name} is no JSON"
        return self._named(shape_of(success.shape), with_performance=success.performance)

    def _named(self, shape: type[Any], *, with_performance: bool = False) -> str:
        from topics import values  # noqa: PLC0415
        from topics.wire import shapes  # noqa: PLC0415

        name = shapes.READ_AS.get(shape.__name__, shape.__name__)
        if hasattr(values, name):
            self.values.add(name)
            return name
        name = f"Parsed{name.removesuffix('Shape')}"
        if name not in self.made:
            fields = self._fields(shape)
            if with_performance:
                kind = self._named(shapes.Performance)
                fields.append(f"performance: {kind} | None = None")
            sent = zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True)
            renamed = {field: key for field, key in sent if field != key}
            options = f", rename={renamed}" if renamed else ""
            self.made[name] = f"class {name}(Struct{options}, kw_only=True):\n    " + "\n    ".join(
                fields
            )
        return name

    def _fields(self, shape: type[Any]) -> list[str]:
        """What may be absent is None; a payload is unset, because null may be one."""
        hints = get_type_hints(shape)
        fields = []
        for field in msgspec.structs.fields(shape):
            kind = self._kind(hints[field.name])
            if not field.required:
                kind += " | UnsetType = UNSET" if kind == "Raw" else " | None = None"
            fields.append(f"{field.name}: {kind}")
        return fields

    def _kind(self, hint: Any) -> str:  # noqa: ANN401 - a type
        if hint is Any:
            return "Raw"
        if hint is type(None):
            return "None"
        origin, parts = get_origin(hint), get_args(hint)
        if origin is Literal:
            return f"Literal{list(parts)}"
        if origin in {Union, UnionType}:
            return " | ".join(self._kind(part) for part in parts if part is not UnsetType)
        if origin is not None:
            inner = ", ".join(self._kind(part) for part in parts)
            return f"{origin.__name__}[{inner}]"
        return self._named(hint) if issubclass(hint, msgspec.Struct) else str(hint.__name__)


def _without_waits(twin: Twin) -> str:
    text = (CLIENT / twin.source).read_text()
    for old, new in twin.changes:
        assert old in text, f"{twin.source} has no {old!r}"
        text = text.replace(old, new)
    for pattern, new in WORDS:
        text = re.sub(pattern, new, text)
    return text


def _split(text: str, base: Base) -> tuple[str, str]:
    """The class of a text as a derived class and its base class, each with all of the imports."""
    lines = text.split("\n")
    (kind,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    derived, shared = lines[: kind.lineno], []
    derived[-1] = f"class {kind.name}({base.name}):"
    done = kind.lineno
    for method in kind.body:
        assert method.end_lineno is not None
        before, own = lines[done : method.lineno - 1], lines[method.lineno - 1 : method.end_lineno]
        done = method.end_lineno
        if not isinstance(method, ast.FunctionDef) or method.name in ONLY_REMOTE:
            derived += [*before, *own]
        elif method.name in SHARED:
            shared += [*before, *own]
        elif ast.get_docstring(method):
            help_text = method.body[0]
            assert help_text.end_lineno is not None
            end = help_text.end_lineno + 1 - method.lineno
            shared += [*before, "    @abstractmethod", *own[:end]]
            derived += [*before, *own[: help_text.lineno - method.lineno], *own[end:]]
        else:
            derived += [*before, *own]
    head = [*lines[: kind.lineno - 1], f"class {base.name}(Shown):", f'    """{base.summary}"""']
    text = _with_import("from abc import abstractmethod", [*head, *shared])
    for pattern, new in IN_A_BASE:
        text = re.sub(pattern, new, text)
    line = f"from topics.client.{base.target.removesuffix('.py')} import {base.name}"
    return _with_import(line, [*derived, *lines[done:]]), text


def _with_import(line: str, text: Sequence[str]) -> str:
    return "\n".join(text).replace("\nfrom topics", f"\n{line}\nfrom topics", 1)


def _finished(text: str, header: str, source: str) -> str:
    """With a header of its own, formatted, without imports that nothing uses any more."""
    note = f"# Made from `{source}` by tools/make_sync.py: change that, then `make fmt`."
    text = re.sub(r'\A""".*?"""', lambda _: f"{header}\n\n{note}", text, count=1, flags=re.DOTALL)
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(CLIENT / "sync.py"), "-"]
    rules = "I,F401,RUF022,TC005,UP028"
    for options in (
        ["check", "--fix-only", "--unsafe-fixes", "--quiet", "--select", rules],
        ["format"],
    ):
        done = subprocess.run(
            [*ruff, *options, *name], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def main(arguments: Sequence[str]) -> int:
    """Write the files, or say which are not as they would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args(arguments).check
    stale = []
    for name, text in made():
        target = CLIENT / name
        if target.exists() and target.read_text() == text:
            continue
        stale.append(name)
        if not check:
            target.write_text(text)
    if stale and check:
        print(f"{', '.join(stale)}: not made from the asyncio client; run `make fmt`")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
