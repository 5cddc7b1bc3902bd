"""From `policy` in the configuration to the router's numbers: a model's own, and what tenants have instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.placement_settings import PolicySettings
from gateway.settings import Model
from gateway.tenant_settings import TenantSettings
from router.settings import RouterSettings


def policy_settings(policy: str | PolicySettings) -> PolicySettings:
    """A policy in its long form."""
    return PolicySettings(name=policy) if isinstance(policy, str) else policy


def router_settings(model: Model | None) -> RouterSettings:
    """The router's settings from a model's `policy`; what is not said keeps its measured default."""
    return RouterSettings() if model is None else with_policy(RouterSettings(), policy_settings(model.policy))


def with_policy(settings: RouterSettings, policy: PolicySettings) -> RouterSettings:
    """The same settings with another policy and its numbers."""
    return replace(
        settings,
        policy=policy.name,
        ring_slack_seconds=policy.ring_slack_seconds,
        ring_patience_seconds=policy.ring_patience_seconds,
        decode_weight=policy.decode_weight,
        chwbl_factor=policy.chwbl_factor,
    )


def policy_name(tenant: str, settings: TenantSettings) -> str | None:
    """What a tenant's requests are placed by, as routers know it; None for the model's own.

    Numbers of its own make a policy of its own, which is named after the tenant.
    """
    return f"tenant:{tenant}" if isinstance(settings.policy, PolicySettings) else settings.policy


def tenant_policies(tenants: Mapping[str, TenantSettings]) -> dict[str, RouterSettings]:
    """The policies with tenants' own numbers, by the names that `policy_name` gives them."""
    own = ((f"tenant:{name}", tenant.policy) for name, tenant in tenants.items())
    return {name: with_policy(RouterSettings(), each) for name, each in own if isinstance(each, PolicySettings)}
