"""Checks of what a tenant wants of caches: its share, how long blocks are kept, what is rewritten, what is pinned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Final

from gateway.config_source import Path
from gateway.errors import InvalidRequest
from gateway.isolation import IsolationKind
from gateway.mistakes import Mistake
from gateway.prewarm.pin_files import PinError, read_pin
from gateway.rewrites.rules import parse_rewrites
from gateway.tenant_settings import PinnedPrompt, TenantSettings

_PARTITION: Final = re.compile(r"(?! )[^\x00-\x1f=]{1,128}(?<! )")
_TIMED: Final = ("priority", "pin")
_LONGEST_TTL_SECONDS: Final = 86_400.0


def cache_mistakes(tenant: TenantSettings, place: Path, *, prewarms: bool) -> Iterator[Mistake]:
    """What is wrong with one tenant's settings about caches; `prewarms` is whether anything is sent ahead at all."""
    if tenant.cache_partition is not None and not _PARTITION.fullmatch(tenant.cache_partition):
        what = "a cache partition is named by 1 to 128 printable characters without `=` and without spaces around"
        yield Mistake((*place, "cache_partition"), what, "write the name in the worker's --cache-partition NAME=…")
    ttl_seconds = tenant.cache_ttl_seconds
    if ttl_seconds is not None and (tenant.cache_policy not in _TIMED or ttl_seconds > _LONGEST_TTL_SECONDS):
        what = "belongs to a `cache_policy` of priority or pin, and is at most a day"
        yield Mistake((*place, "cache_ttl_seconds"), what, "leave it out, or say `cache_policy: pin`")
    try:
        parse_rewrites(tenant.rewrite)
    except ValueError as error:
        yield Mistake((*place, "rewrite"), str(error))
    if tenant.pinned:
        yield from _pinned(tenant, place, prewarms=prewarms)


def _pinned(tenant: TenantSettings, place: Path, *, prewarms: bool) -> Iterator[Mistake]:
    if not (prewarms and tenant.prewarm):
        what = "nothing is sent ahead while `prewarm` is off"
        yield Mistake((*place, "pinned"), what, "switch `prewarm` on, or leave out what is pinned")
    if tenant.isolation in (IsolationKind.KEY.value, IsolationKind.USER.value):
        what = f"with `isolation: {tenant.isolation}` no prompt is anybody else's: there is nothing to pin"
        yield Mistake((*place, "pinned"), what, "use tenant, group:NAME or shared")
    for index, pinned in enumerate(tenant.pinned):
        yield from _pin(tenant, pinned, (*place, "pinned", index))


def _pin(tenant: TenantSettings, pinned: PinnedPrompt, place: Path) -> Iterator[Mistake]:
    try:
        call = read_pin(FilePath(pinned.file))
    except (PinError, InvalidRequest) as error:
        yield Mistake((*place, "file"), str(error), "a request body as the API takes it: model, and messages or prompt")
        return
    if tenant.models is not None and call.model not in tenant.models:
        yield Mistake((*place, "file"), f"it asks for `{call.model}`, which this tenant may not use")
