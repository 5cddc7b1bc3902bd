"""The options of `homing replay`, and how their numbers are read."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from gateway.replay.desk import POLICY_NAMES
from router.replay.core import EngineSettings

OWN_PACE: Literal["recorded"] = "recorded"
DEFAULT_POLICIES = "homing,ring,least_loaded,oracle,ideal"
DEFAULT_LOAD = 0.9
MOST = 1e9
"""Of any number: what is beyond it is a slip, and arithmetic runs out of range with it."""
MOST_WORKERS = 4096
MOST_GATEWAYS = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `homing replay`."""
    engine = EngineSettings()
    add = parser.add_argument
    add("--trace", type=Path, required=True, metavar="FILE", help="a recording, or a published trace (or its folder)")
    add("--model", metavar="NAME", help="whose requests of a recording to replay, where it has several models")
    add(
        "--sessions-wait",
        action="store_true",
        help="of a recording: a conversation's next request comes as long after the answer as it did, not at its time",
    )
    add("--limit", type=_whole(1), metavar="N", help="only the first N requests")
    add(
        "--policy",
        default=DEFAULT_POLICIES,
        metavar="A,B",
        help=f"policies to compare, of {', '.join(POLICY_NAMES)} (default {DEFAULT_POLICIES})",
    )
    _add_fleet(parser, engine)
    add(
        "--cache-blocks",
        type=_whole(1),
        default=engine.cache_blocks,
        metavar="N",
        help=f"each worker's cache in blocks of the trace (default {engine.cache_blocks})",
    )
    add(
        "--load",
        type=_load,
        metavar="X",
        help="requests a second as a multiple of what least_loaded sustains with this cache (default "
        f"{DEFAULT_LOAD}); `recorded` keeps the trace's own pace; where sessions wait for answers, how many times as "
        "often as recorded they start (default 1)",
    )
    add(
        "--prefill-rate",
        type=_number(above=0.0),
        default=engine.prefill_tokens_per_second,
        metavar="T",
        help=f"prompt tokens a worker computes a second (default {engine.prefill_tokens_per_second:g})",
    )
    add(
        "--prefill-fixed",
        type=_number(),
        default=engine.prefill_fixed_seconds,
        metavar="S",
        help=f"seconds that each prefill takes besides (default {engine.prefill_fixed_seconds:g})",
    )
    add("--engine", choices=("A", "B"), default=engine.kind, help="A: one prefill at a time; B: continuous batching")
    add(
        "--slo", type=_number(above=0.0), default=5.0, metavar="S", help="a first token is in time within S (default 5)"
    )
    add("--seed", type=_whole(0), default=1, metavar="N", help="where chance decides, another seed decides otherwise")
    add("--processes", type=_whole(1), metavar="N", help="replays at a time (default: one for each processor)")
    add("--json", action="store_true", help="print JSON in place of the table")
    add("--png", type=Path, metavar="FILE", help="also replay other loads and cache sizes, and draw them")


def _add_fleet(parser: argparse.ArgumentParser, engine: EngineSettings) -> None:
    parser.add_argument(
        "--workers",
        type=_whole(1, MOST_WORKERS),
        default=engine.workers,
        metavar="N",
        help=f"workers (default {engine.workers})",
    )
    parser.add_argument(
        "--gateways", type=_whole(1, MOST_GATEWAYS), default=1, metavar="R", help="gateways side by side (default 1)"
    )
    parser.add_argument(
        "--news-delay",
        type=_news_delay,
        default=0.005,
        metavar="S",
        help="seconds until gateways hear of each other's placements, or `none` for never (default 0.005)",
    )
    parser.add_argument(
        "--no-learning", action="store_true", help="policies keep to the rates and cache sizes that they are told"
    )


def _number(above: float | None = None) -> Callable[[str], float]:
    """A number from 0, or above `above`."""

    def read(text: str) -> float:
        value = _as_float(text)
        if value is None or not 0 <= value <= MOST or (above is not None and value <= above):
            wanted = "from 0" if above is None else f"above {above:g}"
            raise argparse.ArgumentTypeError(f"a number {wanted} is wanted, to {MOST:g} at most, got {text!r}")
        return value

    return read


def _whole(least: int, most: int = int(MOST)) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 20 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"a whole number from {least} is wanted, to {most} at most, got {text!r}")
        return int(text)

    return read


def _load(text: str) -> float | Literal["recorded"]:
    return OWN_PACE if text == OWN_PACE else _number(above=0.0)(text)


def _news_delay(text: str) -> float | None:
    return None if text == "none" else _number()(text)


def _as_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
