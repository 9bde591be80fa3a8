"""What SQL sees of a topic, and what becomes of the rows that SQL makes.

    <topic>          data rows: the fields of `schema`, or `data` as JSON text without one,
                     and _seq _ts _node _tag _meta
    <topic>__loss    runs that cap, TTL or a crash took: epoch, seq, last_seq, kind, reason, ts
    <topic>__bad     with `onBadData: rows`: records that do not fit `schema`, as _seq ... data

On the way back `_tag`, `_node`, `_meta` and `_topic` are the record's own, `_seq` and `_ts` belong
to the record that was read and are left out, and every other column is a field of `data`. So
`SELECT * FROM orders` copies records with their tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from topics.spark.errors import FlowFailed
from topics.spark.flows.file import FlowSource
from topics.spark.jobs.queries import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

OF_THE_RECORD: Final = ("_tag", "_node", "_meta", "_topic")
OF_THE_SOURCE: Final = ("_seq", "_ts")
_META: Final = tuple(f"{name} AS _{name}" for name in ("seq", "ts", "node", "tag", "meta"))
_LOSS: Final = ("epoch", "seq", "last_seq", "kind", "reason", "ts")
_BAD: Final = "_bad"


def watched(topic: str) -> str:
    """Under which name Spark counts what a batch read of a topic."""
    return f"read {topic}"


def create_views(
    spark: SparkSession, source: FlowSource, options: Mapping[str, str], *, streaming: bool = True
) -> DataFrame:
    """Make the views of a source; returns the one that carries its name."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; half a second

    reader = spark.readStream if streaming else spark.read
    loaded = reader.format("topics").options(**source.options).options(**options).load()
    is_bad = F.lit(False)
    if source.schema is not None:
        loaded = loaded.withColumn("_fields", _parsed(loaded, source.schema))
        loaded = loaded.withColumn("_is_bad", F.expr(_misfit(source.schema)))
        is_bad = (F.col("kind") == "data") & F.col("_is_bad")
    # Counted here, so that a loss shows in the progress also if no query reads the loss view.
    loaded = loaded.observe(
        watched(source.topic),
        F.count_if(F.col("kind") == "data").alias("records"),
        F.sum(F.expr("if(kind = 'lost', coalesce(last_seq, seq) - seq + 1, 0)")).alias("lost"),
        F.count_if(is_bad).alias("bad"),
    )
    loaded.where("kind != 'data'").select(*_LOSS).createOrReplaceTempView(f"{source.view}__loss")
    view = _records(loaded.where("kind = 'data'"), source)
    view.createOrReplaceTempView(source.view)
    return view


def _records(rows: DataFrame, source: FlowSource) -> DataFrame:
    if source.schema is None:
        return rows.selectExpr("data", *_META)
    fits = "NOT _is_bad"
    if source.on_bad_data == "rows":
        bad = rows.where("_is_bad").selectExpr(*_META, "data")
        bad.createOrReplaceTempView(f"{source.view}__bad")
    if source.on_bad_data == "fail":
        # In a filter, because Spark may drop a column that is not selected, and with it the error.
        said = (
            f"concat('the record of topic {source.topic} with seq ', seq, "
            "' does not fit the schema of the flow; correct the schema, or set onBadData to "
            "skip or rows')"
        )
        fits = f"CASE WHEN {fits} THEN true ELSE raise_error({said}) END"
    names = [f"_fields.{_quoted(name)}" for name in _fields(source.schema)]
    return rows.where(fits).selectExpr(*names, *_META)


def _parsed(rows: DataFrame, schema: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql.types import StringType  # noqa: PLC0415

    fields = _struct(schema)
    clash = [name for name in fields.fieldNames() if name == _BAD or f" AS {name}" in _META]
    if clash:
        raise FlowFailed(f"the schema names {clash[0]}, which every view has already; rename it")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    return F.from_json(rows["data"], fields.add(_BAD, StringType()), options)


def _misfit(schema: str) -> str:
    """SQL that tells whether a record does not fit the schema.

    For Spark the string "NaN" and the number 1e400 fit a double. JSON has no such number, and the
    sink would refuse it: it is bad data here already.
    """
    conditions = [f"_fields.{_BAD} IS NOT NULL"]
    for field in _struct(schema).fields:
        no_json = _is_no_json_number(f"_fields.{_quoted(field.name)}", field.dataType)
        conditions += [no_json] if no_json else []
    return f"coalesce({' OR '.join(conditions)}, false)"


def _is_no_json_number(at: str, kind: DataType, depth: int = 0) -> str | None:
    """SQL that tells whether NaN or an infinity is anywhere in a value; None if it cannot be."""
    from pyspark.sql.types import (  # noqa: PLC0415
        ArrayType,
        DoubleType,
        FloatType,
        MapType,
        StructType,
    )

    if isinstance(kind, DoubleType | FloatType):
        return f"(isnan({at}) OR abs({at}) = double('Infinity'))"
    if isinstance(kind, StructType):
        found = (
            _is_no_json_number(f"{at}.{_quoted(field.name)}", field.dataType, depth)
            for field in kind.fields
        )
        return " OR ".join(filter(None, found)) or None
    if isinstance(kind, ArrayType | MapType):
        element = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        values = at if isinstance(kind, ArrayType) else f"map_values({at})"
        inner = _is_no_json_number(f"x{depth}", element, depth + 1)
        return inner and f"coalesce(exists({values}, x{depth} -> {inner}), false)"
    return None


def _fields(schema: str) -> list[str]:
    return list(_struct(schema).fieldNames())


def _struct(schema: str) -> StructType:
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    said = ""
    try:
        fields = StructType.fromDDL(schema)
    except PySparkException as error:
        said = f" ({first_line(error)})"
    else:
        if isinstance(fields, StructType):
            return fields
    raise FlowFailed(
        f'the schema {schema!r} is not understood; write it as in "id long, amount double"{said}'
    )


def as_records(rows: DataFrame) -> DataFrame:
    """Rows of a flow in the columns that the sink takes."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    own = [F.col(name).alias(name[1:]) for name in OF_THE_RECORD if name in rows.columns]
    fields = [name for name in rows.columns if name not in OF_THE_RECORD + OF_THE_SOURCE]
    if not fields:
        raise FlowFailed("the flow makes no columns that could become the data of a record")
    if fields == ["data"]:
        return rows.select("data", *own)
    if "data" in fields:
        others = ", ".join(name for name in fields if name != "data")
        raise FlowFailed(
            f"the flow makes `data` and beside it {others}; select `data` alone, or rename it "
            "so that all columns become fields of the record"
        )
    return rows.select(F.struct(*map(_quoted, fields)).alias("data"), *own)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
