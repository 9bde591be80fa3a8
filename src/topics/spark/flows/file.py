"""What a flow is: the file that describes it, read and judged before anything is started.

    name: totals               default: the file's name
    from:                      one topic, a list of topics, or a mapping with settings
      orders:
        schema: "id long, amount double, at timestamp"
        onBadData: fail        or skip, or rows: see `views`
        startingOffsets: earliest        and any other option of the source
    sql: SELECT ...            or   python: flow.py:transform
    to: {topic: totals}        or   {table: ./lake/totals}
    trigger: 5 seconds         or   once
    checkpoint: ./.topics/flows/totals

The same in Python is a file with a mapping `flow` of these keys and a function `transform`, which
gets one DataFrame for each topic, in the order of the file. Paths are relative to the file, so
that a flow finds its checkpoint from wherever it is started.

An unknown key is refused: a misspelt `startingOffsets` would otherwise silently read another range
than the one that was meant.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import yaml  # type: ignore[import-untyped]  # ships no types

from topics.errors import NotFound
from topics.spark.errors import InvalidFlow

BadData = Literal["fail", "skip", "rows"]

KEYS = ("name", "from", "sql", "python", "to", "trigger", "checkpoint")
SOURCE_KEYS = ("schema", "onBadData")
SET_BY_THE_FLOW = ("cursor", "subscribe", "subscribePattern")
DEFAULT_TRIGGER = "1 second"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_INTERVAL = re.compile(r"[1-9]\d* *(millisecond|second|minute|hour)s?")


@dataclass(frozen=True)
class FlowSource:
    """One topic that a flow reads. `options` are those of the data source, as text."""

    topic: str
    schema: str | None = None
    on_bad_data: BadData = "fail"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def view(self) -> str:
        """The name of its view in SQL: the topic's, with `_` for what SQL would not take."""
        return re.sub(r"\W", "_", self.topic, flags=re.ASCII)


@dataclass(frozen=True)
class ToTopic:
    """The flow's rows become records of this topic."""

    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic}"


@dataclass(frozen=True)
class ToTable:
    """The flow's rows are appended to the Delta table at this path."""

    path: Path

    def __str__(self) -> str:
        return f"table {self.path}"


@dataclass(frozen=True)
class Flow:
    """A flow, judged: names are usable, keys are known, exactly one transformation is there."""

    file: Path
    name: str
    sources: Sequence[FlowSource]
    transform: str | Function
    target: ToTopic | ToTable
    trigger: str
    checkpoint: Path

    @property
    def runs_once(self) -> bool:
        """Whether it ends when it has read what is there at its start."""
        return self.trigger == "once"

    @property
    def cursor(self) -> str:
        """The named cursor under which every source shows how far the flow is."""
        return f"flow.{self.name}"


def load(path: str | Path, *, source_options: Sequence[str] = ()) -> Flow:
    """Read a flow file. `source_options` are the options that the data source knows.

    Raises `InvalidFlow`, which names the file, the key and the remedy, or `NotFound` if there is no
    file. Nothing is started.
    """
    file = Path(path).absolute()
    return _FlowFile(file, source_options).flow(load_mapping(file))


class _FlowFile:
    """Judges the parts of one file; every complaint names that file."""

    def __init__(self, file: Path, source_options: Sequence[str]) -> None:
        self._file = file
        self._options = source_options

    def flow(self, given: Mapping[str, Any]) -> Flow:
        self._only(KEYS, given, where="")
        name = self._name(given.get("name", self._file.stem))
        return Flow(
            file=self._file,
            name=name,
            sources=self._sources(given.get("from")),
            transform=self._transform(given),
            target=self._target(given.get("to")),
            trigger=self._trigger(given.get("trigger", DEFAULT_TRIGGER)),
            checkpoint=self._path(given.get("checkpoint", f"./.topics/flows/{name}"), "checkpoint"),
        )

    # The parts

    def _name(self, given: object) -> str:
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise self._wrong(
                f"{given!r} cannot be the name of a flow",
                "use letters, digits, '.', '_', ':' and '-', the first one a letter or a digit",
            )
        return given

    def _sources(self, given: object) -> tuple[FlowSource, ...]:
        match given:
            case None:
                raise self._wrong("`from` is missing", "name the topic to read, as in from: orders")
            case str():
                settings: dict[object, object] = {given: None}
            case list():
                settings = dict.fromkeys(given)
            case dict():
                settings = given
            case _:
                raise self._wrong(f"`from` is {given!r}", "name a topic, as in from: orders")
        sources = tuple(self._source(topic, each) for topic, each in settings.items())
        if not sources:
            raise self._wrong("`from` is empty", "name the topic to read, as in from: orders")
        self._distinct_views(sources)
        return sources

    def _source(self, topic: object, given: object) -> FlowSource:
        name = self._topic(topic, "from")
        if given is None:
            return FlowSource(name)
        if not isinstance(given, Mapping):
            raise self._wrong(
                f"the settings of {name} are {given!r}", f"write from: {{{name}: {{schema: ...}}}}"
            )
        self._not_set_by_hand(given)
        self._only((*SOURCE_KEYS, *self._options), given, where=f" of from.{name}")
        return FlowSource(
            name,
            schema=self._text(given.get("schema"), f"from.{name}.schema"),
            on_bad_data=self._bad_data(given.get("onBadData", "fail"), name),
            options={
                key: self._local(key, _as_option(name, key, value), f"from.{name}")
                for key, value in given.items()
                if key not in SOURCE_KEYS
            },
        )

    def _local(self, key: str, text: str, where: str) -> str:
        """Options that name something on this machine name it as seen from the file."""
        return str(self._path(text, f"{where}.{key}")) if key in ("path", "caFile") else text

    def _not_set_by_hand(self, given: Mapping[str, Any]) -> None:
        for key in SET_BY_THE_FLOW:
            if key in given:
                raise self._wrong(f"the flow sets `{key}` itself", "leave it out")

    def _bad_data(self, given: object, topic: str) -> BadData:
        for known in get_args(BadData):
            if given == known:
                return known  # type: ignore[no-any-return]  # get_args gives Any
        raise self._wrong(
            f"from.{topic}.onBadData is {given!r}",
            f"choose fail, skip, or rows (they are in the view {FlowSource(topic).view}__bad)",
        )

    def _distinct_views(self, sources: Sequence[FlowSource]) -> None:
        seen: dict[str, str] = {}
        for source in sources:
            other = seen.setdefault(source.view.lower(), source.topic)
            if other != source.topic:
                raise self._wrong(
                    f"the topics {other} and {source.topic} would share the view {source.view}",
                    "read them in two flows",
                )

    def _transform(self, given: Mapping[str, Any]) -> str | Function:
        chosen = [key for key in ("sql", "python") if given.get(key) is not None]
        if len(chosen) != 1:
            said = "both are there" if chosen else "neither is there"
            raise self._wrong(f"a flow has either `sql` or `python`, and {said}", "keep one")
        text = given[chosen[0]]
        if chosen == ["python"] and isinstance(text, Function):
            return text
        if not isinstance(text, str) or not text.strip():
            raise self._wrong(f"`{chosen[0]}` is {text!r}", "it has to be text")
        return text if chosen == ["sql"] else self._function(text)

    def _function(self, text: str) -> Function:
        path, _, name = text.rpartition(":") if ":" in text else (text, "", "transform")
        if not path.endswith(".py") or not name.isidentifier():
            raise self._wrong(f"`python` is {text!r}", "write it as flow.py:transform")
        function = Function(self._path(path, "python"), name)
        if not function.path.exists():
            raise self._wrong(f"there is no file {function.path}", "correct `python`")
        if not may_define(function):
            raise InvalidFlow(f"{function.path} has no function {function.name}")
        return function

    def _target(self, given: object) -> ToTopic | ToTable:
        if not isinstance(given, Mapping) or len(given) != 1:
            raise self._wrong(
                "`to` has to say where rows go", "write to: {topic: NAME} or to: {table: PATH}"
            )
        self._only(("topic", "table"), given, where=" of to")
        ((kind, value),) = given.items()
        if kind == "topic":
            return ToTopic(self._topic(value, "to.topic"))
        return ToTable(self._path(value, "to.table"))

    def _trigger(self, given: object) -> str:
        if given == "once":
            return "once"
        if not isinstance(given, str) or not _INTERVAL.fullmatch(given):
            raise self._wrong(
                f"`trigger` is {given!r}", "write once, or an interval such as 5 seconds"
            )
        return given

    # Plain values

    def _topic(self, given: object, where: str) -> str:
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise self._wrong(f"`{where}` names {given!r}", "that cannot be the name of a topic")
        return given

    def _text(self, given: object, where: str) -> str | None:
        if given is not None and (not isinstance(given, str) or not given.strip()):
            raise self._wrong(f"`{where}` is {given!r}", "it has to be text")
        return given

    def _path(self, given: object, where: str) -> Path:
        if not isinstance(given, str) or not given:
            raise self._wrong(f"`{where}` is {given!r}", "it has to be a path")
        path = Path(given.removeprefix("file://")).expanduser()
        if "://" in given and not given.startswith("file:///"):
            raise self._wrong(f"`{where}` is {given!r}", "only paths of this machine can be used")
        return (self._file.parent / path).resolve()

    def _only(self, known: Sequence[str], given: Mapping[str, Any], *, where: str) -> None:
        for key in given:
            if key not in known:
                raise InvalidFlow.unknown_key(str(key), known, file=self._file, where=where)

    def _wrong(self, said: str, remedy: str) -> InvalidFlow:
        return InvalidFlow(f"{self._file}: {said}; {remedy}")


def _as_option(topic: str, key: str, value: object) -> str:
    """A setting as the data source takes it; a bare seq stands for that seq of this topic."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if key.endswith("Offsets") and isinstance(value, int):
        return json.dumps({topic: value})
    if isinstance(value, Mapping | list):
        return json.dumps(value)
    return str(value)


MAPPING, FUNCTION = "flow", "transform"


@dataclass(frozen=True)
class Function:
    """A Python function that makes the flow's rows from its sources."""

    path: Path
    name: str = FUNCTION


def may_define(function: Function) -> bool:
    """Whether its file has something of that name; asks the text, and runs nothing.

    A file may use what only a running Spark has, so it is run after Spark has started. A flow that
    could not begin for want of the function is refused before that.
    """
    try:
        body = ast.parse(function.path.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
        raise InvalidFlow(f"{function.path} cannot be run: {where}") from error
    made = [_names(statement) for statement in body]
    return None in made or any(function.name in names for names in made if names)


def _names(statement: ast.stmt) -> list[str] | None:
    """The names that a statement makes; None if its text does not tell."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Import() | ast.ImportFrom():
            names = [each.asname or each.name.partition(".")[0] for each in statement.names]
            return None if "*" in names else names
        case ast.Assign(targets=targets):
            named = [each.id for each in targets if isinstance(each, ast.Name)]
            return named if len(named) == len(targets) else None
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Expr() | ast.Pass():
            return []
    return None


def load_mapping(file: Path) -> dict[str, Any]:
    """The keys of a flow file and their values, not judged yet."""
    if not file.exists():
        raise NotFound(f"the file {file}")
    if file.suffix == ".py":
        return _from_python(file)
    if file.suffix in (".yaml", ".yml"):
        return _from_yaml(file)
    raise InvalidFlow(f"{file} is neither YAML nor Python; name it *.yaml, *.yml or *.py")


def load_module(file: Path) -> ModuleType:
    """Run a Python file of the user's under a name that clashes with nothing."""
    name = f"topics_flow_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses in the file look for their module there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidFlow(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    return module


def _from_python(file: Path) -> dict[str, Any]:
    module = load_module(file)
    given = getattr(module, MAPPING, None)
    if not isinstance(given, dict) or not callable(getattr(module, FUNCTION, None)):
        raise InvalidFlow(
            f"{file} needs a mapping `{MAPPING}` with the keys from, to, ... and a function "
            f"`{FUNCTION}`"
        )
    for key in ("sql", "python"):
        if key in given:
            raise InvalidFlow(f"{file}: `{key}` has no place beside `{FUNCTION}`; leave it out")
    return {**given, "python": Function(file, FUNCTION)}


def read_yaml(file: Path) -> object:
    """What a YAML file says; a key given twice is an error."""
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidFlow(f"{file} is not YAML: {error}") from error


def _from_yaml(file: Path) -> dict[str, Any]:
    given = read_yaml(file)
    if not isinstance(given, dict):
        raise InvalidFlow(f"{file} holds no flow; it needs the keys from, sql or python, and to")
    return given


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # its base has no types
    """YAML as everywhere, except that a key given twice is an error and not the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping
