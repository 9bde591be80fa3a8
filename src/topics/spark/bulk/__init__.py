"""Jobs over whole stores and topics: check a data directory, import files, export a topic.

They are Spark jobs because they are bulk work that knows no order: a laptop runs them on its cores,
a cluster on its machines. Each can be ended at any time and started again.
"""
