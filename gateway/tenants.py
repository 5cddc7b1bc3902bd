"""Whose request it is: from an API key to a tenant, and from a tenant to the salt of its cache."""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from gateway.cache_wishes import CacheWishes
from gateway.errors import InvalidApiKey, InvalidRequest, IsolationUnavailable
from gateway.isolation import SHARED, Isolation, IsolationKind, parse_isolation
from gateway.limit_settings import PRIORITY_FACTORS, TenantBudget, TenantLimits
from gateway.policies import policy_name
from gateway.rewrites.rules import NONE, Rewrites, parse_rewrites
from gateway.secrets import derive_salt, fingerprint, key_digest, length_prefixed
from gateway.tenant_settings import TenantSettings
from router.normalise import FoldRules, fold_rules

SALTS_KEPT: Final = 64
"""Of one tenant, by model: more than most fleets have."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant as one of its keys opened it.

    `models` None means all. `key_fingerprint` is for logs ('' without a key). `debug_headers` allows asking which
    worker answered, `may_prioritise` a `priority` of its own among everybody's requests at a worker.
    `max_prompt_tokens` None means what the model takes. `cache_partition` is the share of the workers' caches that
    pays for its requests. `prewarm` lets its recent prompts be kept in memory. `weight` is its share when every worker
    is full, its priority included. `wishes` is what workers are asked of their caches, None for nothing; `rewrites`
    what may be changed in its prompts.
    """

    name: str
    models: frozenset[str] | None = None
    fold: FoldRules = frozenset()
    policy: str | None = None
    debug_headers: bool = False
    may_prioritise: bool = False
    max_prompt_tokens: int | None = None
    cache_partition: str | None = None
    wishes: CacheWishes | None = None
    rewrites: Rewrites = NONE
    prewarm: bool = True
    limits: TenantLimits | None = None
    budget: TenantBudget | None = None
    weight: float = 1.0
    isolation: Isolation = SHARED
    key_fingerprint: str = ""
    key_digest: bytes = field(default=b"", repr=False)
    salt_key: bytes | None = field(default=None, repr=False)
    _salts: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)
    """By model, for requests that narrow nothing: a tenant that another key opens, or another secret, has its own."""

    @property
    def caveat(self) -> str | None:
        """What must be said with hashes of this tenant's prompts that no key was named for; None where they hold."""
        if self.isolation.kind is not IsolationKind.KEY or self.key_fingerprint:
            return None
        return "each key of this tenant has hashes of its own, and these are no key's: name one by its fingerprint"

    def may_use(self, model: str) -> bool:
        """Whether this tenant may ask for the model or adapter."""
        return self.models is None or model in self.models

    @property
    def is_kept_apart(self) -> bool:
        """Whether there are others who must not learn what it asks."""
        return self.isolation.kind is not IsolationKind.SHARED

    @property
    def most_output_tokens(self) -> int | None:
        """The longest answer it may ask for, where that is enforced."""
        return self.limits.max_output_tokens if self.limits is not None and self.limits.enforce else None

    def check_partition(self, asked: str | None) -> None:
        """Raises `InvalidRequest` for a caller who names a share of the cache that is not this tenant's.

        Silence would leave the caller in the belief that it was heeded.
        """
        if asked is not None and asked != self.cache_partition:
            raise InvalidRequest(
                "`vllm_xargs.cache_partition` is not yours to choose; leave it out.", param="vllm_xargs.cache_partition"
            )

    def salt(self, model: str, *, client_salt: str | None = None, user: str | None = None) -> str | None:
        """The `cache_salt` to forward and to hash with, always the same for the same trust group.

        What the client sends can only narrow: it becomes a part of the HMAC's message. A shared tenant is unsalted
        and its client's own salt passes. Without a secret there is no answer but `IsolationUnavailable`.
        """
        kind = self.isolation.kind
        if kind is IsolationKind.SHARED:
            return client_salt
        if self.salt_key is None:
            raise IsolationUnavailable("this tenant's cache cannot be kept apart now; tell the operator")
        if not client_salt and kind is not IsolationKind.USER:
            if model in self._salts:
                return self._salts[model]
            salt = derive_salt(self.salt_key, group=self._group(), model=model)
            if len(self._salts) < SALTS_KEPT:
                self._salts[model] = salt
            return salt
        sub = (client_salt or "").encode(errors="surrogatepass")
        if kind is IsolationKind.USER:
            sub = length_prefixed((user or "").encode(errors="surrogatepass")) + sub
        return derive_salt(self.salt_key, group=self._group(), model=model, sub=sub)

    def _group(self) -> str:
        """The trust group's full name: its kind keeps a tenant named like a group apart from it."""
        kind = self.isolation.kind
        if kind is IsolationKind.GROUP:
            return f"group:{self.isolation.group}"
        if kind is IsolationKind.KEY:
            return f"key:{self.name}:{self.key_digest.hex()}"
        return f"{kind.value}:{self.name}"


def build_tenant(name: str, settings: TenantSettings, salt_key: bytes | None) -> Tenant:
    """A tenant from its settings, not yet opened by any key."""
    return Tenant(
        name=name,
        models=None if settings.models is None else frozenset(settings.models),
        fold=fold_rules(settings.fold),
        policy=policy_name(name, settings),
        debug_headers=settings.allow_debug_headers,
        may_prioritise=settings.allow_priority,
        max_prompt_tokens=settings.max_prompt_tokens,
        cache_partition=settings.cache_partition,
        wishes=_wishes(settings),
        rewrites=parse_rewrites(settings.rewrite),
        prewarm=settings.prewarm,
        limits=settings.limits,
        budget=settings.budget,
        weight=settings.weight * PRIORITY_FACTORS[settings.priority],
        isolation=parse_isolation(settings.isolation),
        salt_key=salt_key,
    )


def _wishes(settings: TenantSettings) -> CacheWishes | None:
    wishes = CacheWishes(settings.cache_partition, settings.cache_policy, settings.cache_ttl_seconds)
    return wishes if wishes != CacheWishes() else None


class _Opened(NamedTuple):
    """What a key opens, and until when (Unix seconds)."""

    tenant: Tenant
    expires_at: float


_NOBODY: Final = _Opened(Tenant("", key_digest=bytes(32)), -math.inf)
"""What a key is compared with that opens nothing."""


class _Book(NamedTuple):
    """All tenants at one moment, never changed: a request sees one book or the next, never half of each."""

    by_name: Mapping[str, Tenant]
    by_digest: Mapping[bytes, _Opened]
    open: Tenant | None


class Tenants:
    """All tenants, found by the digest of a key, and replaced as a whole while requests come.

    A key is looked up by its SHA-256 and compared in constant time with what was found, or with nobody's: an unknown
    key and a wrong one take the same way. A caller cannot choose the digest that a guess has, so that how long the
    look-up itself takes says nothing about digests, let alone keys.
    """

    def __init__(
        self,
        settings: Mapping[str, TenantSettings],
        digests: Mapping[str, Sequence[bytes]],
        salt_key: bytes | None,
        *,
        expiries: Mapping[bytes, float] | None = None,
        revoked: AbstractSet[bytes] = frozenset(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`digests` are the key digests of each tenant, `salt_key` the current salt secret, `expiries` when keys end
        and `clock` the time, in Unix seconds.
        """
        self._clock = clock
        self._revoked = revoked
        self._book = _read_book(settings, digests, salt_key, expiries or {})

    def become(
        self,
        settings: Mapping[str, TenantSettings],
        digests: Mapping[str, Sequence[bytes]],
        salt_key: bytes | None,
        *,
        expiries: Mapping[bytes, float],
        revoked: AbstractSet[bytes],
    ) -> None:
        """Other tenants from the next request on; those under way end as they began."""
        book = _read_book(settings, digests, salt_key, expiries)
        self._revoked, self._book = revoked, book

    def revoke(self, digests: AbstractSet[bytes]) -> None:
        """These keys, and no others, are revoked from the next request on."""
        self._revoked = digests

    @property
    def names(self) -> tuple[str, ...]:
        """All tenants, in the order of the configuration."""
        return tuple(self._book.by_name)

    def named(self, name: str, key_fingerprint: str | None = None) -> Tenant | None:
        """The tenant of that name for the operator's own tools: as its key with that fingerprint opens it, or none."""
        if key_fingerprint is None:
            return self._book.by_name.get(name)
        tenants = (opened.tenant for opened in self._book.by_digest.values())
        return next((each for each in tenants if (each.name, each.key_fingerprint) == (name, key_fingerprint)), None)

    def identify(self, authorization: str | None, api_key: str | None) -> Tenant:
        """Whose key stands in `Authorization: Bearer KEY`, else in `x-api-key`.

        A missing key opens the open tenant, if there is one. When that is the only way in, any key does, since SDKs
        insist on sending one. Otherwise raises `InvalidApiKey`, with the same words for every reason.
        """
        book = self._book
        usual = authorization is not None and authorization[:7] == "Bearer "
        key = (authorization[7:] if authorization is not None and usual else _bearer(authorization)) or api_key
        if key and (tenant := self._opened_by(key, book)) is not None:
            return tenant
        if book.open is not None and (not book.by_digest or (authorization is None and not api_key)):
            return book.open
        raise InvalidApiKey("no valid API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`")

    def _opened_by(self, key: str, book: _Book) -> Tenant | None:
        digest = key_digest(key)
        opened = book.by_digest.get(digest, _NOBODY)
        same = hmac.compare_digest(opened.tenant.key_digest, digest)
        in_time = self._clock() < opened.expires_at
        return opened.tenant if same and in_time and digest not in self._revoked else None


def _read_book(
    settings: Mapping[str, TenantSettings],
    digests: Mapping[str, Sequence[bytes]],
    salt_key: bytes | None,
    expiries: Mapping[bytes, float],
) -> _Book:
    by_name = {name: build_tenant(name, each, salt_key) for name, each in settings.items()}
    by_digest = {
        digest: _Opened(
            replace(by_name[name], key_digest=digest, key_fingerprint=fingerprint(digest)),
            expiries.get(digest, math.inf),
        )
        for name, owned in digests.items()
        for digest in owned
    }
    return _Book(by_name, by_digest, next((by_name[name] for name, each in settings.items() if each.open), None))


def _bearer(authorization: str | None) -> str | None:
    scheme, _, key = (authorization or "").partition(" ")
    return key if scheme.lower() == "bearer" else None
