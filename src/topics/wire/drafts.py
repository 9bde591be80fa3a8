"""Python objects as the columns of a write: records as callers of the Python API give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from topics.batch import RecordBatch
from topics.errors import InvalidRequest
from topics.wire.jsonbytes import compact, compact_all, encode, encode_all

FIELDS = ("data", "tag", "node", "meta")
Records = Iterable[Mapping[str, Any]] | Mapping[str, Any]
"""Records as callers give them: `{"data": ...}` mappings, or a single one."""
_KNOWN = frozenset(FIELDS)
_RAW = (bytes, bytearray, memoryview)
_BYTES_ARE_JSON = (
    "Bytes as data must be JSON: decode text, and encode other bytes, as base64 for example"
)


def batch_of(records: Records, node: str | None) -> RecordBatch:
    """`{"data": ...}` mappings, or a single one, as a batch; `node` is for those without."""
    items = records if type(records) is list else _listed(records)
    try:
        values = [record["data"] for record in items]
    except (KeyError, TypeError, IndexError):
        _explain_first(items)
    datas = [_json(values[0])] if len(values) == 1 else _datas(values)
    if node is None and sum(map(len, items)) == len(items):
        return RecordBatch(datas)
    for index, record in enumerate(items):
        if not record.keys() <= _KNOWN:
            _explain(record, index)
    return RecordBatch(
        datas, _metas(items), _names(items, "tag", None), _names(items, "node", node)
    )


def _listed(records: Records) -> list[Mapping[str, Any]]:
    if isinstance(records, Mapping):
        return [records]
    if isinstance(records, (str, *_RAW)) or not isinstance(records, Iterable):
        _explain_no_records(records)
    return list(records)


def _explain_no_records(given: object) -> NoReturn:
    """A value where records belong: say how it becomes one."""
    kind = type(given).__name__
    if isinstance(given, _RAW):
        raise InvalidRequest(
            f'got {kind} instead of records; append {{"data": value}}. {_BYTES_ARE_JSON}'
        )
    raise InvalidRequest(
        f'got {kind} instead of records; append {{"data": value}}, or a list of such records'
    )


def _datas(values: list[Any]) -> list[bytes]:
    """Each value as the JSON to store."""
    ready = {issubclass(kind, _RAW) for kind in set(map(type, values))}
    if ready == {True}:
        try:
            return compact_all(values)
        except InvalidRequest as error:
            raise _no_json(error) from error
    if ready == {False}:
        return encode_all(values)
    return [_json(value) for value in values]


def _json(value: object) -> bytes:
    if not isinstance(value, _RAW):
        return encode(value)
    try:
        return compact(value)
    except InvalidRequest as error:
        raise _no_json(error) from error


def _no_json(error: InvalidRequest) -> InvalidRequest:
    return InvalidRequest(f"{error}. {_BYTES_ARE_JSON}")


def split_topics(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Mappings that also name the `topic` of each record, as topics and records."""
    topics: list[str] = []
    drafts: list[Mapping[str, Any]] = []
    for index, record in enumerate(_listed(rows)):
        if not isinstance(record, Mapping):
            _explain(record, index)
        topic = record.get("topic")
        if not isinstance(topic, str):
            raise InvalidRequest(f'record {index} needs a "topic", the name of the one it is for')
        topics.append(topic)
        drafts.append({field: value for field, value in record.items() if field != "topic"})
    return topics, drafts


def _metas(items: list[Mapping[str, Any]]) -> list[bytes] | None:
    if all(item.get("meta") is None for item in items):
        return None
    return [b"" if item.get("meta") is None else _json(item["meta"]) for item in items]


def _names(
    items: list[Mapping[str, Any]], field: str, default: str | None
) -> list[str | None] | None:
    names: list[str | None] = []
    for index, item in enumerate(items):
        name = item.get(field)
        if name is None:
            name = default
        elif not isinstance(name, str):
            raise InvalidRequest(f"the {field} of record {index} must be a string, got {name!r}")
        names.append(name)
    return names if any(name is not None for name in names) else None


def _explain_first(items: list[Any]) -> NoReturn:
    for index, record in enumerate(items):
        if not isinstance(record, Mapping) or "data" not in record:
            _explain(record, index)
    raise InvalidRequest('a record gives no "data" when asked for it')


def _explain(record: object, index: int) -> NoReturn:
    """Say what is wrong with a record, and what was probably meant."""
    if not isinstance(record, Mapping):
        raise InvalidRequest(
            f'record {index} is of type {type(record).__name__}; wrap it: {{"data": ...}}'
        )
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, rarely needed

    for key in record:
        if key not in FIELDS:
            near = get_close_matches(str(key), FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else 'put payload fields under "data"'
            raise InvalidRequest(f"record {index} has an unknown field {key!r}; {hint}")
    raise InvalidRequest(f'record {index} has no "data"; use None for an empty payload')
