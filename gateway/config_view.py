"""The configuration as the admin port shows it: by digest, and without what only its owner may know."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from gateway.config_checks import Secrets
from gateway.settings import Config

_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{12})[0-9a-fA-F]{52}")


def config_digest(config: Config) -> str:
    """SHA-256, as hex, of the settings with their defaults: equal on replicas that were told the same.

    Comments and order do not count, and neither does what stands behind references.
    """
    return sha256(msgspec.json.encode(config, order="deterministic")).hexdigest()


def shown_config(config: Config) -> dict[str, Any]:
    """The settings as plain data; of a key's digest only the fingerprint that logs have."""
    return dict(_redacted(msgspec.to_builtins(config)))


def ending_keys(secrets: Secrets, before: float) -> list[tuple[str, bytes, float]]:
    """Tenant, digest and end of the keys that end before a time (Unix seconds) or have ended, revoked ones left out."""
    return [
        (tenant, digest, secrets.expiries[digest])
        for tenant, digests in secrets.digests.items()
        for digest in digests
        if digest not in secrets.revoked and secrets.expiries.get(digest, math.inf) < before
    ]


def moment(unix_seconds: float) -> str:
    """ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


def _redacted(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _redacted(each) for name, each in data.items()}
    if isinstance(data, list):
        return [_redacted(each) for each in data]
    return _DIGEST.sub(r"sha256:\1…", data) if isinstance(data, str) else data
