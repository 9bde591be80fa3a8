from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.unit.client.fake_server import Act, FakeServer

Script = Callable[..., FakeServer]


@pytest.fixture
def script() -> Iterator[Script]:
    """`script(act, act, ...)`: a server that plays one act per connection."""
    made: list[FakeServer] = []

    def make(*acts: Act) -> FakeServer:
        made.append(FakeServer(acts))
        return made[-1]

    yield make
    for server in made:
        server.close()
