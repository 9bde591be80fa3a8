"""The columns of a lake table and of its loss table.

They are apart from `table` because tasks need them, and nothing else that takes delta-rs to import.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

ROWS: Final = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("node", pa.string()),
        pa.field("tag", pa.string()),
        pa.field("data", pa.string()),
        pa.field("meta", pa.string()),
    ]
)
LOSS: Final = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("last_seq", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("noticed_ts", pa.timestamp("us", "UTC")),
    ]
)
