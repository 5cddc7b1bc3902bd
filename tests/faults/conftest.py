"""Fixtures of the fault suite: a row, and a stage for it. Rows not marked `smoke` run in `make faults` only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.row import Row, is_full, results_directory
from tests.faults.stage import a_stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("row")
        if mark is not None and not is_full() and not mark.kwargs.get("smoke"):
            item.add_marker(pytest.mark.skip(reason="runs in `make faults`"))
        if mark is not None and is_full():
            item.add_marker(pytest.mark.timeout(mark.kwargs.get("seconds", 180)))


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    mark = request.node.get_closest_marker("row")
    assert mark is not None, "a test of the fault suite says which row it is"
    return Row(mark.args[0], is_full())


@pytest.fixture
async def stage(row: Row, tmp_path: Path):
    results = results_directory()
    directory = tmp_path if results is None else results / f"stage-{row.id}"
    directory.mkdir(parents=True, exist_ok=True)
    async with a_stage(directory, row) as it:
        yield it
