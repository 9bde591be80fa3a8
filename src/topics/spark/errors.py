"""What can go wrong between Spark and a topic, beside the errors of the log itself."""

from __future__ import annotations

from topics.errors import TopicsError


class CannotStartSpark(TopicsError):
    """This machine lacks something Spark needs, or it is set up in a way that loses data."""

    code = "spark_setup"


class InvalidOption(TopicsError):
    """An option of a read or write that is unknown, contradicts another or makes no sense."""

    code = "invalid_option"


class RecordsLost(TopicsError):
    """Retention or a crash took records of the range, and the reader asked to fail then."""

    code = "records_lost"


class CoverageBroken(TopicsError):
    """Rows and announced gaps do not account for every seq of a planned range."""

    code = "coverage_broken"
