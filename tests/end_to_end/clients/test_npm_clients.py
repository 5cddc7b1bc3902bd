"""openai and the Vercel AI SDK from npm: chat, streams, tools, usage, errors, retries, leaving.

The packages are installed once, by `npm ci` from the lock file, into `.cache/` of the checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.clients.conftest import KEY, Running
from tests.end_to_end.processes import ROOT, wait_for

SOURCES = Path(__file__).parent / "npm"
INSTALL_SECONDS, RUN_SECONDS = 110, 60
NAMES = re.findall(r"^  async (\w+)\(\)", (SOURCES / "scenarios.mjs").read_text(), re.MULTILINE)


def installed() -> Path:
    """A folder with the packages of the lock file in it."""
    digest = hashlib.sha256((SOURCES / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = ROOT / ".cache" / f"npm-clients-{digest}"
    if not (folder / "node_modules").exists():
        # Made aside and renamed, so that two test processes at once do not meet in it.
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        aside.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, aside)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=aside, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        try:
            aside.rename(folder)
        except OSError:
            shutil.rmtree(aside)
    return folder


@pytest.fixture(scope="module")
def outcomes(running: Running) -> dict[str, Any]:
    """What every scenario said, by name."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("there is no node or npm here")
    folder = installed()
    script = folder / f"scenarios-{os.getpid()}.mjs"
    shutil.copy(SOURCES / "scenarios.mjs", script)
    before = running.server.left
    try:
        done = subprocess.run(
            [node, str(script), running.url, KEY], capture_output=True, text=True, timeout=RUN_SECONDS, check=False
        )
    finally:
        script.unlink()
    assert done.returncode == 0, done.stderr
    told = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    # Two scenarios leave an endless stream: both times the worker sees it.
    wait_for(lambda: running.server.left >= before + 2, seconds=5, what="the worker to see two clients leave")
    running.wait_until_idle()
    return told


@pytest.mark.parametrize("name", NAMES)
def test_a_client_of_npm(outcomes: dict[str, Any], name: str) -> None:
    """One scenario of scenarios.mjs."""
    assert outcomes[name]["ok"], outcomes[name]["why"]
