"""Options of the model: which, how long, in what numbers."""

from __future__ import annotations

import argparse

from backends.arguments.values import length, positive


def add_model_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument("--model", default="smollm2", help="a GGUF file, a Hugging Face folder, or smollm2")
    group.add_argument("--served-model-name", nargs="+", metavar="NAME", help="names in the API; --model if not given")
    group.add_argument("--max-model-len", type=length, metavar="TOKENS", help="the model's own length if not given")
    group.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"], help="a GPU where there is one")
    group.add_argument(
        "--dtype",
        default="auto",
        choices=["auto", "float32", "float16", "bfloat16"],
        help="auto: bfloat16 where the device multiplies it, else float16 on a GPU, float32 on a CPU",
    )
    group.add_argument("--threads", type=positive, metavar="N", help="compute threads; torch decides if not given")
    group.add_argument(
        "--seed", type=int, metavar="N", help="answers without a seed get N, N+1, …; unpredictable ones if not given"
    )
