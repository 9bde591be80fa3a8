"""A durable event log that a Python program opens like a file."""

__version__ = "0.1.0.dev0"
