"""Topics as rows: `spark.read` and `spark.readStream`.

options     what a reader was asked for
schema      the columns, and the choice of them that a query makes
reader      the batch and the stream reader that Spark calls
offsets     positions of a stream, and how far one trigger goes
partitions  how a range of seqs is cut for tasks, and how a task reads its part
coverage    the account of every page: which seqs it covers, and what became of each
log         what a reader asks of a log; `server` and `directory` are the two there are
cursors     positions of running queries, left with the log
arrays      Arrow arrays made without pandas
"""
