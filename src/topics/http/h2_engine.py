"""The `h2` library, set up as our side of an HTTP/2 connection.

Most requests of a connection have the same head, and so the same few bytes of it on the wire. What
they mean depends on those bytes and on the compression table alone, which such a head leaves as it
is; decoding and checking them again would be a third of what the library costs. So a connection
remembers the heads it has checked until its table changes.
"""

from collections.abc import Iterable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from h2.utilities import HeaderValidationFlags, validate_headers
from hpack import Decoder, HeaderTuple

from topics.http.limits import Limits

_CONFIG = H2Configuration(
    client_side=False,
    header_encoding=None,
    # What we send is ours, lower-case and well-formed: checking it anew costs a third.
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    # What we receive is checked by `KnownHeads`, once for each.
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)

_MAX_HEADS = 64
_MAX_HEAD_BYTES = 512

_REQUEST = HeaderValidationFlags(
    is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False
)
_TRAILERS = _REQUEST._replace(is_trailer=True)


class KnownHeads(Decoder):
    """Decodes blocks of headers and sees that they are well-formed.

    A block with pseudo-headers is judged as a request, one without as trailers. Whether it came
    where such a block belongs is for the connection to say.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, list[HeaderTuple]] = {}

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        """The headers of a block, checked; raises as the library does."""
        known = self._known.get(data)
        if known is not None:
            return known
        before = self._table_state()
        headers = list(super().decode(data, raw))
        is_request = any(header[0][:1] in (b":", ":") for header in headers)
        for _ in validate_headers(headers, _REQUEST if is_request else _TRAILERS):
            pass  # it raises for the first that is wrong
        if self._table_state() != before:
            self._known.clear()
        elif len(data) <= _MAX_HEAD_BYTES:
            if len(self._known) >= _MAX_HEADS:
                self._known.clear()
            self._known[bytes(data)] = headers
        return headers

    def _table_state(self) -> tuple[int, int, int]:
        """Another one after every change of the table: entries come in at the front."""
        entries = self.header_table.dynamic_entries
        newest = id(entries[0]) if entries else 0
        return len(entries), newest, self.header_table.maxsize


class Engine(H2Connection):
    """The library's connection, remembering fewer closed streams: it keeps them for ever."""

    MAX_CLOSED_STREAMS = 1024


def open_engine(limits: Limits) -> Engine:
    """An engine whose first output is our settings."""
    engine = Engine(_CONFIG)
    engine.decoder = KnownHeads()
    settings = engine.local_settings
    settings[SettingCodes.MAX_CONCURRENT_STREAMS] = limits.h2_max_streams
    settings[SettingCodes.INITIAL_WINDOW_SIZE] = limits.h2_stream_window_bytes
    settings[SettingCodes.MAX_HEADER_LIST_SIZE] = limits.max_head_bytes
    settings.acknowledge()  # they hold from the start, whenever the peer confirms them
    engine.decoder.max_header_list_size = limits.max_head_bytes
    engine.initiate_connection()
    start = engine.inbound_flow_control_window
    engine.increment_flow_control_window(limits.h2_connection_window_bytes - start)
    return engine
