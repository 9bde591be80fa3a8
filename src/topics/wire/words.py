"""The fixed words of the API: what an enumerated field may say. Lower case, exact."""

from typing import Literal

Guarantee = Literal["at_least_once", "exactly_once"]
Consistency = Literal["eventual", "strong"]
