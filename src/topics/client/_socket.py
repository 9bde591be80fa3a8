"""The WebSocket of a live read, without I/O, on wsproto.

`outgoing` holds what has to be sent; `feed` takes what came and gives frames. Pings of the server
are answered; ours show that a silent peer is still there.
"""

from __future__ import annotations

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from topics.client._following import StreamEnded, StreamFrame, decode_message
from topics.client._http import Answer, ServerAddress, refusal
from topics.errors import Unreachable


class WebSocketClient:
    """One WebSocket to a server, from its handshake on."""

    def __init__(self, target: ServerAddress, hello: bytes) -> None:
        self._url = target.url
        self._hello = hello.decode()
        self._protocol = WSConnection(ConnectionType.CLIENT)
        headers = []
        if target.authorization is not None:
            headers.append((b"authorization", target.authorization.encode("latin-1")))
        self.outgoing = self._protocol.send(
            Request(host=target.authority, target=f"{target.prefix}/v0/ws", extra_headers=headers)
        )
        self._status = 0
        self._body = b""
        self._text = ""

    def take_outgoing(self) -> bytes:
        data, self.outgoing = self.outgoing, b""
        return data

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.outgoing += self._protocol.send(Ping())

    def feed(self, data: bytes) -> list[StreamFrame]:
        """Frames in what came. Raises the server's refusal, or `StreamEnded`."""
        frames: list[StreamFrame] = []
        try:
            self._protocol.receive_data(data or None)
            for event in self._protocol.events():
                if isinstance(event, TextMessage):
                    self._text += event.data
                    if event.message_finished:
                        frames.append(decode_message(self._text))
                        self._text = ""
                else:
                    self._handle(event)
        except ProtocolError as error:
            raise Unreachable(self._url, reason=f"it speaks no WebSocket ({error})") from error
        return frames

    def _handle(self, event: object) -> None:
        if isinstance(event, AcceptConnection):
            self.outgoing += self._protocol.send(TextMessage(data=self._hello))
        elif isinstance(event, Ping):
            self.outgoing += self._protocol.send(event.response())
        elif isinstance(event, RejectConnection):
            self._status = event.status_code
            if not event.has_body:
                raise refusal(Answer(self._status, {}, b""))
        elif isinstance(event, RejectData):
            self._body += event.data
            if event.body_finished:
                raise refusal(Answer(self._status, {}, self._body))
        elif isinstance(event, CloseConnection):
            raise StreamEnded(event.reason or "the server closed the stream")
        else:
            assert isinstance(event, Pong), f"no request asked for {event!r}"
