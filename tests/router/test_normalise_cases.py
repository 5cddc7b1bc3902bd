"""Pairs of requests that should, or must not, share a routing key: the public rows and this project's own."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from router.core import Prompt, PromptSource
from router.normalise import DEFAULT, NONE
from router.prompt import PromptBuilder
from tests.data.cases import harness
from tests.router.text_builders import smollm2

CASES = Path(__file__).parent.parent / "data" / "cases"
LEADING_BLOCKS = 4


def rows(*, same: bool) -> list[dict[str, Any]]:
    """Rows of both files that expect the same key, or another one."""
    files = [(CASES / f"{name}-breakers.jsonl").read_bytes().splitlines() for name in ("prefix", "own")]
    return [row for row in map(json.loads, [*files[0], *files[1]]) if row["same_prefix_expected"] is same]


@cache
def builder() -> PromptBuilder:
    """Keys as the gateway makes them for SmolLM2."""
    return PromptBuilder(smollm2(), 64)


def key_of(body: dict[str, Any], rules: frozenset[str] = DEFAULT) -> Prompt:
    """The prompt of a request body."""
    source = PromptSource(messages=body.get("messages"), prompt=body.get("prompt"), tools=body.get("tools"))
    return builder().build(source, salt=body.get("cache_salt"), model=body["model"], rules=rules)


@pytest.mark.parametrize("row", rows(same=True), ids=lambda row: row["id"])
def test_two_requests_that_differ_in_what_is_volatile_share_a_key(row: dict[str, Any]) -> None:
    """The first key blocks are equal."""
    one, other = (key_of(body).key_blocks for body in harness.requests(row))
    assert one[:LEADING_BLOCKS] == other[:LEADING_BLOCKS], row["why"]


@pytest.mark.parametrize("row", rows(same=False), ids=lambda row: row["id"])
def test_two_requests_that_differ_in_substance_have_other_keys(row: dict[str, Any]) -> None:
    """The key blocks differ somewhere."""
    one, other = (key_of(body).key_blocks for body in harness.requests(row))
    assert one != other, row["why"]


def test_without_rules_no_volatile_pair_shares_its_leading_blocks_but_by_chance() -> None:
    """The rows test the rules: with none of them on, nearly all clock rows fall apart."""
    clocks = [row for row in rows(same=True) if row["kind"].startswith("clock") and row["role"] == "system"]
    shared = 0
    for row in clocks[::5]:
        one, other = (key_of(body, NONE).key_blocks for body in harness.requests(row))
        shared += one[:LEADING_BLOCKS] == other[:LEADING_BLOCKS]
    assert shared == 0


def test_the_exact_chain_never_sees_a_fold() -> None:
    """What is forwarded decides the exact chain, whatever the rules."""
    for row in rows(same=True)[::10]:
        for body in harness.requests(row):
            assert key_of(body).exact_blocks == key_of(body, NONE).exact_blocks
