"""Topics that several want to make at the same time."""

from __future__ import annotations

import errno

import pytest
from tests.unit.queue.builders import Shop

from topics.core.batch import RecordBatch
from topics.errors import LogFull


def test_who_comes_when_a_creation_has_just_failed_does_not_wait_for_it() -> None:
    shop = Shop(on_disk=True)
    shop.log.is_holding = True
    creator = shop.engine.put("t", {})
    next(creator)
    shop.fs.fail("pwrite", errno.ENOSPC)
    shop.log.is_holding = False
    shop.log.let_go()
    # Others may be resumed, or come, before the creator hears of it.
    with pytest.raises(LogFull):
        next(shop.engine.append("t", RecordBatch([b"1"])))
    with pytest.raises(LogFull):
        next(shop.engine.put("t", {}))
    with pytest.raises(LogFull):
        next(creator)
