"""All peers by name, each with the parameters it ships with."""

from __future__ import annotations

from collections.abc import Callable

from bench.peers.aibrix import AiBrixPrefix
from bench.peers.dynamo import Dynamo, DynamoApproximate, DynamoLmetric
from bench.peers.llmd import LlmdApproximate, LlmdExact, LlmdSticky
from bench.peers.lmetric import Lmetric
from bench.peers.peer import Peer
from bench.peers.plain import LeastRequests, PowerOfTwo, RandomWorker, RoundRobin
from bench.peers.preble import Preble
from bench.peers.production_stack import LoadAware, PrefixAware
from bench.peers.rings import EnvoyBounded, KubeAI, PrefixHash, SessionRing
from bench.peers.routing_keys import first_own_blocks, session_keys
from bench.peers.trees import CacheAware, RayPrefix, SmgEvents, SmgGate
from router.replay.core import EngineSettings, Trace

Build = Callable[[EngineSettings, Trace, int], Peer]


def _plain(kind: Callable[..., Peer], **parameters: object) -> Build:
    return lambda settings, _trace, seed: kind(settings, seed=seed, **parameters)


def _keyed(kind: Callable[..., Peer], keys: Callable[[Trace], object], **parameters: object) -> Build:
    return lambda settings, trace, seed: kind(settings, keys(trace), seed=seed, **parameters)


PEERS: dict[str, Build] = {
    "round_robin": _plain(RoundRobin),
    "random": _plain(RandomWorker),
    "least_requests": _plain(LeastRequests),
    "power_of_two": _plain(PowerOfTwo),
    "kubeai_chwbl": _keyed(KubeAI, first_own_blocks),
    "envoy_bounded": _keyed(EnvoyBounded, session_keys),
    "session_ring": _keyed(SessionRing, session_keys),
    "production_stack_prefix": _plain(PrefixAware),
    "production_stack_load": _plain(LoadAware),
    "cache_aware_cli": _plain(CacheAware),
    "cache_aware_struct": _plain(
        CacheAware, threshold=0.5, absolute=32, relative=1.1, tree_blocks=10_000, eviction_seconds=30.0
    ),
    "cache_aware_smallest_tree": _plain(CacheAware, on_miss="smallest_tree"),
    "smg_gate": _plain(SmgGate),
    "smg_events": _plain(SmgEvents),
    "prefix_hash": _plain(PrefixHash),
    "prefix_hash_boundaries": _plain(PrefixHash, depths_tokens=(512, 2048, 8192)),
    "llmd_approximate": _plain(LlmdApproximate),
    "llmd_exact": _plain(LlmdExact),
    "llmd_sticky": _plain(LlmdSticky),
    "aibrix_deployed": _plain(AiBrixPrefix),
    "aibrix_code": _plain(AiBrixPrefix, imbalance=8, deviations=1.0),
    "dynamo_events": _plain(Dynamo),
    "dynamo_approximate": _plain(DynamoApproximate),
    "dynamo_lmetric": _plain(DynamoLmetric),
    "lmetric_own": _plain(Lmetric),
    "lmetric_queued": _plain(Lmetric, with_queued=True),
    "preble": _plain(Preble),
    "ray": _plain(RayPrefix),
    "ray_old": _plain(RayPrefix, imbalance=10.0),
}
"""Builders by name: (settings, trace, seed) -> a peer. A builder may read the trace for what its text would tell."""

STRONGEST = ("llmd_sticky", "llmd_approximate", "llmd_exact", "lmetric_queued", "cache_aware_smallest_tree", "smg_gate")
"""The six that come nearest to the ideal over all cells."""


def build_peer(name: str, settings: EngineSettings, trace: Trace, seed: int = 1) -> Peer:
    """A fresh peer; ValueError names those there are."""
    if name not in PEERS:
        raise ValueError(f"no peer {name!r}; there are {', '.join(PEERS)}")
    return PEERS[name](settings, trace, seed)
