from hypothesis import example, given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage

from topics.http.h1.wire import chunk, connection_field, fields_of, head_only, whole
from topics.http.hub import LastWrapped, text_frame
from topics.http.messages import Response


@given(text=st.text(max_size=300))
@example(text="x" * 125)
@example(text="x" * 126)
@example(text="x" * 65_535)
@example(text="x" * 65_536)
def test_a_text_frame_is_read_by_the_library_as_one_message(text: str) -> None:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(text_frame(text.encode()))
    (event,) = client.events()
    assert isinstance(event, TextMessage)
    assert (event.data, event.message_finished) == (text, True)


def test_a_chunk_states_its_size_in_hexadecimal() -> None:
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"


def test_a_response_in_full() -> None:
    fields = fields_of(((b"retry-after", b"1"), (b"x-request-id", b"7")))
    assert whole(Response(429, b"{}"), fields) == (
        b"HTTP/1.1 429 Too Many Requests\r\n"
        b"content-type: application/json\r\n"
        b"content-length: 2\r\n"
        b"retry-after: 1\r\n"
        b"x-request-id: 7\r\n"
        b"\r\n"
        b"{}"
    )


def test_a_status_without_a_name_is_sent_all_the_same() -> None:
    head = head_only(Response(299, content_type=None), b"")
    assert head == b"HTTP/1.1 299 \r\ncontent-length: 0\r\n\r\n"


def test_the_connection_header_is_sent_only_where_it_says_something() -> None:
    assert connection_field(keep_alive=True, version="1.1") == b""
    assert connection_field(keep_alive=True, version="1.0") == b"connection: keep-alive\r\n"
    assert connection_field(keep_alive=False, version="1.1") == b"connection: close\r\n"


def test_the_same_payload_is_wrapped_once() -> None:
    wrapped = LastWrapped(chunk)
    payload = b"data: 1\n\n"
    assert wrapped(payload) == chunk(payload)
    assert wrapped(payload) is wrapped(payload)
    assert wrapped(b"other") == chunk(b"other")
