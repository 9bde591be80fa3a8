"""Python objects as a batch of drafts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from topics.core.batch import RecordBatch
from topics.errors import InvalidRequest
from topics.wire.jsonbytes import compact, encode

FIELDS = ("data", "tag", "node", "meta")
_RAW = (bytes, bytearray, memoryview)


def batch_of(
    records: Iterable[Mapping[str, Any]] | Mapping[str, Any], node: str | None
) -> RecordBatch:
    """`{"data": ...}` mappings, or a single one, as columns; `node` is for those without."""
    if isinstance(records, Mapping):
        records = (records,)
    items = list(records)
    datas: list[bytes] = []
    plain = node is None
    for index, record in enumerate(items):
        try:
            value = record["data"]
        except (KeyError, TypeError, IndexError):
            _explain(record, index)
        datas.append(compact(value) if isinstance(value, _RAW) else encode(value))
        plain = plain and len(record) == 1
    if plain:
        return RecordBatch(datas)
    for index, record in enumerate(items):
        if not record.keys() <= set(FIELDS):
            _explain(record, index)
    return RecordBatch(
        datas, _metas(items), _names(items, "tag", None), _names(items, "node", node)
    )


def _metas(items: list[Mapping[str, Any]]) -> list[bytes] | None:
    if all(item.get("meta") is None for item in items):
        return None
    return [_json(item.get("meta")) for item in items]


def _json(meta: object) -> bytes:
    if meta is None:
        return b""
    return compact(meta) if isinstance(meta, _RAW) else encode(meta)


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


def _explain(record: object, index: int) -> NoReturn:
    """Say what is wrong with a record, and what was probably meant."""
    if not isinstance(record, Mapping):
        raise InvalidRequest(
            f'record {index} is a {type(record).__name__}; wrap it: {{"data": ...}}'
        )
    for key in record:
        if key not in FIELDS:
            near = get_close_matches(str(key), FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else 'put payload fields under "data"'
            raise InvalidRequest(f"record {index} has an unknown field {key!r}; {hint}")
    raise InvalidRequest(f'record {index} has no "data"; use None for an empty payload')
