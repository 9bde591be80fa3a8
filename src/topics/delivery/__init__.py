"""Live delivery: watches, long polls, fan-out and back-pressure.

One set of rules for event streams and WebSockets. Nothing here knows HTTP; the transport comes in
as a small protocol, time and the event loop as arguments.
"""
