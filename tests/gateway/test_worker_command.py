"""`homing worker` hands everything to the worker and becomes it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.commands import worker


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="homing")
    commands = parser.add_subparsers()
    worker.configure(commands.add_parser("worker"))
    return parser.parse_args(["worker", *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "smollm2", "--port", "8001"],
        ["--simulated", "--served-model-name", "a", "b"],
        ["--help"],
        ["-h"],
        ["--a-flag-of-tomorrow=1", "--", "rest"],
        [],
    ],
)
def test_every_argument_reaches_the_worker_as_it_was_typed(arguments: list[str]):
    """Also those that argparse would take for itself."""
    assert worker.worker_command(parsed(*arguments).arguments) == [sys.executable, "-m", "backends.main", *arguments]


def test_the_command_becomes_the_worker():
    """Its help, its exit status, its process."""
    code = (
        "import argparse; from gateway.commands import worker; p = argparse.ArgumentParser(); worker.configure(p); "
        "worker.run(p.parse_args(['--simulated', '--port', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 2
    assert "homing worker: error: argument --port" in done.stderr
