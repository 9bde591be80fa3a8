"""A server as Spark talks to it: the calls of `topics.client`, each tried for a set time."""

from __future__ import annotations

import math
from typing import Final, TypeVar

from topics.client._call import Call
from topics.client._retry import is_passing
from topics.client.sync import RemoteLog
from topics.client.targets import Target
from topics.errors import TopicsError

T = TypeVar("T")
TIMEOUT_S: Final = 120.0


class Server(RemoteLog):
    """The log behind an address.

    A call whose error may pass is tried again for `retry_s` seconds, with the client's pauses.
    Spark ends a query at the first error, so the tries are bounded by time and not by number: a
    server may take a minute to restart.
    """

    def __init__(self, target: Target, *, retry_s: float) -> None:
        assert target.url is not None
        super().__init__(
            target.url,
            token=target.token,
            ca_file=target.ca_file,
            timeout=TIMEOUT_S,
            retries=math.inf,
        )
        self._retry_s = retry_s

    def run(self, call: Call[T], *, timeout_s: float = TIMEOUT_S) -> T:
        """Run a call; `timeout_s` bounds one try."""
        return self._run(call._replace(longer=timeout_s - TIMEOUT_S))

    def run_once(self, call: Call[T], *, timeout_s: float) -> T:
        """Run a call that may fail without harm: there is one try."""
        return self.run(call._replace(within=0.0), timeout_s=timeout_s)

    def _answer(self, call: Call[T]) -> bytes:
        within = min(call.within, self._retry_s)
        try:
            return super()._answer(call._replace(within=within))
        except TopicsError as error:
            if is_passing(error):
                said = f"{error} (tried for {within:g} s; retrySeconds sets how long)"
                error.args = (said, *error.args[1:])
            raise
