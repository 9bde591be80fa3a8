"""Where pytest finds the fixtures of `topics.testing.plugin`.

A package of its own, because pytest rewrites the assertions of the whole package that an entry
point names, and `topics` has no need of that.
"""

from topics.testing.plugin import topics_log, topics_server

__all__ = ["topics_log", "topics_server"]
