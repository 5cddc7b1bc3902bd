"""Whether the time of a key's look-up tells an unknown key from a wrong one: Welch's t over interleaved samples (G5).

`--check` fails where |t| is 4.5 or more, or where the medians differ by more than 5 %. The control shows that the
measure can see something: it compares a key with the same key after a longer look.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.errors import InvalidApiKey
from gateway.secrets import key_digest
from gateway.settings import TenantSettings
from gateway.tenants import Tenants

LEAST_T = 4.5
ROUNDS = 3
"""A look-up that tells something tells it in every round, a busy machine in one: the least counts."""
MOST_APART = 0.05
KEYS = 1000
CROPPED = 0.9
"""The slowest tenth of each kind is left out: what the machine did then has nothing to do with the key."""


class Verdict(NamedTuple):
    """One comparison: Welch's t, and how far apart the medians are, as a share."""

    what: str
    t: float
    apart: float


def welch_t(first: Sequence[float], second: Sequence[float]) -> float:
    """Welch's t of two samples; 0 when they do not vary and are equal."""
    spread = statistics.variance(first) / len(first) + statistics.variance(second) / len(second)
    apart = statistics.fmean(first) - statistics.fmean(second)
    return apart / spread**0.5 if spread else (0.0 if apart == 0 else float("inf"))


def build_tenants() -> tuple[Tenants, list[str]]:
    """A tenant with a thousand keys, and those keys."""
    chance = random.Random(1)
    keys = [f"hm-{chance.randrange(10**40):040d}" for _ in range(KEYS)]
    digests = {"acme": [key_digest(key) for key in keys]}
    return Tenants({"acme": TenantSettings()}, digests, b"x" * 32), keys


def nanoseconds(tenants: Tenants, key: str, extra: Callable[[], object] | None = None) -> int:
    """One look-up."""
    header = f"Bearer {key}"
    began = time.perf_counter_ns()
    try:
        tenants.identify(header, None)
        opened = True
    except InvalidApiKey:
        opened = False
    if extra is not None:
        extra()
    taken = time.perf_counter_ns() - began
    if opened:
        raise AssertionError("a key that should open nothing opened a tenant")
    return taken


def measure(samples: int) -> list[Verdict]:
    """Unknown keys against keys that differ from a right one in the last place, at random turns; and a control."""
    tenants, right = build_tenants()
    chance = random.Random(7)
    # Made before and alike: making a key leaves its traces in the processor's caches.
    unknown = [f"hm-{chance.randrange(10**39):039d}x" for _ in range(KEYS)]
    wrong = [f"{key[:-1]}x" for key in right]
    keys = {"unknown": unknown, "wrong": wrong, "control": [f"{key[:-1]}x" for key in right]}
    taken: dict[str, list[float]] = {kind: [] for kind in keys}
    gc.disable()
    for _ in range(samples):
        for kind in chance.sample(sorted(keys), len(keys)):
            key = keys[kind][chance.randrange(KEYS)]
            taken[kind].append(nanoseconds(tenants, key, longer if kind == "control" else None))
    gc.enable()
    kept = {kind: sorted(each)[: int(len(each) * CROPPED)] for kind, each in taken.items()}
    return [_verdict(f"{kind} against wrong", kept[kind], kept["wrong"]) for kind in ("unknown", "control")]


def longer() -> int:
    """What the control does besides."""
    return sum(range(20))


def _verdict(what: str, first: Sequence[float], second: Sequence[float]) -> Verdict:
    middle = statistics.median(second)
    return Verdict(what, welch_t(first, second), abs(statistics.median(first) - middle) / middle)


def main() -> int:
    """Print both comparisons; 1 with --check when the first one tells something, or the control nothing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    rounds = [measure(arguments.samples // ROUNDS) for _ in range(ROUNDS)]
    for each in (verdict for verdicts in rounds for verdict in verdicts):
        print(f"{each.what:24} t {each.t:8.2f}   medians {each.apart:.2%} apart")
    keys, control = (min(each, key=lambda verdict: abs(verdict.t)) for each in zip(*rounds, strict=True))
    well = abs(keys.t) < LEAST_T and keys.apart <= MOST_APART and abs(control.t) >= LEAST_T
    return 0 if well or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
