"""Topics in Spark: `spark.read.format("topics")`, its sink, the lake, flows and bulk jobs.

Importing this is cheap and needs no Spark; what needs it loads it when called. Code here runs on
drivers and executors: it may use `client`, and the engine to look into a data directory, but never
the server side.
"""

from topics.spark.starting import session

__all__ = ["session"]
