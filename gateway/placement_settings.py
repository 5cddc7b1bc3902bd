"""Settings of how a model's requests are placed: the policy with its numbers, and the events that tell of caches."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from gateway.settings_base import Count, Seconds, Section


class PolicySettings(Section, frozen=True):
    """A policy with its own numbers; what is left out keeps its measured default."""

    name: Annotated[str, Meta(description="homing, ring, chwbl, session, least_loaded, round_robin or random.")] = (
        "homing"
    )
    ring_slack_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="homing: how much sooner another worker must answer before a prompt leaves its home; by "
             "default the time to prefill 1,000 tokens."),
    ] = None  # fmt: skip
    ring_patience_seconds: Annotated[
        Annotated[float, Meta(ge=0)], Meta(description="ring: the same for the policy that keeps strictly to the home.")
    ] = 0.5
    decode_weight: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(description="homing: what a second of slowed decoding counts against a second of waiting."),
    ] = 0.15
    chwbl_factor: Annotated[
        Annotated[float, Meta(ge=1)],
        Meta(description="chwbl: most requests at a worker, as a multiple of the fleet's mean."),
    ] = 1.25


class EventSettings(Section, frozen=True):
    """Where workers publish KV events, and how long they may be silent; with an endpoint nobody is asked for one."""

    endpoint: Annotated[
        Annotated[str, Meta(pattern=r"^(tcp|ipc)://.+")] | None,
        Meta(description="tcp://*:PORT (the worker's own host), tcp://HOST:PORT or ipc://PATH; by default what each "
             "worker says, at its own host."),
    ] = None  # fmt: skip
    replay_endpoint: Annotated[
        Annotated[str, Meta(pattern=r"^(tcp|ipc)://.+")] | None,
        Meta(description="Where missed batches are repeated, beside `endpoint`; without it a gap costs the picture."),
    ] = None
    topic: Annotated[str, Meta(description="Beginning of the topics to hear, beside `endpoint`.")] = ""
    ranks: Annotated[
        Annotated[int, Meta(ge=1, le=64)],
        Meta(description="Data-parallel ranks, beside `endpoint`; each one's ports are one higher."),
    ] = 1
    silent_seconds: Annotated[
        Seconds,
        Meta(description="How long after an answer its blocks may stay untold before its worker counts as silent."),
    ] = 5.0
    catch_up_seconds: Annotated[
        Seconds, Meta(description="How long nothing is heard before the replay endpoint is asked unprompted.")
    ] = 10.0
    bound_blocks: Annotated[
        Count, Meta(description="Most blocks of one worker that are kept, about 300 bytes each.")
    ] = 262_144
