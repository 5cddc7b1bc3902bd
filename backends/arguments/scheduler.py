"""Options of the scheduler: how much runs in a step, and in what order."""

from __future__ import annotations

import argparse

from backends.arguments.values import positive


def add_scheduler_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument("--max-num-seqs", type=positive, default=256, metavar="N", help="sequences in a step")
    group.add_argument(
        "--max-num-batched-tokens",
        type=positive,
        metavar="TOKENS",
        help="tokens in a step; 512 for a model, 2048 simulated",
    )
