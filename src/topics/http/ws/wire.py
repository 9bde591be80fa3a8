"""The one WebSocket frame we build ourselves: a whole text message, sent by a server.

The library takes text as `str` and would encode it again for every receiver; ours is bytes
already, and shared by many.
"""

import struct

_FINAL_TEXT = 0x81
_LENGTH_16 = struct.Struct("!BBH")
_LENGTH_64 = struct.Struct("!BBQ")


def text_frame(payload: bytes) -> bytes:
    """`payload` (UTF-8) as one unmasked final text frame."""
    size = len(payload)
    if size < 126:
        return b"%c%c%b" % (_FINAL_TEXT, size, payload)
    if size < 65536:
        return _LENGTH_16.pack(_FINAL_TEXT, 126, size) + payload
    return _LENGTH_64.pack(_FINAL_TEXT, 127, size) + payload
