"""`homing version`: what runs here, for a bug report."""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError, version

from gateway.version import homing_version

TOLD = ("aiohttp", "xxhash", "uhashring", "tokenizers", "msgspec", "uvloop", "fastokens", "torch")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's options."""
    parser.add_argument("--json", action="store_true", help="one JSON object, with the libraries' versions")


def run(arguments: argparse.Namespace) -> int:
    """Print the version, or everything that matters about the installation."""
    if arguments.json:
        libraries = {name: _installed(name) for name in TOLD}
        print(json.dumps({"homing": homing_version(), "python": platform.python_version(), **libraries}))
    else:
        print(f"homing {homing_version()}")
    return 0


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
