"""The client: a log behind a URL, used like one in this process.

Nothing here imports the server side. One core without I/O decides what to send and what an answer
means; two shells, blocking and asyncio, only move bytes.
"""
