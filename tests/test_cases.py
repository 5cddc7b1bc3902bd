"""Faults that people met in public and that this project must not have: each is named by a test that would see it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

CASES = {
    "C": (1, 3, 4, 6, 8, 9, 11, 13, 14, 16, 18, 20, 21, 23, 24, 25, 27, 28, 29),
    "D": (1, 3, 4, 5, 6, 7, 9, 10, 12, 14, 15),
    "E": (1, 2, 4, 6, 7, 9, 10, 12),
    "F": (1, 3, 4, 6, 8, 9, 11, 12, 14, 16, 18),
    "G": (5, 6, 8, 10, 11, 12, 14, 18),
}
"""Streams and HTTP, the API, operations, tenants, replicas. What a Kubernetes watch can miss (G-01, G-02, G-04) waits
for discovery in a cluster."""

IDS = [f"{group}-{number:02}" for group, numbers in CASES.items() for number in numbers]


@cache
def named() -> frozenset[str]:
    """The cases that the docstring of some test names."""
    found: set[str] = set()
    for path in ROOT.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                said = f"{node.name} {ast.get_docstring(node) or ''}"
                found |= {f"{group.upper()}-{number}" for group, number in re.findall(r"\b([A-Ha-h])-?(\d\d)\b", said)}
                found |= {f"{group.upper()}-{number}" for group, number in re.findall(r"_([a-h])(\d\d)_", node.name)}
    return frozenset(found)


@pytest.mark.parametrize("case", IDS)
def test_a_fault_that_somebody_met_has_a_test(case):
    """Its id stands in the name or the docstring of the test that stands for it."""
    assert case in named()
