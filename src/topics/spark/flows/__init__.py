"""Flows: topics in, a transformation in SQL or Python, a topic or a table out.

    file        what a flow is: its file, in YAML or Python, read and judged
    state       which flows run on this machine
    views       what SQL sees of a topic, and what becomes of the rows it makes
    tables      how rows become a Delta table, a batch at a time
    running     a flow from its start to its end; `progress` reports it

Exactly once takes two parts: the checkpoint knows which batch comes next, and the topic or table at
the other end knows which batch came last.
"""
