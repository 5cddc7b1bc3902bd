"""Public faults as requests: through the whole of `homing explain`, from the body to the key blocks."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gateway.explain_requests import Explainer
from tests.data.cases import harness

CASES = Path(__file__).parents[1] / "data" / "cases" / "prefix-breakers.jsonl"
LEADING_BLOCKS = 4


def rows() -> list[dict[str, Any]]:
    """All rows of the file."""
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


@cache
def explainer() -> Explainer:
    """As without a configuration."""
    return Explainer()


def told_of(request: dict[str, Any]) -> dict[str, Any]:
    """What the command says of a request."""
    told = explainer().explain(json.dumps(request).encode())
    assert "error" not in told, told
    return told


def right(row: dict[str, Any]) -> bool:
    """Whether the keys are equal, or differ, as the row expects."""
    one, other = (told_of(request)["key_blocks"] for request in harness.requests(row))
    if row["same_prefix_expected"]:
        return bool(one[:LEADING_BLOCKS] == other[:LEADING_BLOCKS])
    return bool(one != other)


@pytest.mark.parametrize("row", [row for row in rows() if row["level"] == "must"], ids=lambda row: row["id"])
def test_every_must_row_has_its_verdict(row: dict[str, Any]) -> None:
    """Equal keys or different ones, as the report asks for."""
    assert right(row), row["why"]


def test_no_danger_row_is_merged() -> None:
    """A wrong fold sends strangers to one worker."""
    assert [row["id"] for row in rows() if not row["same_prefix_expected"] and not right(row)] == []


def test_nearly_all_pairs_that_should_share_a_key_do() -> None:
    """At least 95 in a hundred, the merely desirable ones included."""
    expected = [row for row in rows() if row["same_prefix_expected"]]
    missed = [row["id"] for row in expected if not right(row)]
    assert len(missed) <= 0.05 * len(expected), missed


def test_the_text_of_every_row_is_forwarded_as_it_came() -> None:
    """Folding is for the key."""
    requests = [request for row in rows() for request in harness.requests(row)]
    assert all(told_of(request)["text_forwarded_unchanged"] for request in requests)


def test_every_fold_names_its_place_in_the_original() -> None:
    """Within the string it speaks of; never a fold in what a user, an assistant or a tool said."""
    for row in rows():
        for request in harness.requests(row):
            for fold in told_of(request)["folded"]:
                _check_fold(fold, request)


def _check_fold(fold: dict[str, Any], request: dict[str, Any]) -> None:
    assert 0 <= fold["start"] <= fold["end"]
    if fold["message"] is None:
        return
    message = request["messages"][fold["message"]]
    if fold["rule"].startswith("tool_"):
        return
    assert message["role"] in {"system", "developer"}
    content = message["content"]
    text = content if isinstance(content, str) else content[fold["part"]]["text"]
    assert fold["end"] <= len(text)
