"""Options of a worker whose tensors are a timing model."""

from __future__ import annotations

import argparse

from backends.arguments.values import rate, seconds


def add_simulation_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument("--simulated", action="store_true", help="a timing model in place of tensors; needs no torch")
    group.add_argument("--simulated-prefill-tokens-per-second", type=rate, metavar="RATE", help="prefill takes no time")
    group.add_argument("--simulated-fixed-seconds", type=seconds, metavar="SECONDS", help="cost of a step")
    group.add_argument("--simulated-seconds-per-token", type=seconds, metavar="SECONDS", help="cost of a token out")
