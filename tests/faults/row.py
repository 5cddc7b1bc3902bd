"""A row of tests/faults.yml as its test sees it: whether to run it in full, and where its figure goes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

FULL_VARIABLE = "HOMING_FAULTS"
"""`full`: every row at its full size. Anything else: the smoke rows only, small."""

RESULTS_VARIABLE = "HOMING_FAULTS_RESULTS"
"""Where a full run collects figures, logs and everything else that the suite leaves behind."""


def is_full() -> bool:
    return os.environ.get(FULL_VARIABLE) == "full"


def results_directory() -> Path | None:
    named = os.environ.get(RESULTS_VARIABLE)
    return Path(named) if named else None


@dataclass
class Row:
    """One property: its id, and what was measured of it."""

    id: str
    full: bool
    figure: str = ""

    def size(self, full: int, smoke: int) -> int:
        """How many, of whatever the row counts."""
        return full if self.full else smoke

    def holds(self, figure: str, met: bool) -> None:
        """Take down the figure, and fail where the bar is not met."""
        self.note(figure)
        assert met, f"{self.id}: {self.figure}"

    def note(self, figure: str) -> None:
        """Take down a figure, or one more."""
        self.figure = f"{self.figure}; {figure}" if self.figure else figure
        results = results_directory()
        if results is not None:
            (results / f"{self.id}.json").write_text(json.dumps({"figure": self.figure}))
