"""A flow file is understood as written, or refused with the file, the key and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from topics.errors import NotFound
from topics.spark.errors import InvalidFlow
from topics.spark.flows.file import Flow, FlowSource, Function, ToTable, ToTopic, load

OPTIONS = ("startingOffsets", "endingOffsets", "match", "maxRecordsPerTrigger", "includeDeleted")
SMALL = "from: orders\nsql: SELECT * FROM orders\nto: {topic: totals}\n"


def loaded(folder: Path, text: str, name: str = "totals.yaml") -> Flow:
    file = folder / name
    file.write_text(text)
    return load(file, source_options=OPTIONS)


def refusal(folder: Path, text: str, name: str = "totals.yaml") -> str:
    with pytest.raises(InvalidFlow) as refused:
        loaded(folder, text, name)
    return str(refused.value)


def test_the_smallest_flow_gets_its_name_checkpoint_and_trigger_from_its_file(
    tmp_path: Path,
) -> None:
    flow = loaded(tmp_path, SMALL)
    assert flow == Flow(
        file=tmp_path / "totals.yaml",
        name="totals",
        sources=(FlowSource("orders"),),
        transform="SELECT * FROM orders",
        target=ToTopic("totals"),
        trigger="1 second",
        checkpoint=tmp_path / ".topics" / "flows" / "totals",
    )
    assert flow.cursor == "flow.totals"
    assert not flow.runs_once


def test_every_key_is_understood(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text("def make(df):\n    return df\n")
    flow = loaded(
        tmp_path,
        """
        name: big
        from:
          orders:
            schema: "id long"
            onBadData: rows
            startingOffsets: earliest
            maxRecordsPerTrigger: 500
            includeDeleted: true
          customers:
        python: lib.py:make
        to: {table: ./lake/big}
        trigger: once
        checkpoint: /tmp/checkpoints/big
        """,
    )
    orders, customers = flow.sources
    assert orders == FlowSource(
        "orders",
        schema="id long",
        on_bad_data="rows",
        options={
            "startingOffsets": "earliest",
            "maxRecordsPerTrigger": "500",
            "includeDeleted": "true",
        },
    )
    assert customers == FlowSource("customers")
    assert flow.transform == Function(tmp_path / "lib.py", "make")
    assert flow.target == ToTable(tmp_path / "lake" / "big")
    assert flow.checkpoint == Path("/tmp/checkpoints/big")
    assert flow.runs_once


@pytest.mark.parametrize("given", ["orders", "[orders]", "{orders: }", "{orders: {}}"])
def test_one_topic_can_be_named_in_every_usual_way(tmp_path: Path, given: str) -> None:
    flow = loaded(tmp_path, SMALL.replace("from: orders", f"from: {given}"))
    assert flow.sources == (FlowSource("orders"),)


def test_a_bare_seq_means_that_seq_of_this_topic(tmp_path: Path) -> None:
    text = SMALL.replace("orders\nsql", "{orders: {startingOffsets: 17}}\nsql")
    (source,) = loaded(tmp_path, text).sources
    assert source.options == {"startingOffsets": '{"orders": 17}'}


def test_a_python_file_is_a_flow(tmp_path: Path) -> None:
    text = """
from dataclasses import dataclass

@dataclass
class Rate:
    value: float

flow = {"from": ["orders", "eu.rates"], "to": {"topic": "totals"}, "trigger": "2 minutes"}

def transform(orders, rates):
    return orders
"""
    flow = loaded(tmp_path, text, "totals.py")
    assert flow.name == "totals"
    assert flow.transform == Function(tmp_path / "totals.py", "transform")
    assert [source.view for source in flow.sources] == ["orders", "eu_rates"]
    assert flow.trigger == "2 minutes"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("triger: once", "did you mean `trigger`?"),
        ("SQL: SELECT 1", "did you mean `sql`?"),
        ("check_point: x", "did you mean `checkpoint`?"),
        ("schedule: x", "known: name, from, sql, python, to, trigger, checkpoint"),
    ],
)
def test_an_unknown_key_is_refused_with_the_near_miss(
    tmp_path: Path, given: str, near: str
) -> None:
    said = refusal(tmp_path, SMALL + given + "\n")
    assert near in said
    assert str(tmp_path / "totals.yaml") in said


def test_an_unknown_option_of_a_source_is_refused_with_its_documented_spelling(
    tmp_path: Path,
) -> None:
    said = refusal(tmp_path, SMALL.replace("orders\nsql", "{orders: {startingoffset: 1}}\nsql"))
    assert "`startingoffset` is no key of from.orders; did you mean `startingOffsets`?" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("from: orders\n", "", "`from` is missing"),
        ("from: orders", "from: []", "`from` is empty"),
        ("from: orders", "from: 5", "`from` is 5"),
        ("from: orders", "from: _orders", "cannot be the name of a topic"),
        ("from: orders", "from: {orders: earliest}", "the settings of orders are 'earliest'"),
        ("from: orders", "from: {orders: {cursor: x}}", "the flow sets `cursor` itself"),
        ("from: orders", "from: {orders: {onBadData: drop}}", "choose fail, skip, or rows"),
        ("from: orders", "from: {orders: {schema: 5}}", "from.orders.schema"),
        ("from: orders", "from: [a.b, a-b]", "would share the view a_b"),
        ("sql: SELECT * FROM orders\n", "", "neither is there"),
        ("to:", "python: a.py\nto:", "both are there"),
        ("sql: SELECT * FROM orders", "sql: ''", "it has to be text"),
        ("sql: SELECT * FROM orders", "python: nowhere.py", "there is no file"),
        ("sql: SELECT * FROM orders", "python: nowhere", "flow.py:transform"),
        ("to: {topic: totals}\n", "", "to: {topic: NAME}"),
        ("{topic: totals}", "{topic: a, table: b}", "to: {topic: NAME}"),
        ("{topic: totals}", "{tpic: a}", "did you mean `topic`?"),
        ("{topic: totals}", "{table: s3://bucket/x}", "only paths of this machine"),
        ("to:", "trigger: soon\nto:", "such as 5 seconds"),
        ("to:", "trigger: 0 seconds\nto:", "such as 5 seconds"),
        ("to:", "name: a b\nto:", "cannot be the name of a flow"),
        ("to:", "checkpoint: 5\nto:", "it has to be a path"),
        ("to:", "sql: x\nto:", "the key 'sql' is there twice"),
        ("from: orders", "from: {orders", "is not YAML"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in SMALL
    assert said in refusal(tmp_path, SMALL.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("totals.yaml", "", "holds no flow"),
        ("totals.json", "{}", "neither YAML nor Python"),
        ("totals.py", "x = 1\n", "needs a mapping `flow`"),
        ("totals.py", "flow = {'sql': 'x'}\ndef transform(df): ...\n", "leave it out"),
        ("totals.py", "1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_file_that_is_no_flow_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text, name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="the file"):
        load(tmp_path / "nowhere.yaml")
