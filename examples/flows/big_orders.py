"""Orders of 100 euros and more, into a Delta table: a flow in Python.

topics flow run examples/flows/big_orders.py
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

flow = {
    "from": {"orders": {"schema": "id long, customer string, cents long, at timestamp"}},
    "to": {"table": "./lake/big_orders"},
    "trigger": "10 seconds",
}


def transform(orders: DataFrame) -> DataFrame:
    """One row for each large order; the fields of a record are columns here."""
    large = orders.where(col("cents") >= 10_000)
    return large.select("id", "customer", (col("cents") / 100).alias("euros"), "at")
