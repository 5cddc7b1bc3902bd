"""Options of the scheduler: how much runs in a step, and in what order."""

from __future__ import annotations

import argparse

from backends.arguments.values import count, positive
from backends.engine_config import SCHEDULING_POLICIES


def add_scheduler_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument("--max-num-seqs", type=positive, default=256, metavar="N", help="sequences in a step")
    group.add_argument(
        "--max-num-batched-tokens",
        type=positive,
        metavar="TOKENS",
        help="tokens in a step; 512 on a CPU, 2048 on a GPU or simulated",
    )
    group.add_argument(
        "--scheduling-policy",
        choices=SCHEDULING_POLICIES,
        default="fcfs",
        help="with priority the lowest `priority` of a request runs first, and is preempted last",
    )
    group.add_argument(
        "--long-prefill-token-threshold",
        type=count,
        default=0,
        metavar="TOKENS",
        help="most tokens of one prompt in a step, so that long prompts do not hold up short ones; 0 is no bound",
    )
    group.add_argument(
        "--num-preallocate-tokens",
        type=count,
        default=0,
        metavar="TOKENS",
        help="how far ahead of its need a running sequence takes blocks, while they are plenty",
    )
    group.add_argument(
        "--watermark-blocks",
        type=count,
        default=0,
        metavar="BLOCKS",
        help="blocks that stay free when a request is let in beside running ones, so that none is preempted at once",
    )
