"""Shared by the tests that make the whole engine fail."""

from collections.abc import Iterator

import pytest
from tests.property.model.stores import small_world


@pytest.fixture
def small() -> Iterator[None]:
    """Log files and blocks of seqs so small that a short program goes through many of them."""
    with small_world():
        yield
