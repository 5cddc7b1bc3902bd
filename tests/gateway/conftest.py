"""Which event loops the gateway's tests run on."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ON_BOTH_LOOPS = ("test_upstream", "test_faults", "test_phases", "test_a_gigabyte_", "test_a_chunked_body_of_just_")
"""Loops differ in how their transports write, pause and abort: here that is what is tested. Files, or how the names of
tests begin."""

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's configuration is to be."""
    return tmp_path / "homing.yaml"


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Both loops that the gateway runs on where it matters and uvloop is installed; asyncio's own elsewhere."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if (item.path.stem in ON_BOTH_LOOPS or item.name.startswith(ON_BOTH_LOOPS)) and importlib.util.find_spec(
        "uvloop"
    ) is not None:
        import uvloop

        loops["uvloop"] = uvloop.new_event_loop
    return loops
