"""`homing demo`: three workers and one gateway on this machine, the same load under round_robin and homing."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from gateway.demo.load import BLOCK_TOKENS, conversations
from gateway.demo.processes import ChildFailed
from gateway.demo.report import Figures, table
from gateway.demo.run import compare
from gateway.demo.setup import Stage, prepare


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's options."""
    parser.add_argument("--simulated", action="store_true", help="workers with a timing model in place of tensors")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--turns", type=int, default=4, help="turns of each conversation (default 4)")


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration; 0 when every request was answered."""
    with tempfile.TemporaryDirectory(prefix="homing-demo-") as directory:
        stage = prepare(conversations(arguments.turns), Path(directory), simulated=arguments.simulated)
        _introduce(stage)
        try:
            policies = asyncio.run(compare(stage))
        except ChildFailed as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
    _show(stage, policies, arguments.json)
    return 1 if any(figures["errors"] for figures in policies.values()) else 0


def _introduce(stage: Stage) -> None:
    requests = sum(len(conversation.turns) for conversation in stage.load)
    print(
        f"load: {len(stage.load)} conversations, {requests} requests, {stage.distinct_blocks} distinct blocks of "
        f"{BLOCK_TOKENS} tokens; each worker's pool holds {stage.pool_blocks - 1} of them",
        file=sys.stderr,
    )


def _show(stage: Stage, policies: dict[str, Figures], path: Path | None) -> None:
    print(table(policies))
    if path is not None:
        facts = {"simulated": stage.simulated, "distinct_blocks": stage.distinct_blocks}
        path.write_text(json.dumps({**facts, "pool_blocks": stage.pool_blocks, "policies": policies}, indent=2) + "\n")
