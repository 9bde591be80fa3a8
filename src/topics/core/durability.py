"""The four durability classes: what an ack promises, as the table in README says it.

class      is_logged  needs_sync  reserves_seqs  survives_restart  announces_lost_tail
ephemeral  no         no          yes            no                yes: all records
memory     yes        no          no             yes               no
disk       yes        no          yes            yes               yes
fsync      yes        yes         no             yes               no: nothing can be lost
"""

from __future__ import annotations

from typing import Final

import msgspec

from topics.topic_settings import Durability


class DurabilityClass(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one class promises, as the questions that the engine asks."""

    is_logged: bool
    """Records, deletes and cursors pass through the log."""
    needs_sync: bool
    """The ack comes after the sync of the log."""
    reserves_seqs: bool
    """Seqs are reserved durably before they are assigned: a crash never assigns a seq twice."""
    survives_restart: bool
    """A restart of the process keeps the records."""
    announces_lost_tail: bool
    """Readers are told of records that a crash took, as a gap."""
    first_block: int = 0
    """How many seqs the first reservation of a topic takes."""

    @property
    def may_reuse_seqs(self) -> bool:
        """A power cut may take acked records, and new records then get their seqs."""
        return not self.needs_sync and not self.reserves_seqs


EPHEMERAL_BLOCK: Final = 65_536
"""How many seqs a reservation of an ephemeral topic adds to those of the write that asks for it."""

CLASSES: Final[dict[Durability, DurabilityClass]] = {
    "ephemeral": DurabilityClass(
        is_logged=False,
        needs_sync=False,
        reserves_seqs=True,
        survives_restart=False,
        announces_lost_tail=True,
        first_block=EPHEMERAL_BLOCK,
    ),
    "memory": DurabilityClass(
        is_logged=True,
        needs_sync=False,
        reserves_seqs=False,
        survives_restart=True,
        announces_lost_tail=False,
    ),
    "disk": DurabilityClass(
        is_logged=True,
        needs_sync=False,
        reserves_seqs=True,
        survives_restart=True,
        announces_lost_tail=True,
        first_block=256,
    ),
    "fsync": DurabilityClass(
        is_logged=True,
        needs_sync=True,
        reserves_seqs=False,
        survives_restart=True,
        announces_lost_tail=False,
    ),
}
