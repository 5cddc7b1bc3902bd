"""What no type can say about a configuration: references, secrets, names that must agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from gateway.addresses import is_loopback, parse_worker_url
from gateway.admin_checks import admin_mistakes
from gateway.cache_checks import cache_mistakes
from gateway.config_source import Path, did_you_mean, json_path
from gateway.discovery.static import listed_backends, static_backends
from gateway.events.sources import SourceError, configured_sources
from gateway.isolation import IsolationKind, parse_isolation
from gateway.keys import ApiKey, read_keys, read_revoked
from gateway.mistakes import Mistake
from gateway.placement_settings import EventSettings, PolicySettings
from gateway.policies import policy_settings
from gateway.recording.files import is_recording, kept_paths
from gateway.secrets import SecretError, check_salt_secret, read_secret
from gateway.settings import Config, Model, TenantSettings
from gateway.shared.address import read_redis_url
from gateway.worker_state import ANY_MODEL
from router.normalise import fold_rules
from router.policy import POLICIES

LONGEST_ID = 16
"""Of a salt secret, in characters, as far as it is repeated."""


@dataclass(slots=True)
class Secrets:
    """Every secret that the configuration refers to, as read at one moment. Never printed.

    `digests` are the key digests of each tenant, `salt_key` the salt secret in use, `worker_keys` the keys of workers
    by their reference, `redis_url` where Redis is, `admin_token` what the admin port asks for,
    `expiries` the Unix times at which keys end, by digest, `revoked`
    the digests of revoked keys.
    """

    digests: dict[str, list[bytes]] = field(default_factory=dict, repr=False)
    salt_key: bytes | None = field(default=None, repr=False)
    worker_keys: dict[str, str] = field(default_factory=dict, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    expiries: dict[bytes, float] = field(default_factory=dict, repr=False)
    revoked: frozenset[bytes] = field(default=frozenset(), repr=False)


def find_mistakes(config: Config, environ: Mapping[str, str], secrets: Secrets) -> Iterator[Mistake]:
    """Every mistake in a well-typed configuration; fills `secrets` on the way."""
    yield from admin_mistakes(config.listen, environ, secrets)
    yield from _salt_secrets(config, environ, secrets)
    yield from _models(config)
    yield from _workers(config, environ, secrets)
    yield from _tenants(config)
    yield from _keys(config, secrets)
    yield from _revoked(config, secrets)
    yield from _record(config)
    yield from _redis(config, environ, secrets)


def tokenizer_path(setting: str) -> FilePath:
    """The path in `tokenizer: PATH` or `tokenizer: file:PATH`."""
    return FilePath(setting.removeprefix("file:"))


def _salt_secrets(config: Config, environ: Mapping[str, str], secrets: Secrets) -> Iterator[Mistake]:
    keys: dict[str, bytes] = {}
    for name, reference in config.salt_secrets.items():
        try:
            keys[name] = read_secret(reference, environ)
            check_salt_secret(keys[name])
        except SecretError as error:
            hint = "make one with `openssl rand -base64 48`"
            yield Mistake(("salt_secrets", name), str(error), hint)
    current = config.salt_secret
    if current is None and len(config.salt_secrets) > 1:
        yield Mistake((), "several salt_secrets and no word on which is in use", "add `salt_secret: ID`")
    elif current is not None and current not in config.salt_secrets:
        hint = did_you_mean(current, config.salt_secrets)
        # What is longer than an id may be the secret itself: do not repeat it.
        told = f"the id `{current}`" if len(current) <= LONGEST_ID else "this id; the secret itself never stands here"
        yield Mistake(("salt_secret",), f"no salt secret has {told}", hint)
    else:
        secrets.salt_key = keys.get(current or next(iter(config.salt_secrets), ""))


def _models(config: Config) -> Iterator[Mistake]:
    for name, model in config.models.items():
        place: Path = ("models", name)
        yield from _policy(model.policy, (*place, "policy"))
        yield from _events(model, (*place, "events"))
        if model.tokenizer is not None and not tokenizer_path(model.tokenizer).exists():
            what = f"there is no {tokenizer_path(model.tokenizer)}"
            yield Mistake((*place, "tokenizer"), what, "name a tokenizer.json, a Hugging Face folder or a GGUF file")


def _events(model: Model, place: Path) -> Iterator[Mistake]:
    settings = model.events
    if not isinstance(settings, EventSettings):
        return
    if settings.endpoint is None and (settings.replay_endpoint or settings.topic or settings.ranks > 1):
        what = "`replay_endpoint`, `topic` and `ranks` belong to an `endpoint` and there is none"
        yield Mistake(place, what, "name both endpoints, or neither: workers then say where they publish")
    for name, endpoint in (("endpoint", settings.endpoint), ("replay_endpoint", settings.replay_endpoint)):
        try:
            configured_sources(EventSettings(endpoint=endpoint), "worker") if endpoint is not None else ()
        except SourceError as error:
            yield Mistake((*place, name), str(error), "tcp://*:PORT is each worker's own host")


def _policy(policy: str | PolicySettings, place: Path) -> Iterator[Mistake]:
    name = policy_settings(policy).name
    if name not in POLICIES:
        place = place if isinstance(policy, str) else (*place, "name")
        yield Mistake(place, f"unknown policy `{name}`", did_you_mean(name, POLICIES))


def _workers(config: Config, environ: Mapping[str, str], secrets: Secrets) -> Iterator[Mistake]:
    sound = True
    for listed in listed_backends(config.models):
        try:
            parse_worker_url(listed.entry.url)
            if listed.entry.api_key is not None:
                secrets.worker_keys[listed.entry.api_key] = _header_text(read_secret(listed.entry.api_key, environ))
        except SecretError as error:
            sound = False
            yield Mistake((*listed.path, "api_key"), str(error))
        except ValueError as error:
            sound = False
            yield Mistake(listed.path, str(error))
    if sound:
        try:
            static_backends(config.models, secrets.worker_keys)
        except ValueError as error:
            yield Mistake(("models",), str(error), "one worker has one name")


def _header_text(key: bytes) -> str:
    """A worker's key as it goes into a header: nothing in it may end the header's line."""
    text = key.decode("latin-1")
    if not text.isascii() or not text.isprintable():
        raise SecretError("the key has characters that no header can carry")
    return text


def _tenants(config: Config) -> Iterator[Mistake]:
    known = set(config.models) | {adapter for model in config.models.values() for adapter in model.adapters}
    for name, tenant in config.tenants.items():
        place: Path = ("tenants", name)
        yield from _tenant_models(tenant, place, known)
        yield from cache_mistakes(tenant, place, prewarms=config.prewarm.enabled)
        yield from _tenant_rules(tenant, place, salted=bool(config.salt_secrets))
    yield from _open_tenants(config)


def _tenant_models(tenant: TenantSettings, place: Path, known: set[str]) -> Iterator[Mistake]:
    for index, model in enumerate(tenant.models or ()):
        if model not in known and ANY_MODEL not in known:
            yield Mistake((*place, "models", index), f"no model is named `{model}`", did_you_mean(model, known))


def _tenant_rules(tenant: TenantSettings, place: Path, *, salted: bool) -> Iterator[Mistake]:
    if tenant.policy is not None:
        yield from _policy(tenant.policy, (*place, "policy"))
    try:
        fold_rules(tenant.fold)
    except ValueError as error:
        yield Mistake((*place, "fold"), str(error))
    try:
        isolation = parse_isolation(tenant.isolation)
    except ValueError as error:
        yield Mistake((*place, "isolation"), str(error), did_you_mean(tenant.isolation, _isolations()))
        return
    if isolation.kind is not IsolationKind.SHARED and not salted:
        what = f"isolation `{tenant.isolation}` needs a salt secret and there is none"
        yield Mistake(
            place, what, "add `salt_secrets: {k1: file:PATH}`, or say `isolation: shared` and know what it means"
        )


def _isolations() -> list[str]:
    return [f"{kind.value}:NAME" if kind is IsolationKind.GROUP else kind.value for kind in IsolationKind]


def _open_tenants(config: Config) -> Iterator[Mistake]:
    open_names = [name for name, tenant in config.tenants.items() if tenant.open]
    for name in open_names[1:]:
        yield Mistake(("tenants", name, "open"), f"`{open_names[0]}` is open already", "only one tenant can be")
    if open_names and not is_loopback(config.listen.host):
        what = f"an open tenant while listening on {config.listen.host} lets anyone in"
        yield Mistake(("tenants", open_names[0], "open"), what, "listen on 127.0.0.1, or give the tenant keys")


def _redis(config: Config, environ: Mapping[str, str], secrets: Secrets) -> Iterator[Mistake]:
    if config.redis is not None:
        try:
            secrets.redis_url = read_redis_url(config.redis.url, environ)
        except SecretError as error:
            yield Mistake(("redis", "url"), str(error))


def _record(config: Config) -> Iterator[Mistake]:
    if config.record is None:
        return
    path, place = FilePath(config.record.path), ("record", "path")
    try:
        if not path.parent.is_dir():
            yield Mistake(place, f"there is no folder {path.parent}", "make it, or record elsewhere")
        for there in kept_paths(path, config.record.files):
            if there.exists() and not is_recording(there):
                yield Mistake(place, f"{there} is there and is no recording", "it would be lost: name another file")
    except OSError as error:
        yield Mistake(place, f"{path}: {error.strerror or 'cannot be read'}")


def _keys(config: Config, secrets: Secrets) -> Iterator[Mistake]:
    owners: dict[bytes, Path] = {}
    for name, tenant in config.tenants.items():
        if not tenant.keys and not tenant.open:
            yield Mistake(("tenants", name), "no key opens this tenant", f"`homing keys mint {name}` makes one")
        secrets.digests.setdefault(name, [])
        for index, entry in enumerate(tenant.keys):
            place: Path = ("tenants", name, "keys", index)
            try:
                found = list(read_keys(entry))
            except SecretError as error:
                yield Mistake(place, str(error))
                continue
            yield from _owned(found, name, place, owners, secrets)


def _owned(
    found: list[ApiKey], tenant: str, place: Path, owners: dict[bytes, Path], secrets: Secrets
) -> Iterator[Mistake]:
    """Take in one entry's keys; one that opens something already is a mistake."""
    for key in found:
        secrets.digests[tenant].append(key.digest)
        if key.expires_at is not None:
            secrets.expiries[key.digest] = key.expires_at
        first = owners.setdefault(key.digest, place)
        if first != place:
            yield Mistake(place, f"the same key stands at {json_path(first)}", "every key opens one tenant")


def _revoked(config: Config, secrets: Secrets) -> Iterator[Mistake]:
    if config.revoked_keys is not None:
        try:
            secrets.revoked = read_revoked(config.revoked_keys)
        except SecretError as error:
            yield Mistake(("revoked_keys",), str(error), "it must be there, though it may be empty: touch makes it")
