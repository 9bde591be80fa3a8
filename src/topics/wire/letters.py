"""What a dead letter says in its meta: which job of which queue it was, and why that job died."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from topics.values import Failure

FROM: Final = "$dead_letter_from"
DELIVERIES: Final = "$dead_letter_deliveries"
SRC_SEQ: Final = "$dead_letter_src_seq"
ERROR_TYPE: Final = "$dead_letter_error_type"
ERROR: Final = "$dead_letter_error"
WORKER: Final = "$dead_letter_worker"
FAILED_AT: Final = "$dead_letter_failed_at"

MEMBERS: Final = (FROM, DELIVERIES, SRC_SEQ, ERROR_TYPE, ERROR, WORKER, FAILED_AT)
"""Members that `redrive` takes off again."""

MAX_TYPE_CHARS: Final = 100
MAX_MESSAGE_CHARS: Final = 1000
"""A message is for people. A longer message is cut, so that failures of jobs take little memory."""


def members(queue: str, deliveries: int, seq: int, failure: Failure | None) -> dict[str, str]:
    """What a letter's meta gets; all values are strings."""
    told = {FROM: queue, DELIVERIES: str(deliveries), SRC_SEQ: str(seq)}
    if failure is not None:
        told |= {WORKER: failure.worker, FAILED_AT: str(failure.at_ms)}
        if failure.type:
            told[ERROR_TYPE] = failure.type
        if failure.message:
            told[ERROR] = failure.message
    return told


def failure_in(meta: Mapping[str, Any]) -> Failure | None:
    """Why the job behind a letter died; None when the letter does not say."""
    worker, at_ms = meta.get(WORKER), meta.get(FAILED_AT)
    if not isinstance(worker, str) or not isinstance(at_ms, str) or not at_ms.isdecimal():
        return None
    return Failure(worker, int(at_ms), str(meta.get(ERROR_TYPE, "")), str(meta.get(ERROR, "")))


def error_of(error: BaseException | str) -> dict[str, str]:
    """An error as a nack sends it."""
    if isinstance(error, str):
        return {"type": "", "message": clipped(error, MAX_MESSAGE_CHARS)}
    name = type(error).__qualname__
    return {
        "type": clipped(name, MAX_TYPE_CHARS),
        "message": clipped(str(error), MAX_MESSAGE_CHARS),
    }


def clipped(text: str, most: int) -> str:
    """Text of at most so many characters that can be encoded; the end of a longer one is cut."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text.encode(errors="replace").decode()
