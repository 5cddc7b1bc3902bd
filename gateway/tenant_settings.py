"""Settings of a tenant: its keys, its models, whom it shares a cache with, and how its requests are placed."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from gateway.limit_settings import Priority, TenantBudget, TenantLimits
from gateway.placement_settings import PolicySettings
from gateway.settings_base import Count, Seconds, Section


class PinnedPrompt(Section, frozen=True):
    """A prompt that is kept in workers' caches whether anybody asks for it or not."""

    name: Annotated[str, Meta(min_length=1, max_length=64, description="What logs call it.")]
    file: Annotated[
        str, Meta(min_length=1, description="A request body as JSON, with its `model`; chat messages or a `prompt`.")
    ]
    replicas: Annotated[
        Annotated[int, Meta(ge=1, le=64)],
        Meta(description="How many workers hold it: its homes on the ring, in order."),
    ] = 1


class TenantSettings(Section, frozen=True):
    """Who may ask, for which models, and whom it shares a cache with."""

    keys: Annotated[
        list[str],
        Meta(
            description="API keys as sha256:HEX or file:PATH (one a line; of a folder each file), perhaps with "
            "` expires=2026-12-31` behind; two to rotate (docs/tenants.md)."
        ),
    ] = field(default_factory=list)
    open: Annotated[
        bool, Meta(description="Requests without a key are this tenant's; only while listening on loopback.")
    ] = False
    models: Annotated[list[str] | None, Meta(description="Models and adapters it may use; all by default.")] = None
    isolation: Annotated[
        str,
        Meta(
            description="Who shares its prefix cache: tenant (nobody else), group:NAME, key, user (per `user` field), "
            "or shared (all shared tenants; their timing tells what others asked)."
        ),
    ] = "tenant"
    fold: Annotated[
        str | list[str],
        Meta(description="What the routing key reads as equal: default, none, or a list of fold rules."),
    ] = "default"
    policy: Annotated[
        str | PolicySettings | None,
        Meta(description="Overrides the model's policy for this tenant: a name, or a mapping with its numbers."),
    ] = None
    allow_debug_headers: Annotated[
        bool, Meta(description="Lets it ask with `x-homing-debug: 1` which worker answered and why.")
    ] = False
    allow_priority: Annotated[
        bool,
        Meta(
            description="Passes on a request's own `priority`, by which workers that schedule by it put it before or "
            "behind everybody's; else 400. The place in the gateway's own line is `priority` below."
        ),
    ] = False
    max_prompt_tokens: Annotated[
        Count | None, Meta(description="Longest prompt in tokens; by default what the model takes.")
    ] = None
    limits: Annotated[
        TenantLimits | None,
        Meta(description="Bounds on what it takes a minute, at a time and per answer; none by default."),
    ] = None
    budget: Annotated[
        TenantBudget | None, Meta(description="Tokens it may use in a period; as many as it likes by default.")
    ] = None
    weight: Annotated[
        Annotated[float, Meta(gt=0, le=1000)],
        Meta(description="Its share when every worker is full: 2 gets twice what 1 gets, in tokens of prompts."),
    ] = 1.0
    priority: Annotated[
        Priority, Meta(description="Multiplies the weight: high 4, normal 1, low a quarter; nobody starves.")
    ] = "normal"
    prewarm: Annotated[
        bool, Meta(description="Lets the gateway keep its recent prompts in memory, to warm workers' caches with them.")
    ] = True
    cache_partition: Annotated[
        str | None,
        Meta(
            description="The share of a worker's cache that its requests use, by the name in the worker's "
            "`--cache-partition`. Sent as `vllm_xargs.cache_partition`, which callers cannot set, to workers that "
            "understand it."
        ),
    ] = None
    cache_policy: Annotated[
        Literal["no-store", "evict-first", "normal", "priority", "pin"] | None,
        Meta(
            description="How long workers that understand it keep its blocks, where a request does not say: sent "
            "as `vllm_xargs.cache_policy`."
        ),
    ] = None
    cache_ttl_seconds: Annotated[
        Seconds | None, Meta(description="How long a `cache_policy` of priority or pin holds; at most a day.")
    ] = None
    rewrite: Annotated[
        list[str],
        Meta(
            description="What the gateway may change in its prompts (docs/rewrites.md): line_ends, client_attribution, "
            "clock_last, tool_order, code_comments:LANGUAGE, code_blank_lines:LANGUAGE, code_indentation:LANGUAGE."
        ),
    ] = field(default_factory=list)
    pinned: Annotated[
        list[PinnedPrompt], Meta(description="Prompts that are kept in workers' caches; needs `prewarm.enabled`.")
    ] = field(default_factory=list)
