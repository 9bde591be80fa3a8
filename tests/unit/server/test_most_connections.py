"""Clients leave the log enough of the files a process may open."""

import pytest

from topics.server.serve import NO_LIMIT, most_connections


@pytest.mark.parametrize(
    ("open_files", "connections"), [(512, 384), (1024, 768), (65_536, 65_024), (-1, NO_LIMIT)]
)
def test_connections_leave_files_for_the_log(open_files: int, connections: int) -> None:
    assert most_connections(open_files) == connections
