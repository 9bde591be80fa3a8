"""Python objects as a batch of drafts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from topics.core.batch import RecordBatch
from topics.engine.staging import StageRows
from topics.errors import InvalidRequest
from topics.wire.jsonbytes import compact, compact_all, encode, encode_all

FIELDS = ("data", "tag", "node", "meta")
_KNOWN = frozenset(FIELDS)
_RAW = (bytes, bytearray, memoryview)


def batch_of(
    records: Iterable[Mapping[str, Any]] | Mapping[str, Any], node: str | None
) -> RecordBatch:
    """`{"data": ...}` mappings, or a single one, as columns; `node` is for those without."""
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


def _listed(records: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [records] if isinstance(records, Mapping) else list(records)


def _datas(values: list[Any]) -> list[bytes]:
    """Each value as the JSON to store."""
    ready = {issubclass(kind, _RAW) for kind in set(map(type, values))}
    if ready == {True}:
        return compact_all(values)
    if ready == {False}:
        return encode_all(values)
    return [_json(value) for value in values]


def _json(value: object) -> bytes:
    return compact(value) if isinstance(value, _RAW) else encode(value)


def stage_rows_of(records: Iterable[Mapping[str, Any]]) -> StageRows:
    """Mappings that also name the `topic` of each record; none is fine."""
    topics: list[str] = []
    drafts: list[Mapping[str, Any]] = []
    for index, record in enumerate(records):
        if not isinstance(record, Mapping):
            _explain(record, index)
        topic = record.get("topic")
        if not isinstance(topic, str):
            raise InvalidRequest(f'record {index} needs a "topic", the name of the one it is for')
        topics.append(topic)
        drafts.append({field: value for field, value in record.items() if field != "topic"})
    return StageRows(topics, batch_of(drafts, None))


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
            f'record {index} is a {type(record).__name__}; wrap it: {{"data": ...}}'
        )
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, rarely needed

    for key in record:
        if key not in FIELDS:
            near = get_close_matches(str(key), FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else 'put payload fields under "data"'
            raise InvalidRequest(f"record {index} has an unknown field {key!r}; {hint}")
    raise InvalidRequest(f'record {index} has no "data"; use None for an empty payload')
