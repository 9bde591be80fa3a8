"""Which records ahead of an `exactly_once` router already have a signed copy in its destination.

A pass moves the cursor and makes its copies in one step, so as a rule there are none. They exist
if a program writes signed records itself. Only copies ahead of the cursor matter, so little is
remembered. A new record in the destination is looked at once, the router's own copies never.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.core.derive import key_in, router_key
from topics.core.facts import Forwarded
from topics.core.routers import Router
from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.reads.reading import Reader
from topics.storage.frames.append import record_at


class _CopiesFound:
    """What was found for one router in the destination up to `through`."""

    __slots__ = ("ahead", "router", "through")

    def __init__(self, router: Router) -> None:
        self.router = router
        self.through = router.dest_base
        self.ahead: dict[int, int] = {}  # source seq -> seq of its copy


class SignedCopies:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[str, _CopiesFound] = {}

    def is_current(self, router: Router, dest: Topic) -> bool:
        """Whether everything in the destination was looked at."""
        known = self._known.get(router.name)
        return known is not None and known.router is router and known.through >= dest.head

    def look(self, router: Router, source: Topic, dest: Topic) -> Op[None]:
        """Read what came into the destination since the last look."""
        known = self._known.get(router.name)
        if known is None or known.router is not router:
            known = self._known[router.name] = _CopiesFound(router)
        known.ahead = {seq: copy for seq, copy in known.ahead.items() if seq > router.cursor}
        prefix = router_key(
            router.name, source_id=source.id, source_epoch=source.epoch, source_seq=0
        )[:-1]
        head, at = dest.head, known.through + 1
        while (piece := (yield from self._reader.fetch_next(dest, at, head))) is not None:
            for buf, offset, seq in zip(piece.bufs, piece.offsets, piece.seqs, strict=True):
                if offset is not None:
                    _note(known, prefix, record_at(buf, offset)[3], seq)
            at = max(piece.through, at) + 1
        known.through = max(known.through, head)

    def present(self, router: Router, dest: Topic) -> frozenset[int]:
        """Source seqs ahead of the cursor whose copy lives."""
        known = self._known.get(router.name)
        if known is None or not known.ahead:
            return frozenset()
        return frozenset(seq for seq, copy in known.ahead.items() if dest.is_live(copy))

    def passed(self, router: Router, fact: Forwarded, head: int) -> None:
        """The router's own copies need no look."""
        known = self._known.get(router.name)
        if known is not None and known.through == fact.dest_first - 1:
            known.through = head

    def forget(self, gone: Callable[[Router], bool]) -> None:
        """Routers are gone."""
        self._known = {name: known for name, known in self._known.items() if not gone(known.router)}


def _note(known: _CopiesFound, prefix: str, meta: bytes, seq: int) -> None:
    key = key_in(meta)
    if key is None or not key.startswith(prefix):
        return
    source_seq = key.removeprefix(prefix)
    if source_seq.isascii() and source_seq.isdecimal() and int(source_seq) > known.router.cursor:
        known.ahead[int(source_seq)] = seq
