"""The documents speak of what exists: files, commands, targets, settings and metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backends.metrics import WorkerMetrics
from gateway.cli import COMMANDS
from gateway.metrics import METRICS, PREFIX
from router.policy import REASONS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FILE_NAME = re.compile(r"\b(?:gateway|router|backends|tests|bench|deploy|docs|examples)/[\w./-]*\w")
HISTOGRAM_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def named(pattern: str) -> set[str]:
    """Everything that the README, the architecture and the decisions say of this form."""
    return {match for path in DOCUMENTS for match in re.findall(pattern, path.read_text())}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_names_exists(path):
    """A moved room takes its signposts along; a module may be named without its ending."""
    for name in FILE_NAME.findall(path.read_text()):
        target = ROOT / name
        assert target.exists() or target.with_suffix(".py").exists(), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    """Relative links are files of this checkout."""
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in link:
            assert (path.parent / link).exists(), link


def test_every_command_in_the_documents_is_one():
    """`homing serve`, `homing explain` and the rest: no document promises a command that is not there."""
    commands = {command.name for command in COMMANDS}
    assert commands >= named(r"`homing ([a-z]+)\b") | named(r"(?m)^homing ([a-z]+)\b")
    assert commands - {"version"} <= named(r"`?homing ([a-z]+)\b")


def test_every_make_target_in_the_documents_is_one():
    """`make demo` and the rest."""
    targets = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text()))
    assert targets >= named(r"`make ([a-z]+)`") | named(r"(?m)^make ([a-z]+)\b")


def test_every_metric_in_the_documents_is_exposed():
    """An operator who follows the first page finds the series."""
    worker = WorkerMetrics("m", 4096, {})
    metrics = {f"{PREFIX}{row.name}" for row in METRICS} | {family.name for family in worker.registry.collect()}
    assert {HISTOGRAM_SUFFIX.sub("", name) for name in named(r"`(homing_[a-z_]+)")} <= metrics


def test_the_readme_explains_every_reason_for_leaving_home():
    """They are what an operator sees on the dashboard."""
    readme = (ROOT / "README.md").read_text()
    for reason in REASONS:
        if reason.startswith("left_home:"):
            assert f"`{reason}`" in readme
