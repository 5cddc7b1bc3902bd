"""Replicas that share nothing still agree on homes, and bounds that each keeps add up (cases G-08 and G-10)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from router.core import FleetView, Prompt, WorkerView
from router.router import Router
from router.settings import RouterSettings

ROOT = Path(__file__).parents[2]
HOMES = """
import sys
from router.core import FleetView, Prompt, WorkerView
from router.router import Router
names = sys.argv[1].split(",")
router, fleet = Router(), FleetView(tuple(WorkerView(name) for name in names))
for number in range(10_000):
    key = number.to_bytes(16, "big")
    print(router.peek(Prompt(1000, 64, [key], [key]), fleet, float(sys.argv[2])).home)
"""


def homes_of(names: list[str], start: float, hash_seed: str) -> list[str]:
    """What a replica of its own process says is home to 10,000 keys."""
    done = subprocess.run(
        [sys.executable, "-c", HOMES, ",".join(names), str(start)],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_g08_two_gateways_without_a_shared_store_name_the_same_homes():
    """G-08: other order of workers, other start, other PYTHONHASHSEED: 10,000 of 10,000 keys have the same home."""
    names = [f"vllm-{number}.vllm:8000" for number in range(12)]
    shuffled = random.Random(3).sample(names, len(names))
    first = homes_of(names, 0.0, "1")
    assert len(first) == 10_000
    assert len(set(first)) == 12
    assert homes_of(shuffled, 98765.0, "2") == first


def place_until_full(gateways: int, requests: int, workers: int, floor: int = 4) -> Counter[str]:
    """One hot key through gateways that know their own requests only; requests in flight by worker."""
    settings = RouterSettings(policy="chwbl", chwbl_factor=1.25, chwbl_floor=floor)
    routers = [Router(settings) for _ in range(gateways)]
    fleet = FleetView(tuple([WorkerView(f"w{number}") for number in range(workers)]))
    hot = Prompt(1000, 64, [b"h" * 16], [b"h" * 16])
    in_flight: Counter[str] = Counter()
    for number in range(requests):
        placed = routers[number % gateways].place(hot, fleet, number / 1000, request_id=str(number))
        in_flight[placed.worker or ""] += 1
    return in_flight


@pytest.mark.parametrize("requests", [240, 720, 2400])
def test_g10_bounds_of_three_gateways_add_up_to_the_fleets(requests):
    """G-10: one hot key, factor 1.25, 24 workers: no worker has more than 1.25 times the mean and 4."""
    in_flight = place_until_full(3, requests, 24, floor=1)
    assert max(in_flight.values()) <= 1.25 * requests / 24 + 4


def test_g10_a_floor_of_each_gateway_is_three_times_the_floor_of_the_fleet():
    """Documented: below the floor no gateway spreads, so three of them put 3 · floor on the home before they do."""
    assert max(place_until_full(3, 12, 24).values()) == 3 * 4
    assert max(place_until_full(3, 36, 24).values()) == 3 * 4
