"""Flows: topics in, a transformation in SQL or Python, a topic or a table out.

`file` says what a flow is, `state` which flows run on this machine, `views` what SQL sees of a
topic, `running` how one runs until it is told to stop, `tables` how its rows become a Delta table.
"""
