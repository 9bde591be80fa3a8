"""The fixed words of the API: what an enumerated field may say. Lower case, exact."""

from typing import Literal

TopicType = Literal["log", "queue"]
Discard = Literal["old", "reject"]
Durability = Literal["ephemeral", "memory", "disk", "fsync"]
Guarantee = Literal["at_least_once", "exactly_once"]
Consistency = Literal["eventual", "strong"]
