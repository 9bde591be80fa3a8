"""Rows into topics, exactly once: `df.write` and `df.writeStream`.

options   what a writer was asked for, and the columns it takes
writer    tasks stage, the driver commits
chunks    rows of a task as Arrow streams of bounded size; `encode` makes JSON of columns
stages    the calls to the server
"""
