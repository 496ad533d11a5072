"""Fixtures for pytest, which finds them if this package is installed."""

from collections.abc import Iterator

import pytest

from .testing import Embedded


@pytest.fixture(scope="session")
def longhaul_embedded() -> Iterator[Embedded]:
    """A broker with a gateway for all tests of the session."""
    with Embedded() as embedded:
        yield embedded


@pytest.fixture
def longhaul_queue(longhaul_embedded: Embedded) -> str:
    """A new queue for this test alone, at the gateway of `longhaul_embedded`."""
    return longhaul_embedded.queue()
