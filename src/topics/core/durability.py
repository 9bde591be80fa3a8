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


class DurabilityClass(msgspec.Struct, frozen=True, gc=False):
    """What one class promises: the columns of the table, as the questions that the engine asks."""

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
    "ephemeral": DurabilityClass(False, False, True, False, True, EPHEMERAL_BLOCK),
    "memory": DurabilityClass(True, False, False, True, False),
    "disk": DurabilityClass(True, False, True, True, True, 256),
    "fsync": DurabilityClass(True, True, False, True, False),
}
