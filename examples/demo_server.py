"""The second half of `make demo`: the same log as a server, over plain HTTP.

Only the standard library talks to it, as any program could: writes, a live watch, a work queue, a
router, and a `kill -9` in the middle.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_SECONDS = 30.0


class Server:
    """A real `topics serve` on a free port of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> None:
        port_file = self._folder / "address"
        port_file.unlink(missing_ok=True)
        flags = [f"--data-dir={self._folder / 'data'}", "--port=0", f"--port-file={port_file}"]
        log = (self._folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topics.cli", "serve", *flags], stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if port_file.exists():
                self.address = port_file.read_text().strip()
                if self.call("GET", "/v0/ready", quietly=True)[0] == 200:
                    return
            time.sleep(0.02)
        raise RuntimeError((self._folder / "server.log").read_text())

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def call(
        self, method: str, path: str, body: object = None, *, quietly: bool = False
    ) -> tuple[int, Any]:
        """One request; the status and the decoded answer."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            headers = {"Content-Type": "application/json"}
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except OSError:
            if not quietly:
                raise
            return 0, None
        finally:
            connection.close()

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """The records of an event stream, as they come."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        connection.request("GET", path)
        event = b""
        for line in connection.getresponse():
            if line.startswith(b"event: "):
                event = line[7:].strip()
            elif line.startswith(b"data: ") and event == b"record":
                yield from json.loads(line[6:])["records"]


@contextmanager
def running() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="topics-demo-") as folder:
        server = Server(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def show(heading: str) -> None:
    print(f"\n{heading}")


def say(text: str) -> None:
    print(f"  {text}")


def main() -> None:
    show("The same log as a server")
    with running() as server:
        say(f"topics serve listens on {server.address} (this machine only)")
        write_and_watch(server)
        work(server)
        route(server)
        die_and_return(server)


def write_and_watch(server: Server) -> None:
    server.call("PUT", "/v0/topics/orders", {"durability": "fsync"})
    _, session = server.call("POST", "/v0/watch", {"topics": {"orders": {"tail": True}}})
    arrived: list[tuple[int, float]] = []
    is_open = threading.Event()

    def follow() -> None:
        is_open.set()
        for record in server.watch(session["stream_url"]):
            arrived.append((record["$seq"], time.monotonic()))
            if len(arrived) == 3:
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    is_open.wait()
    time.sleep(0.2)
    sent = []
    for n in (1, 2, 3):
        sent.append(time.monotonic())
        server.call("POST", "/v0/topics/orders", {"records": [{"data": {"order": n}}]})
    follower.join(timeout=10)
    delays = [1000 * (at - began) for (_, at), began in zip(arrived, sent, strict=True)]
    say(
        f"a watcher got orders {[seq for seq, _ in arrived]} live, "
        f"{min(delays):.1f} to {max(delays):.1f} ms after the write began, sync included"
    )


def work(server: Server) -> None:
    server.call("PUT", "/v0/topics/jobs", {"type": "queue", "lease_ms": 60000})
    jobs = [{"data": {"resize": n}} for n in range(6)]
    server.call("POST", "/v0/topics/jobs", {"records": jobs})
    _, claimed = server.call("POST", "/v0/topics/jobs/claim", {"node": "worker-1", "max": 4})
    seqs = [job["$seq"] for job in claimed["claimed"]]
    server.call("POST", "/v0/topics/jobs/ack", {"node": "worker-1", "seqs": seqs[:3]})
    _, state = server.call("POST", "/v0/topics/jobs/nack", {"node": "worker-1", "seqs": seqs[3:]})
    say(f"worker-1 leased jobs {seqs}, finished 3 and gave 1 back: {state['ready']} are ready")


def route(server: Server) -> None:
    server.call(
        "PUT",
        "/v0/routers/orders-to-audit",
        {"source": "orders", "dest": "audit", "filter": "eu:*"},
    )
    records = [{"data": {"order": n}, "tag": tag} for n, tag in ((4, "eu:de"), (5, "us"))]
    server.call("POST", "/v0/topics/orders", {"records": records})
    _, page = server.call("POST", "/v0/topics/audit/diff", {})
    copied = [record["data"]["order"] for record in page["records"]]
    say(f"a router copies orders tagged eu:* to another topic: order {copied} arrived there")


def die_and_return(server: Server) -> None:
    before = server.call("POST", "/v0/topics/orders/diff", {})[1]["records"]
    server.kill()
    began = time.monotonic()
    server.start()
    after = server.call("POST", "/v0/topics/orders/diff", {})[1]["records"]
    assert before == after, "acked records must survive kill -9"
    say(
        f"killed with SIGKILL and started again: all {len(after)} orders are there, "
        f"byte for byte, {time.monotonic() - began:.1f} s later"
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
