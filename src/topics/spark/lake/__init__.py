"""A topic as a Delta table: rows arrive exactly once, and deletes in the topic reach the table.

    place      where a table is, and what lies beside it
    columns    its columns
    table      its settings, and the only code that commits to it
    parquet    rows to files, with statistics that name nobody
    seqs       sets of (epoch, seq) as runs
    arriving   what a task does with its rows
    sink       the Spark sink `topics_lake`: executors write files, the driver commits an epoch
    epochs     what one commit of an epoch consists of, and in which order
    origin     the topic behind the table: its state, its holes, its cursor
    reconcile  carrying deletes into the table
    erasing    taking rows out of files, and the list of what was taken out
    upkeep     compaction, removal of files, clean-up of the log; `scan` and `receipt` prove it
    syncing    the streaming query that keeps a table up to date

Everything that changes a table holds its lock (`locking`). Reading it needs nothing of this: it is
a plain Delta table without deletion vectors.
"""
