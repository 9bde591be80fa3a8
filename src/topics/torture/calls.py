"""HTTP as the actors need it: one connection, JSON in and out, and three ways to end.

A call answers, or is refused (`Refused`: it did not happen), or its outcome is unknown (`Gone`, and
`Failed` when the server itself said so).
"""

from __future__ import annotations

import http.client
import json
from typing import Any, TypeAlias

Answer: TypeAlias = dict[str, Any]

_TIMEOUT_S = 60.0
_DID_NOT_HAPPEN = (400, 404, 409, 413, 422, 429, 503)


class Gone(Exception):
    """No answer, or one that leaves open what happened."""


class Failed(Gone):
    """The server says that something went wrong: the call may or may not have happened."""


class Refused(Exception):
    """The server said no, and why."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code


class Client:
    """One client of one life of a server."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def put(self, path: str, body: object) -> Answer:
        return self.call("PUT", path, body)

    def post(self, path: str, body: object) -> Answer:
        return self.call("POST", path, body)

    def delete(self, path: str) -> Answer:
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: object = None) -> Answer:
        """Send and understand the answer."""
        found: Answer = json.loads(self.fetch(method, path, body, accept="application/json"))
        return found

    def fetch(self, method: str, path: str, body: object = None, *, accept: str) -> bytes:
        """The same, for an answer of any kind."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"accept": accept, "content-type": "application/json"}
        try:
            self._connection.request(method, path, content, headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Gone(f"{method} {path}: {error!r}") from error
        if answer.status in (200, 201):
            return text
        code = json.loads(text)["error"]["code"]
        if answer.status in _DID_NOT_HAPPEN:
            raise Refused(answer.status, code)
        raise Failed(f"{method} {path}: {answer.status} {code}")

    def is_ready(self) -> bool:
        """Whether the server takes requests."""
        try:
            self.get("/v0/ready")
        except (Gone, Refused):
            return False
        return True
