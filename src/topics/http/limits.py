"""Every bound of the transport, in one frozen value.

Tests pass small numbers here instead of waiting; production uses the defaults. Sizes are bytes,
times are seconds.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

PLAIN_HEAD_BYTES = 64 * KIB
PLACE_BYTES = 372
"""Of one topic in the id of a stream: a name of 255 bytes, its quotes, a colon, 20 digits and a
comma, in base64."""


def head_bytes(watch_topics: int) -> int:
    """A head that has room for the id of a stream of that many topics, which comes in a header."""
    return PLAIN_HEAD_BYTES + watch_topics * PLACE_BYTES


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may hold, and how long it may keep us waiting."""

    max_body_bytes: int = 64 * MIB
    """Of a request body, as sent and as decoded; exactly this much is allowed."""

    max_request_bytes: int = 0
    """Of all bodies and messages in memory whose requests are not answered yet; 0 is no limit."""

    max_head_bytes: int = PLAIN_HEAD_BYTES
    """Of a request line with its headers."""

    max_connections: int = 1_000_000
    """Open at a time; further connections are closed at once."""

    head_timeout_s: float = 60.0
    """From accept, or from a request's first byte, to the end of its headers."""

    body_timeout_s: float = 60.0
    """Each period of this length must bring the body `min_body_rate` bytes a second."""

    min_body_rate: int = 1 * KIB

    max_body_s: float = 3600.0
    """A body or a message has to be complete after this time, whatever its pace."""

    idle_timeout_s: float = 3600.0
    """Between two requests of a kept-alive connection."""

    stranger_idle_s: float = 20.0
    """The same, for a connection on which no request came with a key, where keys are needed."""

    stall_timeout_s: float = 300.0
    """For a peer that has stopped reading a plain response; streams may stall for ever."""

    linger_s: float = 30.0
    """How long input is thrown away after an early refusal, so that its answer can be read."""

    max_pipelined: int = 64
    """HTTP/1.1 requests read ahead of the first before reading stops."""

    max_pipelined_bytes: int = 1 * MIB
    """Body bytes of those requests before reading stops."""

    high_water_bytes: int = 256 * KIB
    """Unsent bytes of a connection at which it stops reading and streams report back-pressure."""

    h2_max_streams: int = 1024
    h2_stream_window_bytes: int = 1 * MIB
    h2_connection_window_bytes: int = 4 * MIB

    h2_ping_s: float = 20.0
    """Silence after which a peer is pinged; as much again without a word ends the connection."""

    h2_max_queued_bytes: int = 16 * MIB
    """Response bytes waiting for the peer's windows before further requests have to wait."""

    h2_max_bodies_bytes: int = 128 * MIB
    """Body bytes of one connection's unanswered requests; only its oldest may go beyond."""

    h2_nuisance_burst: int = 2000
    """Frames that make work and achieve nothing (resets, pings, settings) taken in a burst."""

    h2_nuisance_per_s: int = 200
    """How fast that burst is forgiven."""

    ws_max_message_bytes: int = 64 * MIB
    ws_max_frame_bytes: int = 16 * MIB

    ws_small_frame_bytes: int = 1 * KIB
    """A frame shorter than this that ends no message is a nuisance, as a ping is."""

    ws_nuisance_burst: int = 2000
    ws_nuisance_per_s: int = 200
    """As in HTTP/2: how many of them are taken in a burst, and how fast that is forgiven."""

    gzip_min_bytes: int = 1024
    """Smallest response body worth compressing."""

    gzip_aside_bytes: int = 128 * KIB
    """Response bodies from this size on are compressed off the loop."""

    def sweep_s(self) -> float:
        """How often waiting connections are looked at: a quarter of the shortest wait."""
        shortest = min(
            self.head_timeout_s,
            self.body_timeout_s,
            self.idle_timeout_s,
            self.stranger_idle_s,
            self.stall_timeout_s,
            self.linger_s,
            self.h2_ping_s,
        )
        return min(5.0, shortest / 4)
