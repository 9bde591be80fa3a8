"""What a call names: apps, epochs, parts and attempts, checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from topics.errors import InvalidRequest
from topics.storage.stages import StageKey
from topics.topic_settings import U64_MAX

APP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")
MAX_PARTS = 100_000


def stage_key(app: str, epoch: int, part: int, attempt: int) -> StageKey:
    if not APP_NAME.match(app):
        raise InvalidRequest(
            f"{app!r} is not a valid app name: use 1 to 128 of A-Z a-z 0-9 . _ : - "
            "and start with a letter or digit"
        )
    for what, number in (("epoch", epoch), ("part", part), ("attempt", attempt)):
        if not _is_u64(number):
            raise InvalidRequest(f"{what} must be an integer from 0 to {U64_MAX}, got {number!r}")
    return StageKey(app, epoch, part, attempt)


def stage_keys(app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> list[StageKey]:
    """The stages of a commit in order of their parts, each part once."""
    stage_key(app, epoch, 0, 0)
    if len(parts) > MAX_PARTS:
        raise InvalidRequest(f"a commit names at most {MAX_PARTS} parts, got {len(parts)}")
    keys = sorted(stage_key(app, epoch, part, attempt) for part, attempt in parts)
    for one, other in pairwise(keys):
        if one.part == other.part:
            raise InvalidRequest(f"part {one.part} is named twice; one attempt of it counts")
    return keys


def _is_u64(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= U64_MAX


def name_of(key: StageKey) -> str:
    return f"stage {key.part}/{key.attempt} of epoch {key.epoch} of app {key.app!r}"
