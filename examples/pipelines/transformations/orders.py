"""Topic `orders` -> table `orders` -> view `by_customer`, and -> topic `large-orders`.

The functions are called by Spark, which finds out by itself what depends on what.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, struct
from pyspark.sql.functions import sum as total

FIELDS = "id long, customer string, cents long"
spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order once, in columns; each run goes on where the last one ended."""
    topic = (
        spark.readStream.format("topics")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    fields = topic.where("kind = 'data'").select("seq", from_json("data", FIELDS).alias("o"))
    return fields.select("seq", "o.*")


@dp.materialized_view
def by_customer() -> DataFrame:
    """What each customer has spent; computed anew from the table in every run."""
    return (
        spark.read.table("orders")
        .groupBy("customer")
        .agg(count("id").alias("orders"), total("cents").alias("cents"))
    )


dp.create_sink("large_orders", "topics", {"topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Orders of 100 euros and more, back into a topic, each once."""
    found = spark.readStream.table("orders").where(col("cents") >= 10_000)
    return found.select(
        struct("id", "customer", "cents").alias("data"), col("customer").alias("tag")
    )
