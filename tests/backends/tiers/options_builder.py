"""The tiers' options as the worker's command line gives them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from backends.tiers.options import add_tier_options


def build_options(flags: Sequence[str] = (), *, prefix_caching: bool = True) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_tier_options(parser.add_argument_group("tiers"))
    parsed = parser.parse_args(flags)
    parsed.enable_prefix_caching = prefix_caching
    return parsed
