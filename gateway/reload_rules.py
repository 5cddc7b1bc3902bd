"""What of a configuration may change while the gateway runs, and what needs a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gateway.config_checks import Secrets
from gateway.config_source import Path
from gateway.settings import Config, Model

ALL = frozenset({"*"})

RELOADS: Mapping[str, frozenset[str]] = {
    "tenants": ALL,
    "revoked_keys": ALL,
    "salt_secrets": ALL,
    "salt_secret": ALL,
    "timeouts": frozenset({
        "connect_seconds", "first_byte_seconds", "whole_answer_seconds", "idle_seconds", "queue_seconds",
        "hold_seconds",
        "stream_heartbeat_seconds", "drain_delay_seconds", "drain_seconds",
    }),
    "limits": frozenset({"body_bytes"}),
    "log": frozenset({"level", "request_share", "decision_share"}),
}  # fmt: skip
"""The settings that `gateway.applying` brings into a gateway that runs; a section's other fields need a restart."""

MODEL_RELOADS = frozenset(
    {"backends", "adapters", "policy", "max_in_flight", "prefill_tokens_per_second", "prefill_fixed_seconds"}
)
"""The same for each model; models come and go as well."""


def needs_restart(before: Config, after: Config) -> tuple[Path, ...]:
    """The places that differ and cannot be changed without a restart."""
    return tuple(_places(before, after))


def secrets_need_restart(before: Secrets, after: Secrets) -> tuple[Path, ...]:
    """The same for what stands behind references: replicas seal their news with the salt secret."""
    places: list[Path] = []
    if before.redis_url != after.redis_url:
        places.append(("redis", "url"))
    if before.admin_token != after.admin_token:
        places.append(("listen", "admin_token"))
    if after.redis_url is not None and before.salt_key != after.salt_key:
        places.append(("salt_secrets",))
    return tuple(places)


def _places(before: Config, after: Config) -> Iterator[Path]:
    for name in Config.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if name == "models":
            yield from _model_places(before.models, after.models)
        elif RELOADS.get(name) != ALL:
            yield from _fields((name,), old, new, RELOADS.get(name, frozenset()))


def _model_places(before: Mapping[str, Model], after: Mapping[str, Model]) -> Iterator[Path]:
    for name in before.keys() & after.keys():
        yield from _fields(("models", name), before[name], after[name], MODEL_RELOADS)


def _fields(
    place: Path, before: msgspec.Struct | None, after: msgspec.Struct | None, reloads: frozenset[str]
) -> Iterator[Path]:
    if before == after:
        return
    if before is None or after is None:
        yield place
        return
    for name in before.__struct_fields__:
        if name not in reloads and getattr(before, name) != getattr(after, name):
            yield (*place, name)
