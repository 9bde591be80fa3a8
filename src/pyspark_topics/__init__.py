"""Where Spark finds `format("topics")`: it imports every module whose name begins with pyspark_.

One such module that fails to import breaks the search for all of them, so this one imports nothing
but what Spark has loaded already. The work is done in `topics.spark`, loaded on first use.
"""

# The imports inside the methods are the point of this module.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Topics as a table and as a stream, in both directions."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> str:
        from topics.spark.source.schema import DDL

        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        from topics.spark.source.reader import batch_reader

        return batch_reader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from topics.spark.source.reader import stream_reader

        return stream_reader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from topics.spark.sink.writer import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from topics.spark.sink.writer import stream_writer

        return stream_writer(dict(self.options), schema, overwrite)
