"""Tenants: whose key it is, and who shares a cache with whom."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidApiKey, IsolationUnavailable
from gateway.isolation import Isolation, IsolationKind, parse_isolation
from gateway.secrets import derive_salt, key_digest
from gateway.settings import TenantSettings
from gateway.tenants import SALTS_KEPT, Tenant, Tenants, build_tenant
from tests.gateway.builders import SALT_SECRET

SECRET = SALT_SECRET.encode()


def build_tenants(salt_key: bytes | None = SECRET, **settings: TenantSettings) -> Tenants:
    """Tenants with one key each: `acme` has `acme-key`."""
    digests = {name: [key_digest(f"{name}-key")] for name, each in settings.items() if not each.open}
    return Tenants(settings, digests, salt_key)


def build_one(isolation: str = "tenant", name: str = "acme", salt_key: bytes | None = SECRET) -> Tenant:
    return build_tenant(name, TenantSettings(isolation=isolation), salt_key)


@pytest.mark.parametrize(
    ("authorization", "api_key"),
    [
        ("Bearer acme-key", None),
        ("bearer acme-key", None),
        ("BEARER acme-key", None),
        (None, "acme-key"),
        ("Basic dXNlcg==", "acme-key"),
        ("Bearer acme-key", "other"),
    ],
)
def test_a_key_opens_its_tenant(authorization, api_key):
    """As a bearer token, or as Anthropic's SDKs send it; a bearer token comes first."""
    tenants = build_tenants(acme=TenantSettings(), globex=TenantSettings())
    assert tenants.identify(authorization, api_key).name == "acme"


@pytest.mark.parametrize(
    ("authorization", "api_key"),
    [
        (None, None),
        ("", ""),
        ("Bearer", None),
        ("Bearer ", None),
        ("bearer", None),
        ("Bearer  acme-key", None),
        ("Basic acme-key", None),
        ("acme-key", None),
        ("Bearer acme-key-CANARY", None),
        ("Bearer acme", None),
        (None, "acme-key "),
        ("Bearer \udcff\udcfe", None),
        ("Bearer wrong", "acme-key-wrong"),
    ],
)
def test_everything_else_opens_nothing_and_sounds_the_same(authorization, api_key):
    """F-08: missing, malformed and wrong keys get one answer, which repeats nothing of them."""
    tenants = build_tenants(acme=TenantSettings())
    with pytest.raises(InvalidApiKey) as refusal:
        tenants.identify(authorization, api_key)
    assert str(refusal.value) == "no valid API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`"
    assert refusal.value.status == 401


def test_two_keys_open_one_tenant_while_they_are_rotated():
    """Same tenant, same salt, another fingerprint for the log."""
    tenants = Tenants({"acme": TenantSettings()}, {"acme": [key_digest("old"), key_digest("new")]}, SECRET)
    old, new = tenants.identify("Bearer old", None), tenants.identify("Bearer new", None)
    assert old.salt("m") == new.salt("m")
    assert old.key_fingerprint == key_digest("old").hex()[:12]
    assert old.key_fingerprint != new.key_fingerprint


def test_the_only_tenant_may_be_open():
    """SDKs insist on sending a key: any does, or none."""
    tenants = build_tenants(local=TenantSettings(open=True, isolation="shared"))
    assert tenants.identify(None, None).name == "local"
    assert tenants.identify("Bearer whatever", None).name == "local"
    assert tenants.identify(None, "whatever").name == "local"


def test_beside_tenants_with_keys_a_wrong_key_stays_wrong():
    """A mistyped key must not be served as somebody else."""
    tenants = build_tenants(local=TenantSettings(open=True), acme=TenantSettings())
    assert tenants.identify(None, None).name == "local"
    assert tenants.identify("Bearer acme-key", None).name == "acme"
    with pytest.raises(InvalidApiKey):
        tenants.identify("Bearer wrong", None)


def test_neither_key_nor_secret_is_printed():
    """A tenant may end up in a log by mistake."""
    tenant = build_tenants(acme=TenantSettings()).identify("Bearer acme-key", None)
    assert SALT_SECRET not in repr(tenant)
    assert tenant.key_digest.hex() not in repr(tenant)


def test_models_are_those_of_the_list_or_all():
    """An adapter is a name like any other."""
    some = build_tenant("acme", TenantSettings(models=["m", "lora-a"]), SECRET)
    assert some.may_use("m")
    assert some.may_use("lora-a")
    assert not some.may_use("n")
    assert build_tenant("acme", TenantSettings(), SECRET).may_use("anything")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shared", Isolation(IsolationKind.SHARED)),
        ("tenant", Isolation(IsolationKind.TENANT)),
        ("key", Isolation(IsolationKind.KEY)),
        ("user", Isolation(IsolationKind.USER)),
        ("group:research", Isolation(IsolationKind.GROUP, "research")),
        ("group:a:b", Isolation(IsolationKind.GROUP, "a:b")),
    ],
)
def test_isolation_is_a_word(text, expected):
    """Five of them."""
    assert parse_isolation(text) == expected


@pytest.mark.parametrize("text", ["", "group", "group:", "Tenant", "tenant:acme", "shared:x", "none"])
def test_other_words_are_refused(text):
    """A misspelt `shared` must not become anything."""
    with pytest.raises(ValueError, match="isolation is shared, group:NAME"):
        parse_isolation(text)


def test_a_tenants_salt_is_one_value():
    """F-04: 100 calls with one prefix, one salt, or nothing would ever hit."""
    tenants = build_tenants(acme=TenantSettings())
    salts = {tenants.identify("Bearer acme-key", None).salt("m") for _ in range(100)}
    assert salts == {derive_salt(SECRET, group="tenant:acme", model="m")}


def test_a_salt_that_is_remembered_is_its_own_tenants_alone():
    """One that another key opens, or another secret, or that has another name derives its own; names do not pile up."""
    tenant = build_one("key")
    first = tenant.salt("m")
    assert tenant.salt("m") == tenant.salt("m", client_salt="") == first
    for change in ({"key_digest": b"other"}, {"salt_key": b"x" * 32}, {"name": "globex"}):
        assert replace(tenant, **change).salt("m") != first
    for number in range(2 * SALTS_KEPT):
        tenant.salt(f"model {number}")
    assert len(tenant._salts) == SALTS_KEPT
    assert tenant.salt("model 0") == build_one("key").salt("model 0")


def test_tenants_do_not_share():
    """F-02: another tenant, another salt, for the same prompt and model."""
    assert build_one(name="acme").salt("m") != build_one(name="globex").salt("m")


def test_a_group_shares_and_nobody_else():
    """Two tenants of one group, one salt; a tenant named like the group stays out."""
    first, second = (build_one("group:research", name=name) for name in ("a", "b"))
    assert first.salt("m") == second.salt("m")
    assert first.salt("m") not in {build_one(name="research").salt("m"), build_one("group:other").salt("m")}


def test_isolation_by_key_tells_keys_apart():
    """Two keys of one tenant, two caches; and the same key later, the same cache."""
    settings = {"acme": TenantSettings(isolation="key")}
    tenants = Tenants(settings, {"acme": [key_digest("one"), key_digest("two")]}, SECRET)
    one, two = tenants.identify("Bearer one", None), tenants.identify("Bearer two", None)
    assert one.salt("m") != two.salt("m")
    assert one.salt("m") == tenants.identify(None, "one").salt("m")


def test_isolation_by_user_tells_users_apart():
    """By the request's `user`; without one, requests share with others without one."""
    tenant = build_one("user")
    salts = [tenant.salt("m", user=user) for user in (None, "ann", "bob")]
    assert len(set(salts)) == 3
    assert tenant.salt("m", user="ann", client_salt="x") != tenant.salt("m", user="annx")
    assert tenant.salt("m", user="ann", client_salt="bob") != tenant.salt("m", user="annbob", client_salt="")


def test_models_do_not_share():
    """The model is in the salt, so that none of another's blocks can be mistaken."""
    assert build_one().salt("m") != build_one().salt("n")


def test_a_client_salt_only_narrows():
    """D-03: it never reaches another group's cache, whatever it says, another group's very salt included."""
    acme, globex = build_one(name="acme"), build_one(name="globex")
    narrowed = acme.salt("m", client_salt=globex.salt("m"))
    assert narrowed not in {globex.salt("m"), acme.salt("m")}
    assert narrowed == acme.salt("m", client_salt=globex.salt("m"))
    assert narrowed != globex.salt("m", client_salt=globex.salt("m")), "the same words mean another cache elsewhere"


@given(st.text(max_size=300))
def test_whatever_a_client_sends_the_salt_suits_the_worker(client_salt):
    """At most 128 characters, none that vLLM refuses."""
    salt = build_one().salt("m", client_salt=client_salt)
    assert salt is not None
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", salt)


def test_a_shared_tenant_is_unsalted_and_its_client_may_salt():
    """D-03: with salting off the client's value passes unchanged."""
    shared = build_one("shared", salt_key=None)
    assert shared.salt("m") is None
    assert shared.salt("m", client_salt="mine", user="ann") == "mine"


@pytest.mark.parametrize("isolation", ["tenant", "group:g", "key", "user"])
def test_without_a_secret_nothing_is_forwarded(isolation):
    """Fail closed: an unsalted body of an isolated tenant never leaves."""
    with pytest.raises(IsolationUnavailable):
        build_one(isolation, salt_key=None).salt("m", client_salt="mine")


def test_settings_reach_the_tenant():
    """Nothing in the file is without effect."""
    settings = TenantSettings(policy="ring", allow_debug_headers=True, max_prompt_tokens=9, fold="none")
    tenant = build_tenant("acme", settings, SECRET)
    assert (tenant.policy, tenant.debug_headers, tenant.max_prompt_tokens) == ("ring", True, 9)
    assert tenant.fold == frozenset()


def test_the_operator_finds_tenants_by_name():
    """For /explain, without a key."""
    tenants = build_tenants(acme=TenantSettings(), globex=TenantSettings())
    assert tenants.names == ("acme", "globex")
    assert tenants.named("acme").name == "acme"
    assert tenants.named("nobody") is None
