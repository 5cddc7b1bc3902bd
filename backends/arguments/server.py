"""Options of the HTTP server: where it listens, whom it answers, what it refuses."""

from __future__ import annotations

import argparse
import os

from backends.arguments.values import OnOff, bound, port, positive, seconds
from backends.sampling_fields import MAX_LOGPROBS
from backends.serving import MIB


def add_server_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument("--host", default="127.0.0.1", help="0.0.0.0 for all interfaces (vLLM's default)")
    group.add_argument("--port", type=port, default=8000, help="0 takes a free one and says which")
    group.add_argument("--api-key", nargs="+", type=_key, metavar="KEY", help="guards /v1; also VLLM_API_KEY")
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
    group.add_argument(
        "--max-logprobs",
        type=bound,
        default=MAX_LOGPROBS,
        metavar="N",
        help="most alternatives to a token that a request may ask for; -1 is no bound",
    )
    group.add_argument("--max-body-bytes", type=positive, default=64 * MIB, metavar="BYTES", help="413 beyond")
    group.add_argument("--shutdown-timeout", type=seconds, default=30.0, metavar="SECONDS", help="drain after SIGTERM")
    group.add_argument("--max-num-queued-reqs", type=positive, metavar="N", help="503 when so many wait")
    group.add_argument("--max-num-queued-tokens", type=positive, metavar="N", help="503 when so many tokens wait")


def _key(text: str) -> str:
    """A key; none is empty, or `Authorization: Bearer` alone would open the door."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a key must not be empty; leave the option out to guard nothing")
    return text
