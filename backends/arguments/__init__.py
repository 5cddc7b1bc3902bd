"""The worker's command line: vLLM's names where vLLM has the thing, `--simulated…` where it has not."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from backends.arguments.cache import add_cache_options
from backends.arguments.metrics import add_metrics_options
from backends.arguments.model import add_model_options
from backends.arguments.scheduler import add_scheduler_options
from backends.arguments.server import add_server_options
from backends.arguments.simulation import add_simulation_options
from backends.events.options import add_event_options
from backends.exchange.options import add_exchange_options
from backends.tiers.options import add_tier_options


def build_parser() -> argparse.ArgumentParser:
    """All options, in groups."""
    parser = argparse.ArgumentParser(
        prog="homing worker",
        description="Serve one model with a paged prefix cache, on vLLM's wire.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_model_options(parser.add_argument_group("model"))
    add_server_options(parser.add_argument_group("server"))
    add_cache_options(parser.add_argument_group("cache"))
    add_scheduler_options(parser.add_argument_group("scheduler"))
    add_tier_options(parser.add_argument_group("tiers"))
    add_event_options(parser.add_argument_group("KV events"))
    add_exchange_options(parser.add_argument_group("warm-up and exchange"))
    add_metrics_options(parser.add_argument_group("metrics"))
    add_simulation_options(parser.add_argument_group("simulation"))
    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The parsed command line; SystemExit(2) with a sentence for what cannot be."""
    parser = build_parser()
    parsed = parser.parse_args(arguments)
    if not parsed.simulated and any(
        value is not None
        for value in (
            parsed.simulated_prefill_tokens_per_second,
            parsed.simulated_fixed_seconds,
            parsed.simulated_seconds_per_token,
        )
    ):
        parser.error("the --simulated-… options need --simulated")
    if parsed.api_key is None:
        # Not a default of the option: --help would print it.
        parsed.api_key = [key] if (key := os.environ.get("VLLM_API_KEY")) else []
    return parsed
