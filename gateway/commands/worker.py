"""`homing worker`: become the bundled worker, whose own command line takes it from there."""

from __future__ import annotations

import argparse
import os
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    """Take everything as it stands, `--help` too: the worker's options are vLLM's and live in backends.arguments."""
    # With no character that starts an option, argparse hands options through.
    parser.prefix_chars = "\0"
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
    """Replace this process by the worker: same process id, same terminal, signals go straight to it."""
    os.execv(sys.executable, worker_command(args.arguments))  # noqa: S606 - no shell is wanted


def worker_command(arguments: list[str]) -> list[str]:
    """The worker's argv; the gateway starts it and never imports it."""
    return [sys.executable, "-m", "backends.main", *arguments]
