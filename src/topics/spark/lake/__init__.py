"""A topic as a Delta table: rows arrive exactly once, and deletes in the topic reach the table.

    place      where a table is, what lies beside it, its locks
    table      its settings, and the only code that commits to it
    parquet    rows of a task to files, with statistics without personal data
    seqs       sets of (epoch, seq) as runs
    sink       the Spark sink `topics_lake`: executors write files, the driver commits an epoch
    epochs     what one commit of an epoch consists of, and in which order
    typed      fields of data as columns, by the types of `shape`; `evolving` when they change;
               `quick` where there is nothing to decide
    origin     the topic behind the table: its state, its holes, its cursor
    erasing    taking rows out of files, and carrying the topic's deletes into the table
    certifying up to where a table is complete, held against what is in it
    upkeep     compaction, removal of files, clean-up of the log, the receipt; `scan` proves it
    syncing    the streaming query that keeps a table up to date

Reading a table needs nothing of this: it is a plain Delta table without deletion vectors.
"""
