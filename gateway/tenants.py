"""Whose request it is: from an API key to a tenant, and from a tenant to the salt of its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway.errors import InvalidApiKey, InvalidRequest, IsolationUnavailable
from gateway.isolation import SHARED, Isolation, IsolationKind, parse_isolation
from gateway.secrets import derive_salt, fingerprint, key_digest, length_prefixed
from gateway.settings import TenantSettings
from router.normalise import FoldRules, fold_rules


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant as one of its keys opened it.

    `models` None means all. `key_fingerprint` is for logs ('' without a key). `debug_headers` allows asking which
    worker answered. `max_prompt_tokens` None means what the model takes. `cache_partition` is the share of the
    workers' caches that pays for its requests. `prewarm` lets its recent prompts be kept in memory.
    """

    name: str
    models: frozenset[str] | None = None
    fold: FoldRules = frozenset()
    policy: str | None = None
    debug_headers: bool = False
    max_prompt_tokens: int | None = None
    cache_partition: str | None = None
    prewarm: bool = True
    isolation: Isolation = SHARED
    key_fingerprint: str = ""
    key_digest: bytes = field(default=b"", repr=False)
    salt_key: bytes | None = field(default=None, repr=False)

    def may_use(self, model: str) -> bool:
        """Whether this tenant may ask for the model or adapter."""
        return self.models is None or model in self.models

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
        policy=settings.policy,
        debug_headers=settings.allow_debug_headers,
        max_prompt_tokens=settings.max_prompt_tokens,
        cache_partition=settings.cache_partition,
        prewarm=settings.prewarm,
        isolation=parse_isolation(settings.isolation),
        salt_key=salt_key,
    )


class Tenants:
    """All tenants, found by the digest of a key.

    The look-up is an ordinary dict over SHA-256 digests. It need not take constant time: a caller cannot choose the
    digest its guess has, so how long a wrong one takes says nothing about the digests, let alone the keys.
    """

    def __init__(
        self,
        settings: Mapping[str, TenantSettings],
        digests: Mapping[str, Sequence[bytes]],
        salt_key: bytes | None,
    ) -> None:
        """`digests` are the key digests of each tenant, `salt_key` the current salt secret."""
        self._by_name = {name: build_tenant(name, each, salt_key) for name, each in settings.items()}
        self._by_digest = {
            digest: replace(self._by_name[name], key_digest=digest, key_fingerprint=fingerprint(digest))
            for name, owned in digests.items()
            for digest in owned
        }
        self._open = next((self._by_name[name] for name, each in settings.items() if each.open), None)

    @property
    def names(self) -> tuple[str, ...]:
        """All tenants, in the order of the configuration."""
        return tuple(self._by_name)

    def named(self, name: str) -> Tenant | None:
        """The tenant of that name, as if opened without a key: for the operator's own tools."""
        return self._by_name.get(name)

    def identify(self, authorization: str | None, api_key: str | None) -> Tenant:
        """Whose key stands in `Authorization: Bearer KEY`, else in `x-api-key`.

        A missing key opens the open tenant, if there is one. When that is the only way in, any key does, since SDKs
        insist on sending one. Otherwise raises `InvalidApiKey`, with the same words for every reason.
        """
        key = _bearer(authorization) or api_key
        tenant = self._by_digest.get(key_digest(key)) if key else None
        if tenant is not None:
            return tenant
        if self._open is not None and (not self._by_digest or (authorization is None and not api_key)):
            return self._open
        raise InvalidApiKey("no valid API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`")


def _bearer(authorization: str | None) -> str | None:
    scheme, _, key = (authorization or "").partition(" ")
    return key if scheme.lower() == "bearer" else None
