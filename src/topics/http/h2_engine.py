"""The `h2` library, set up as our side of an HTTP/2 connection."""

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from topics.http.h2_fields import KnownHeads, PlainFields
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


class Engine(H2Connection):
    """The library's connection, remembering fewer closed streams: it keeps them for ever."""

    MAX_CLOSED_STREAMS = 1024


def open_engine(limits: Limits) -> Engine:
    """An engine whose first output is our settings."""
    engine = Engine(_CONFIG)
    engine.decoder = KnownHeads()
    engine.encoder = PlainFields()
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
