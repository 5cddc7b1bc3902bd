"""bench/scale.py runs, on a small fleet, and says of each bar whether it was met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_figure_stands_beside_its_bar():
    """Four workers of 2,000 blocks: all figures are there; memory is far below the bar."""
    command = [sys.executable, "bench/scale.py", "--workers", "4", "--blocks", "2000", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    rows = [line for line in done.stdout.splitlines() if " bar " in line]
    assert len(rows) == 6
    assert all(row.endswith(("ok", "MISSED")) for row in rows)
    assert rows[0].startswith("directories, MB")
    assert rows[0].endswith("ok")


def test_a_missed_bar_fails_the_check(monkeypatch, capsys):
    """`--check` exits 1."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import scale

    monkeypatch.setattr(scale, "BAR_MEGABYTES", -1.0)
    monkeypatch.setattr(sys, "argv", ["scale.py", "--workers", "2", "--blocks", "500", "--rounds", "1", "--check"])
    assert scale.main() == 1
    assert "MISSED" in capsys.readouterr().out
