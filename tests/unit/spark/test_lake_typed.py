"""Fields of data as columns: what fits, what becomes of the rest, and how columns change."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.seeds import seed_for
from tests.unit.spark.lake_parts import FakeTopic, Query, lake, records

from topics.errors import InvalidRequest, NotFound
from topics.spark.errors import ForeignTable
from topics.spark.lake import evolving
from topics.spark.lake.erasing import carry_deletes, erase_everywhere, matching
from topics.spark.lake.place import TablePath, committing
from topics.spark.lake.quick import QuickReader
from topics.spark.lake.shape import Struct, parsed
from topics.spark.lake.table import LakeTable
from topics.spark.lake.typed import Fitter, TypedAs
from topics.spark.lake.upkeep import Maintenance, maintain, remove_before_sync

AUTO = TypedAs()


@pytest.fixture
def place(tmp_path: Path) -> TablePath:
    return lake(tmp_path)


@pytest.fixture
def auto(place: TablePath) -> Query:
    return Query(place, FakeTopic(1000), AUTO)


def declared(keep_data: bool = False, **fields: object) -> TypedAs:
    shape = parsed(fields)
    assert isinstance(shape, Struct)
    return TypedAs(shape, keep_data)


def fields_in(place: TablePath) -> list[dict[str, Any]]:
    """Every row, by seq, without what all records have."""
    found = DeltaTable(place.path).to_pyarrow_table().sort_by("seq").to_pylist()
    own = ("epoch", "seq", "ts", "node", "tag", "meta")
    return [{name: row[name] for name in row if name not in own} for row in found]


def types_of(place: TablePath) -> dict[str, str]:
    schema = LakeTable.open(place).schema
    return {field.name: str(field.type) for field in schema if field.name not in schema.names[:6]}


def misfits(place: TablePath) -> list[tuple[int, str]]:
    if not LakeTable.exists(place.bad):
        return []
    found = DeltaTable(place.bad.path).to_pyarrow_table().sort_by("seq").to_pylist()
    return [(row["seq"], row["reason"]) for row in found]


def test_fields_become_columns_nested_ones_too_and_new_ones_are_added(auto: Query) -> None:
    auto.epoch(0, [records(1, {"id": 1, "who": {"name": "a"}, "tags": ["x"]})])
    auto.epoch(1, [records(2, {"id": 2, "who": {"name": "b", "age": 3}, "ok": True, "tags": []})])
    auto.epoch(2, [records(3, {"lines": [{"n": 1}]}, {"lines": [{"m": "x"}], "who": None})])
    none: dict[str, Any] = dict.fromkeys(("id", "who", "tags", "ok", "lines"))
    wanted = [
        {**none, "id": 1, "who": {"name": "a", "age": None}, "tags": ["x"]},
        {**none, "id": 2, "who": {"name": "b", "age": 3}, "ok": True, "tags": []},
        {**none, "lines": [{"n": 1, "m": None}]},
        {**none, "lines": [{"n": None, "m": "x"}]},
    ]
    assert fields_in(auto.place) == wanted
    assert misfits(auto.place) == []
    with duckdb.connect() as sql:
        sql.register("shown", DeltaTable(auto.place.path).to_pyarrow_dataset())
        assert sql.sql("SELECT who.age FROM shown WHERE id = 2").fetchall() == [(3,)]


def test_whole_numbers_become_doubles_in_the_files_that_are_there_as_well(auto: Query) -> None:
    auto.epoch(0, [records(1, {"n": 1, "deep": {"m": 7}})], [records(2, {"n": 2})])
    auto.epoch(1, [records(3, {"n": 3})], [records(4, {"n": 0.5, "deep": {"m": 0.25}})])
    assert types_of(auto.place) == {"n": "double", "deep": "struct<m: double>"}
    assert [row["n"] for row in fields_in(auto.place)] == [1.0, 2.0, 3.0, 0.5]
    assert [row["deep"] for row in fields_in(auto.place)] == [{"m": 7.0}, None, None, {"m": 0.25}]
    for uri in DeltaTable(auto.place.path).file_uris():
        assert pa.parquet.read_schema(uri).field("n").type == pa.float64()
    assert LakeTable.open(auto.place).position("orders", 17) == 4


def test_a_value_that_a_column_does_not_take_leaves_its_record_in_the_table_beside(
    auto: Query,
) -> None:
    auto.epoch(0, [records(1, {"id": 1, "who": {"n": 1}, "ok": True})])
    landed = auto.epoch(
        1,
        [
            records(
                2,
                {"id": "anna@example.org"},
                {"id": 2},
                {"id": 3, "who": {"n": "x"}},
                {"ok": 1},
                [1],
                "null",
                '{"id": 1e999}',
                {"Who": {"n": 2}, "who": None},
                {"id": 1 << 63},
            )
        ],
    )
    assert (landed.rows, landed.unfit) == (1, 8)
    assert misfits(auto.place) == [
        (2, "id is text, and the column is long"),
        (4, "who.n is text, and the column is long"),
        (5, "ok is a number, and the column is boolean"),
        (6, "data is no object"),
        (7, "data is no object"),
        (8, "data cannot be read: Number out of range"),
        (9, "two fields of the record are the column who"),
        (10, "id is a number, and the column is long"),
    ]
    kept = DeltaTable(auto.place.bad.path).to_pyarrow_table().sort_by("seq").to_pylist()
    assert json.loads(kept[0]["data"]) == {"id": "anna@example.org"}
    assert [row["id"] for row in fields_in(auto.place)] == [1, 2]
    assert LakeTable.open(auto.place).position("orders", 17) == 10


def test_a_new_field_of_several_kinds_is_text_whichever_task_saw_which(auto: Query) -> None:
    auto.epoch(0, [records(1, {"v": 1}, {"v": "x"})], [records(3, {"v": {"a": [1]}})])
    auto.epoch(1, [records(4, {"v": False}, {"v": 1.5}, {"v": "true"})])
    assert [row["v"] for row in fields_in(auto.place)] == [
        *("1", "x", '{"a":[1]}'),
        *("false", "1.5", "true"),
    ]
    assert misfits(auto.place) == []


def test_names_are_one_column_without_case_and_never_hide_what_a_record_has(auto: Query) -> None:
    auto.epoch(0, [records(1, {"Id": 1, "ts": 5, "first name": "a"})], [records(2, {"ID": 2})])
    auto.epoch(1, [records(3, {"id": 3, "Tag": "mine"})])
    found = fields_in(auto.place)
    assert [row["Id"] for row in found] == [1, 2, 3]
    assert [row["data_ts"] for row in found] == [5, None, None]
    assert [row["data_Tag"] for row in found] == [None, None, "mine"]
    assert found[0]["first_name"] == "a"


def test_the_original_data_is_a_column_on_request(place: TablePath) -> None:
    query = Query(place, FakeTopic(10), TypedAs(None, keep_data=True))
    query.epoch(0, [records(1, '{"n": 1.50, "data": 2}')])
    assert fields_in(place) == [{"data": '{"n": 1.50, "data": 2}', "n": 1.5, "data_data": 2}]


# A declared schema


def test_a_declared_schema_takes_exactly_what_it_says(place: TablePath) -> None:
    typed = declared(
        id="long not null",
        price="decimal(6,2)",
        at="timestamp",
        day="date",
        who={"name": "string", "vip": "boolean"},
        lines=[{"sku": "string", "n": "long"}],
        rate="double",
    )
    query = Query(place, FakeTopic(20), typed)
    whole = {
        "id": 1,
        "price": 1234.5,
        "at": "2026-03-01T09:00:00.25+01:00",
        "day": "2026-03-01",
        "who": {"name": "a", "vip": True, "more": 1},
        "lines": [{"sku": "x", "n": 2}],
        "rate": 1,
        "undeclared": [1],
    }
    bad: Sequence[Mapping[str, object]] = (
        {"price": 1},
        {"id": None},
        {"id": 1.0},
        {"id": 2, "price": 0.001},
        {"id": 2, "price": 12345},
        {"id": 2, "at": "soon"},
        {"id": 2, "day": "2026-02-30"},
        {"id": 2, "lines": [{"n": "x"}]},
        {"id": 2, "who": "a"},
        {"id": 2, "price": True},
    )
    query.epoch(0, [records(1, whole, {"id": 2, "at": 1500, "price": "0.10"}, *bad)])
    first, second = fields_in(place)
    assert first == {
        "id": 1,
        "price": Decimal("1234.50"),
        "at": datetime(2026, 3, 1, 8, 0, 0, 250_000, tzinfo=UTC),
        "day": date(2026, 3, 1),
        "who": {"name": "a", "vip": True},
        "lines": [{"sku": "x", "n": 2}],
        "rate": 1.0,
    }
    assert (second["at"], second["price"]) == (
        datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        Decimal("0.10"),
    )
    assert [reason for _, reason in misfits(place)] == [
        "id is missing",
        "id is null, and the column is long not null",
        "id is a number, and the column is long not null",
        *["price is a number, and the column is decimal(6,2)"] * 2,
        "at is text, and the column is timestamp",
        "day is text, and the column is date",
        "lines[].n is text, and the column is long",
        "who is text, and the column is an object",
        "price is a boolean, and the column is decimal(6,2)",
    ]


def test_a_declared_schema_can_grow_and_change_in_no_other_way(place: TablePath) -> None:
    Query(place, FakeTopic(10), declared(id="long")).epoch(0, [records(1, {"id": 1, "x": 2})])
    more = declared(id="long", x="double", who={"n": "long"})
    Query(place, FakeTopic(10), more).epoch(0, [records(2, {"id": 2, "x": 2})])
    assert [row["x"] for row in fields_in(place)] == [None, 2.0]
    assert LakeTable.open(place).typed == more
    for other, said in (
        (declared(id="string"), "the schema changes id, x, who of"),
        (AUTO, "has its columns from a declared schema"),
        (declared(True, id="long", x="double", who={"n": "long"}), "does not keep the column data"),
    ):
        with pytest.raises(ForeignTable, match=said):
            LakeTable.open(place).require_typed(other)


def test_a_table_of_text_stays_one_and_a_typed_one_goes_on_without_being_told(
    tmp_path: Path,
) -> None:
    text, typed = lake(tmp_path, "text"), lake(tmp_path, "typed")
    Query(text, FakeTopic(10)).records(0, 1, 10)
    with pytest.raises(ForeignTable, match="keeps data as text"):
        LakeTable.of_topic(text, "orders", origin="here", typed=AUTO)
    Query(typed, FakeTopic(10), AUTO).epoch(0, [records(1, {"id": 1})])
    version = LakeTable.open(typed).version
    assert LakeTable.of_topic(typed, "orders", origin="here").typed == AUTO
    assert LakeTable.of_topic(typed, "orders", origin="here", typed=AUTO).version == version


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id: longer", "the type of id is 'longer'; known are boolean, long"),
        ("a: {b: 'decimal(2,3)'}", r"the type of a\.b is 'decimal\(2,3\)'"),
        ("a: [long, long]", "the type of a is"),
        ("Id: long\nid: long", "two fields of the schema are called id"),
        ("a: {}", "a has no fields"),
        ("just text", "is no schema"),
        ("a: long\na: text", "is there twice"),
    ],
)
def test_a_schema_that_makes_no_sense_names_the_field(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        TypedAs.from_file(str(file), keep_data=False)


def test_a_schema_is_written_as_yaml(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("id: BIGINT  not null\nprice: decimal(10, 2)\nwho: {n: text}\nx: [int]\n")
    typed = TypedAs.from_file(str(file), keep_data=True)
    assert TypedAs.of_settings(typed.settings()) == typed
    assert [str(field) for field in typed.schema()][6:] == [
        "pyarrow.Field<data: string>",
        "pyarrow.Field<id: int64>",
        "pyarrow.Field<price: decimal128(10, 2)>",
        "pyarrow.Field<who: struct<n: string>>",
        "pyarrow.Field<x: list<item: int64>>",
    ]
    assert TypedAs.from_file("auto", keep_data=False) == AUTO
    with pytest.raises(NotFound):
        TypedAs.from_file(str(tmp_path / "absent.yaml"), keep_data=False)


VALUES = (
    *("null", "true", "0", "-1", "7", "1.5", "1.0", "1e3", "1e999", "9223372036854775808", "{}"),
    *('"x"', '"\\u00fc\\n"', '"2026-03-01"', '"2026-03-01T00:00:00Z"', '"2026-03-01 09:30"'),
    *('"\\ud800"', "[]", "[1]", "[null,2]", '["a"]', '{"a":1}', '{"a":null}', '{"A":2}'),
    "1" + "0" * 400,
    *('{"a":1,"a":2}', '{"b":"x"}', '[{"a":1}]', '{"a":"x"}', "1500"),
)
BASES: Sequence[object] = (
    *("boolean", "long", "double", "string", "date", "timestamp", "decimal(6,2)"),
    *({"a": "long"}, ["long"], [{"a": "double"}], "long not null", {"a": "date"}),
)


@pytest.mark.parametrize("base", BASES, ids=str)
@pytest.mark.parametrize("name", ["v", "ts"])
def test_records_read_in_one_pass_are_those_that_are_read_one_by_one(
    base: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = parsed({name: base, "w": "long"})
    assert isinstance(shape, Struct)
    is_by_rule = not isinstance(base, str) or base in ("boolean", "long", "double", "string")
    for typed in (TypedAs(shape), AUTO) if is_by_rule else (TypedAs(shape),):
        for value in VALUES:
            for text in (f'{{"{name}":{value}}}', f'{{"{name}":{value},"w":1,"more":1}}', value):
                batch = records(1, '{"w":3}', text, '{ "w" : 2 }')

                def made(batch: pa.RecordBatch = batch, typed: TypedAs = typed) -> object:
                    pairs = Fitter(typed, shape).fit(batch)
                    found = [(good.to_pylist(), bad and bad.to_pylist()) for good, bad in pairs]
                    return repr(found)

                quick = made()
                with monkeypatch.context() as patched:
                    patched.setattr(QuickReader, "read", lambda reader, texts: None)
                    assert quick == made(), text


def test_records_of_the_known_columns_are_read_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(*asked: object) -> None:
        raise AssertionError("nothing here needs a decision")

    shape = parsed({"ts": "long", "v": {"a": ["double"]}, "day": "date", "at": "timestamp"})
    assert isinstance(shape, Struct)
    fitter = Fitter(TypedAs(shape))
    monkeypatch.setattr(Fitter, "_one_by_one", one_by_one)
    data = {"ts": 1, "v": {"a": [1]}, "day": "2026-03-01", "at": "2026-03-01T00:00:00+01:00"}
    found = [row for good, _ in fitter.fit(records(1, *[data] * 2500)) for row in good.to_pylist()]
    assert len(found) == 2500
    assert found[-1]["data_ts"] == 1
    assert found[-1]["at"] == datetime(2026, 2, 28, 23, tzinfo=UTC)


# Once, and with its deletes


def test_an_epoch_that_died_before_it_landed_leaves_nothing_when_it_comes_again(
    auto: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*asked: object) -> None:
        raise SystemExit

    auto.epoch(0, [records(1, {"n": 1})])
    data = ({"n": 2}, {"n": "x"}, {"n": 0.5})
    with monkeypatch.context() as patched:
        patched.setattr(evolving, "_rewritten", die)  # the table is wider, the rows are not there
        with pytest.raises(SystemExit):
            auto.epoch(1, [records(2, *data[:2])], [records(4, data[2])])
    assert [row["n"] for row in fields_in(auto.place)] == [1.0]
    again = auto.stage(1, [records(2, *data)])
    assert auto.land(1, again).rows == 2
    assert auto.land(1, auto.stage(1, [records(2, *data)])).deduped
    remove_before_sync(auto.place)
    assert [row["n"] for row in fields_in(auto.place)] == [1.0, 2.0, 0.5]
    assert misfits(auto.place) == [(3, "n is text, and the column is double")]
    maintain(auto.place, Maintenance(0))
    for place in (auto.place, auto.place.bad):
        named = {file.name for file in LakeTable.open(place).files()}
        assert {name for name in os.listdir(place.path) if name.endswith(".parquet")} == named


def test_deletes_reach_records_that_fit_and_those_that_do_not(auto: Query) -> None:
    auto.epoch(0, [records(1, *({"n": n, "mail": "anna"} for n in range(8)), {"n": 9}, "[1]")])
    auto.epoch(1, [records(11, {"n": "anna@example.org"}, {"n": 1, "mail": "anna"})])
    auto.topic.delete(2, 2)
    auto.topic.delete(10, 12)
    assert carry_deletes(auto.place, auto.topic).rows == 4
    assert [seq for seq, _ in misfits(auto.place)] == []
    keys = matching(auto.place, "cust-0007")
    assert [runs for _, runs in keys] == [[(7, 7)]]
    with committing(auto.place):
        assert erase_everywhere(auto.place, keys, cause="match").rows == 1
    receipt = maintain(auto.place, Maintenance(0, ["anna@example.org"]), origin=auto.topic)
    assert receipt.found == 0, [str(hit) for hit in receipt.scanned.hits]
    assert [list(run) for _, runs in receipt.erased for run in runs] == [[2, 2], [7, 7], [10, 12]]
    left = [row["n"] for row in fields_in(auto.place)]
    assert left == [0, 2, 3, 4, 5, 7, 9]
    assert len(LakeTable.open(auto.place).files()) == 1


def test_random_records_deletes_kills_and_maintenance_leave_what_a_model_says(
    tmp_path: Path,
) -> None:
    seed = seed_for("TOPICS_TYPED_SEED")
    for number in range(int(os.environ.get("TOPICS_TYPED_HISTORIES", "6"))):
        try:
            _history(lake(tmp_path, f"t{number}"), random.Random(seed + number))
        except BaseException as error:
            error.add_note(f"the seed of this history is {seed + number}")
            raise


def _history(place: TablePath, chance: random.Random) -> None:
    """Numbers and objects that grow; text where a number was does not fit."""
    query = Query(place, FakeTopic(10_000), AUTO)
    query.epoch(0, [records(1, {"n": 0, "o": {"a": 0}})])
    good: dict[int, dict[str, Any]] = {1: {"n": 0, "o": {"a": 0}}}
    bad: set[int] = set()
    head, version = 1, 0
    for _ in range(chance.randrange(3, 9)):
        match chance.randrange(5):
            case 0:
                gone = chance.randrange(1, head + 1)
                query.topic.delete(gone, min(gone + 1, head))
                carry_deletes(place, query.topic)
                for seq in range(gone, min(gone + 1, head) + 1):
                    good.pop(seq, None)
                    bad.discard(seq)
            case 1:
                maintain(place, Maintenance(chance.choice((0, 168))))
            case _:
                made = [_record(chance) for _ in range(chance.randrange(1, 6))]
                version += 1
                first = head + 1
                cuts = sorted(chance.choices(range(len(made) + 1), k=2))
                parts = [made[: cuts[0]], made[cuts[0] : cuts[1]], made[cuts[1] :]]
                starts = [first, first + cuts[0], first + cuts[1]]
                batches = [
                    [records(at, *part)] for at, part in zip(starts, parts, strict=True) if part
                ]
                if chance.random() < 0.3:
                    query.stage(version, *batches)  # tasks of an attempt that was killed
                query.epoch(version, *batches)
                for seq, value in enumerate(made, first):
                    if isinstance(value["n"], str):
                        bad.add(seq)
                    else:
                        good[seq] = value
                head += len(made)
    found = DeltaTable(place.path).to_pyarrow_table().to_pylist()
    shown = {row["seq"]: row for row in found}
    assert len(shown) == len(found)
    assert shown.keys() == good.keys()
    for seq, value in good.items():
        inner = {name: item for name, item in (shown[seq]["o"] or {}).items() if item is not None}
        assert (shown[seq]["n"], inner) == (value["n"], value.get("o") or {})
    assert {seq for seq, _ in misfits(place)} == bad


def _record(chance: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"n": chance.choice((1, 2, 3, 0.5, "x"))}
    if chance.random() < 0.5:
        made["o"] = {chance.choice("abcd"): chance.choice((1, 1, 1, 2.5))}
    return made
