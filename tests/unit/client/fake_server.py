"""A server that plays a script: what it says and when is up to the test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence

PATIENCE_S = 60.0


def reply(status: int = 200, body: bytes = b"{}", *lines: str) -> bytes:
    """A response with a length."""
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(PATIENCE_S)
        self._left = b""

    def request(self) -> tuple[bytes, bytes]:
        """The next request as (head, body); two empty ones when the client has gone."""
        while b"\r\n\r\n" not in self._left:
            data = self.socket.recv(65536)
            if not data:
                return b"", b""
            self._left += data
        head, _, rest = self._left.partition(b"\r\n\r\n")
        size = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        while len(rest) < size:
            rest += self.socket.recv(65536)
        self._left = rest[size:]
        return head, rest[:size]

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def wait_for_end(self) -> None:
        """Until the client hangs up."""
        with contextlib.suppress(OSError):
            while self.socket.recv(65536):
                pass


Act = Callable[[Peer], None]


def answering(*replies: bytes) -> Act:
    """Answers requests of one connection in turn, then hangs up."""

    def act(peer: Peer) -> None:
        for said in replies:
            if not peer.request()[0]:
                return
            peer.send(said)

    return act


class FakeServer:
    """Plays one act per connection, in the order they come; `connections` counts them."""

    def __init__(self, acts: Sequence[Act]) -> None:
        self._acts = list(acts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.problems: list[BaseException] = []
        self._peers: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        for act in self._acts:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(sock)
            thread = threading.Thread(target=self._play, args=(act, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, act: Act, sock: socket.socket) -> None:
        try:
            act(Peer(sock))
        except OSError:
            pass  # the client went away, as clients do
        except BaseException as error:  # told to the test, which would otherwise only hang
            self.problems.append(error)
        finally:
            sock.close()

    def close(self) -> None:
        # Shutting a listener down wakes an accept that waits on it; closing alone does not.
        for sock in (self._listener, *self._peers):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self._listener.close()
        assert not self.problems, self.problems
