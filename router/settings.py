"""The router's settings: one table of names, defaults and what each is for."""

from __future__ import annotations

from dataclasses import dataclass

from router.heat import BOUND_BLOCKS, HALF_LIFE_REQUESTS, LEAST_REQUESTS
from router.ring import POINTS_PER_WORKER


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How one model's requests are placed; the defaults are the ones that were measured.

    `ring_slack_seconds` is by how much another worker must be better before a request leaves home; None means the
    time in which the home prefills `ring_slack_tokens`. `ring_patience_seconds` is the same for the policy `ring`.
    Changes of the fleet within `ring_gather_seconds` make one ring.
    `decode_weight` is γ, `price_limit` the most that α may be. `learn` False keeps configured rates and cache sizes.
    `chwbl_factor` and `chwbl_floor` bound requests in flight per worker under the policy `chwbl`.
    `in_flight_age_seconds` is when a request whose end was never told is given up, `waiting_age_seconds` the same for
    one whose first token was never told; `absent_worker_seconds` when a worker that has left is forgotten.
    """

    policy: str = "homing"
    seed: int = 0
    points_per_worker: int = POINTS_PER_WORKER
    ring_gather_seconds: float = 0.0
    ring_slack_seconds: float | None = None
    ring_slack_tokens: int = 1000
    ring_patience_seconds: float = 0.5
    decode_weight: float = 0.15
    price_limit: float = 8.0
    utilisation_window_seconds: float = 60.0
    heat_half_life_requests: float = HALF_LIFE_REQUESTS
    heat_bound_blocks: int = BOUND_BLOCKS
    heat_least_requests: float = LEAST_REQUESTS
    learn: bool = True
    chwbl_factor: float = 1.25
    chwbl_floor: int = 4
    in_flight_bound: int = 100_000
    in_flight_age_seconds: float = 3600.0
    waiting_age_seconds: float = 600.0
    absent_worker_seconds: float = 900.0
