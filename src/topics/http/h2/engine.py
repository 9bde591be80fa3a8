"""The `h2` library as our side of an HTTP/2 connection, with a short way for plain requests.

Theory of operation. The library takes every frame through two state machines, three objects and a
dozen checks. Nearly all frames of a working connection need none of that: a head opens a new
stream, its body follows and ends it, and one answer closes it. Frames of that
kind take the short way: a look whether everything is as usual, and then the few changes to the
library's own state that it would have made itself. Whatever is not as usual goes to the library
untouched, and so does every refusal. The two ways can be mixed frame by frame, since there is only
one state.

The short way knows the library from the inside, so it is taken with the versions it was written for
only; `pyproject.toml` pins them. Without the short way a lone write over h2c takes 2.4 times the
CPU (`topics bench server --rows ceiling,write1 --scale 0.5`, 2026-11-18: 107 us against 261 us; an
empty handler 43 us against 196 us). `tests/unit/http/test_h2_engine.py` holds the short way against
the library frame by frame.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import h2
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import Event
from h2.exceptions import FrameTooLargeError
from h2.settings import SettingCodes
from h2.stream import H2Stream, StreamClosedBy, StreamState
from hyperframe.frame import FRAMES, DataFrame, HeadersFrame

from topics.http.h2.fields import FieldCache, Fields, PlainFields
from topics.http.limits import Limits
from topics.http.messages import Request

if TYPE_CHECKING:
    from h2._typing import Buffer

_CONFIG = H2Configuration(
    client_side=False,
    header_encoding=None,
    # What we send is ours, lower-case and well-formed: checking it anew costs a third.
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    # What we receive is checked by `FieldCache`, once for each.
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)

KNOWS_THE_LIBRARY = h2.__version__.startswith("4.4.")
"""Another version may keep its state elsewhere: then every frame goes through the library."""

_PREFACE_BYTES = 24

# A frame starts with its size, type and flags in five bytes, and its stream in four.
_START = Struct(">HBBBL")
_SHAPE_BYTES, _START_BYTES = 5, 9
_STREAM_IDS = 2**31 - 1
FRAME_BYTES = 2**14
"""What fits a frame, whatever the peer says: it may allow more, never less."""
_MAX_SHAPES = 4096

_HEADERS, _DATA, _WINDOW_UPDATE = 0x1, 0x0, 0x8
_END_HEADERS, _END_STREAM = 0x4, 0x1

_OPEN = (ConnectionState.IDLE, ConnectionState.SERVER_OPEN)
_SENDING = (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE)

_UPDATES_A_FRAME = 2
"""Of the windows of a stream and of its connection, for what a frame of data took from both."""

_TIDY_AT = 32
"""Streams, closed ones included, from which on it is worth looking which can be forgotten."""


class PlainRequest(Event):
    """A stream was opened by a plain head.

    `body` is all of it when it followed in one piece; its window has been given back already.
    """

    __slots__ = ("alike", "body", "ends", "stream_id")

    def __init__(self, stream_id: int, alike: Request, ends: bool) -> None:
        self.stream_id = stream_id
        self.alike = alike  # what the head says
        self.ends = ends
        self.body: bytes | None = None


class PlainData(Event):
    """A piece of a request's body, whose window has been given back already."""

    __slots__ = ("data", "ends", "stream_id")

    def __init__(self, stream_id: int, data: bytes, ends: bool) -> None:
        self.stream_id = stream_id
        self.data = data
        self.ends = ends


class _Shape(NamedTuple):
    """What the first bytes of a frame say."""

    size: int
    opens: bool  # a whole block of headers and nothing besides
    carries: bool  # data and nothing besides
    ends: bool


@lru_cache(maxsize=_MAX_SHAPES)
def _shape_of(start: bytes) -> _Shape:
    """The library's reading of a frame's size, type and flags: the same ones come all the time."""
    size = int.from_bytes(start[:3], "big")
    kind = FRAMES.get(start[3])
    if kind is not HeadersFrame and kind is not DataFrame:
        return _Shape(size, opens=False, carries=False, ends=False)
    flags = set(kind(stream_id=1).parse_flags(start[4]))
    ends = "END_STREAM" in flags
    others = flags - {"END_STREAM"}
    opens = kind is HeadersFrame and others == {"END_HEADERS"}
    return _Shape(size, opens, carries=kind is DataFrame and not others, ends=ends)


class H2Engine(H2Connection):
    """The library's connection, with a short way in and out for plain requests."""

    MAX_CLOSED_STREAMS = 1024  # the library remembers them for ever, and by default many

    decoder: FieldCache

    def __init__(self, limits: Limits) -> None:
        super().__init__(_CONFIG)
        self.decoder = FieldCache()
        self.encoder = PlainFields()
        self._rest = b""  # of a frame that is not whole yet
        self._is_greeted = False
        self._is_settled = False  # open, and not in the middle of a block of headers
        self._peer_window = 0  # of a new stream
        self._stream_window = limits.h2_stream_window_bytes
        self._max_streams = limits.h2_max_streams
        self._tidy_at = min(_TIDY_AT, limits.h2_max_streams)
        self._owed = 0  # of the connection's window, for bodies that came by the short way
        self._owed_most = limits.h2_connection_window_bytes // 4  # the library: half
        self._updates_due = 0  # window updates that the peer has a reason to send
        self.idle_frames = 0  # frames that asked for nothing and changed nothing
        self._open(limits)

    def _open(self, limits: Limits) -> None:
        """Queue our settings."""
        settings = self.local_settings
        settings[SettingCodes.MAX_CONCURRENT_STREAMS] = limits.h2_max_streams
        settings[SettingCodes.INITIAL_WINDOW_SIZE] = limits.h2_stream_window_bytes
        settings[SettingCodes.MAX_HEADER_LIST_SIZE] = limits.max_head_bytes
        settings.acknowledge()  # they hold from the start, whenever the peer confirms them
        self.decoder.max_header_list_size = limits.max_head_bytes
        self.initiate_connection()
        start = self.inbound_flow_control_window
        self.increment_flow_control_window(limits.h2_connection_window_bytes - start)

    # Frames come in

    def receive_data(self, data: "Buffer") -> list[Event]:
        """What happened, in order; raises ProtocolError when the connection cannot continue."""
        data = self._rest + bytes(data) if self._rest else bytes(data)
        events: list[Event] = []
        offset = 0 if self._is_greeted else self._greet(data)
        while len(data) - offset >= _START_BYTES:
            size, opens, carries, ends = _shape_of(data[offset : offset + _SHAPE_BYTES])
            if size > self.max_inbound_frame_size:
                self._refuse_overlong(size)
            end = offset + _START_BYTES + size
            if end > len(data):
                break
            took = False
            if self._is_settled and (opens or carries):
                start = offset + _START_BYTES
                number = int.from_bytes(data[offset + _SHAPE_BYTES : start], "big") & _STREAM_IDS
                take = self._take_head if opens else self._take_data
                took = take(events, number, data[start:end], ends)
            if not took:
                self._take_long_way(events, data[offset:end])
            offset = end
        self._rest = data[offset:]
        return events

    def _take_long_way(self, events: list[Event], frame: bytes) -> None:
        self._is_settled = False
        found = super().receive_data(frame)
        events += found
        self._count_idle(frame[3], is_heard=bool(found))
        if not KNOWS_THE_LIBRARY:
            return
        self._peer_window = self.remote_settings.initial_window_size
        self._is_settled = (
            self.state_machine.state in _OPEN and not self.incoming_buffer._headers_buffer
        )

    def _count_idle(self, kind: int, *, is_heard: bool) -> None:
        """Count a frame without effect; the library bounds the pieces of a long head.

        A window update has a reason if data was sent, or if a stream was opened: some clients
        widen the window of each of their streams.
        """
        if kind == _HEADERS:
            self._updates_due += 1
        elif kind == _WINDOW_UPDATE and self._updates_due:
            self._updates_due -= 1
        elif kind == _WINDOW_UPDATE or not (is_heard or self.incoming_buffer._headers_buffer):
            self.idle_frames += 1

    def close_connection(
        self,
        error_code: ErrorCodes | int = 0,
        additional_data: bytes | None = None,
        last_stream_id: int | None = None,
    ) -> None:
        """Queue a GOAWAY frame."""
        self._is_settled = False
        super().close_connection(error_code, additional_data, last_stream_id)

    def _greet(self, data: bytes) -> int:
        """Give the library the preface once it is whole; returns how many bytes it took."""
        if len(data) < _PREFACE_BYTES:
            return 0
        super().receive_data(data[:_PREFACE_BYTES])
        self._is_greeted = True
        return _PREFACE_BYTES

    def _refuse_overlong(self, size: int) -> NoReturn:
        """The library would hold such a frame until its end, and refuse it then."""
        self.close_connection(ErrorCodes.FRAME_SIZE_ERROR)
        raise FrameTooLargeError(f"a frame of {size} bytes")

    # The short way in: False, and nothing done, when a frame is for the library

    def _take_head(self, events: list[Event], stream_id: int, block: bytes, ends: bool) -> bool:
        if not stream_id & 1 or stream_id <= self.highest_inbound_stream_id:
            return False
        if len(self.streams) >= self._tidy_at and not self._tidied():
            return False
        plain = self.decoder.plain(block)
        if plain is None:
            return False
        stream = H2Stream(stream_id, self.config, self._stream_window, self._peer_window)
        stream.max_outbound_frame_size = self.max_outbound_frame_size
        stream._expected_content_length = plain.length
        machine = stream.state_machine
        machine.state = StreamState.HALF_CLOSED_REMOTE if ends else StreamState.OPEN
        machine.client = False
        machine.headers_received = True
        self.streams[stream_id] = stream
        self.highest_inbound_stream_id = stream_id
        self._updates_due += 1
        self.state_machine.state = ConnectionState.SERVER_OPEN
        events.append(PlainRequest(stream_id, plain.request, ends))
        return True

    def _tidied(self) -> bool:
        """Forget streams that are closed; whether there is room for another one then."""
        still_open = self.open_inbound_streams  # counting is what makes the library forget
        self._tidy_at = min(max(2 * still_open, _TIDY_AT), self._max_streams)
        return still_open < self._max_streams

    def _take_data(self, events: list[Event], stream_id: int, data: bytes, ends: bool) -> bool:
        stream = self.streams.get(stream_id)
        if stream is None or stream.state_machine.state is not StreamState.OPEN:
            return False
        size = len(data)
        window = stream._inbound_window_manager
        shared_window = self._inbound_flow_control_window_manager
        if size > window.current_window_size or size > shared_window.current_window_size:
            return False
        received = stream._actual_content_length + size
        expected = stream._expected_content_length
        if expected is not None and (received > expected or (ends and received < expected)):
            return False
        stream._actual_content_length = received
        window.current_window_size -= size
        shared_window.current_window_size -= size
        if ends:
            stream.state_machine.state = StreamState.HALF_CLOSED_REMOTE
            self._owed += size
            if self._owed > self._owed_most:
                self._give_back()
        elif size:
            self.acknowledge_received_data(size, stream_id)
        last = events[-1] if events else None
        if ends and isinstance(last, PlainRequest) and last.stream_id == stream_id:
            last.body, last.ends = data, True
        else:
            events.append(PlainData(stream_id, data, ends))
        return True

    def _give_back(self) -> None:
        """Let the peer send again on the connection what was taken the short way."""
        self.increment_flow_control_window(self._owed)
        self._owed = 0

    # Frames go out

    def send_answer(self, stream_id: int, headers: Fields, body: bytes) -> bool:
        """Queue a whole answer that ends its stream; False, and nothing done, if it cannot be now.

        It cannot while the request is still coming, when headers were sent already, or when the
        body is larger than a frame or a window.
        """
        size = len(body)
        if size > self.max_outbound_frame_size:
            return False
        head = self._head_of_answer(stream_id, headers, size)
        if head is None:
            return False
        if size:
            start = _START.pack(size >> 8, size & 0xFF, _DATA, _END_STREAM, stream_id)
            self._data_to_send += b"".join((head, start, body))
            self._updates_due += _UPDATES_A_FRAME
        else:
            self._data_to_send += head
        self.outbound_flow_control_window -= size
        self._forget(stream_id)
        return True

    def cut_answer(
        self, stream_id: int, headers: Fields, parts: Sequence[bytes]
    ) -> list[bytes | memoryview] | None:
        """The frames of a whole answer, as `send_answer` would queue it if they were one.

        They belong right behind what is queued. None, and nothing done, if it cannot be now.
        """
        left = size = sum(map(len, parts))
        head = self._head_of_answer(stream_id, headers, size)
        if head is None or not size:
            return None
        frames: list[bytes | memoryview] = [head]
        room = 0  # in the frame begun last
        for part in parts:
            view, at = memoryview(part), 0
            while at < len(part):
                if not room:
                    room = min(left, FRAME_BYTES)
                    left -= room
                    flags = 0 if left else _END_STREAM
                    frames.append(_START.pack(room >> 8, room & 0xFF, _DATA, flags, stream_id))
                    self._updates_due += _UPDATES_A_FRAME
                piece = view[at : at + room]
                frames.append(piece)
                at += len(piece)
                room -= len(piece)
        self.outbound_flow_control_window -= size
        self._forget(stream_id)
        return frames

    def _head_of_answer(self, stream_id: int, headers: Fields, size: int) -> bytes | None:
        """The frame that begins an answer with so large a body, which now has to follow whole."""
        stream = self.streams.get(stream_id)
        if (
            stream is None
            or stream.state_machine.state is not StreamState.HALF_CLOSED_REMOTE
            or stream.state_machine.headers_sent
            or size > stream.outbound_flow_control_window
            or size > self.outbound_flow_control_window
            or not self._is_settled
            or self.encoder.table_size_changes
        ):
            return None
        block = self.encoder.encode(headers)
        length = len(block)
        if length > self.max_outbound_frame_size:
            return None  # as if never encoded: our blocks and the table leave each other alone
        flags = _END_HEADERS if size else _END_HEADERS | _END_STREAM
        return _START.pack(length >> 8, length & 0xFF, _HEADERS, flags, stream_id) + block

    def send_head(self, stream_id: int, headers: Fields, *, ends: bool = False) -> None:
        """Queue the headers of an answer, with `ends` all of it; raises as the library does."""
        stream = self.streams.get(stream_id)
        if (
            not ends
            and stream is not None
            and stream.state_machine.state in _SENDING
            and not stream.state_machine.headers_sent
            and self._is_settled
            and not self.encoder.table_size_changes
        ):
            block = self.encoder.encode(headers)
            length = len(block)
            if length <= self.max_outbound_frame_size:
                start = _START.pack(length >> 8, length & 0xFF, _HEADERS, _END_HEADERS, stream_id)
                self._data_to_send += start + block
                stream.state_machine.headers_sent = True
                return
        self.send_headers(stream_id, headers, ends)

    def send_data(
        self,
        stream_id: int,
        data: bytes | memoryview,
        end_stream: bool = False,
        pad_length: int | None = None,
    ) -> None:
        """Queue a piece of an answer; raises as the library does."""
        stream = self.streams.get(stream_id)
        size = len(data)
        self._updates_due += _UPDATES_A_FRAME
        if (
            stream is None
            or stream.state_machine.state not in _SENDING
            or pad_length is not None
            or size > self.max_outbound_frame_size
            or size > stream.outbound_flow_control_window
            or size > self.outbound_flow_control_window
            or not self._is_settled
        ):
            super().send_data(stream_id, data, end_stream, pad_length)
            return
        flags = _END_STREAM if end_stream else 0
        self._data_to_send += _START.pack(size >> 8, size & 0xFF, _DATA, flags, stream_id)
        self._data_to_send += data
        self.outbound_flow_control_window -= size
        stream.outbound_flow_control_window -= size
        if not end_stream:
            return
        if stream.state_machine.state is StreamState.OPEN:
            stream.state_machine.state = StreamState.HALF_CLOSED_LOCAL
        else:
            self._forget(stream_id)

    def _forget(self, stream_id: int) -> None:
        """Both sides have ended a stream, we as the last."""
        del self.streams[stream_id]
        self._closed_streams[stream_id] = StreamClosedBy.SEND_END_STREAM
