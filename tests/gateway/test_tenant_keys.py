"""Which keys open a tenant, and until when; tenants replaced as a whole; the look-up tells nothing by its time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest

from bench.key_timing import measure, welch_t
from gateway.errors import InvalidApiKey
from gateway.secrets import fingerprint, key_digest
from gateway.settings import TenantSettings
from gateway.tenants import Tenant, Tenants
from tests.gateway.builders import SALT_SECRET

SECRET = SALT_SECRET.encode()
ONE = {"acme": TenantSettings()}


class Clock:
    """Unix time that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def build_tenants(*keys: str, clock: Clock | None = None, **more) -> Tenants:
    digests = {"acme": [key_digest(key) for key in keys]}
    return Tenants(ONE, digests, SECRET, clock=clock or Clock(), **more)


def opened(tenants: Tenants, key: str) -> Tenant | None:
    try:
        return tenants.identify(f"Bearer {key}", None)
    except InvalidApiKey:
        return None


def test_a_key_ends_at_its_time():
    """At the moment, not at the next reload; the other key goes on. The answer is that of any wrong key."""
    clock = Clock()
    tenants = build_tenants("old", "new", clock=clock, expiries={key_digest("old"): 2000.0})
    assert opened(tenants, "old")
    clock.now = 1999.9
    assert opened(tenants, "old")
    clock.now = 2000.0
    assert opened(tenants, "old") is None
    assert opened(tenants, "new")


def test_a_revoked_key_opens_nothing():
    """From the next request on, and again when it is taken off the list."""
    tenants = build_tenants("one", "two", revoked=frozenset({key_digest("one")}))
    assert opened(tenants, "one") is None
    assert opened(tenants, "two")
    tenants.revoke(frozenset({key_digest("two")}))
    assert opened(tenants, "one")
    assert opened(tenants, "two") is None


def test_a_tenant_with_ended_keys_only_is_not_open():
    """A wrong key beside an open tenant stays wrong, an ended one too."""
    settings = {"acme": TenantSettings(), "local": TenantSettings(open=True)}
    tenants = Tenants(settings, {"acme": [key_digest("old")]}, SECRET, expiries={key_digest("old"): 0.0})
    assert opened(tenants, "old") is None
    assert tenants.identify(None, None).name == "local"


def test_tenants_become_others_as_a_whole():
    """Names, keys, salt and revocations at once; a tenant that a request holds stays as it was."""
    tenants = build_tenants("one")
    held = opened(tenants, "one")
    tenants.become(
        {"globex": TenantSettings(isolation="group:g")}, {"globex": [key_digest("two")]}, SECRET[::-1],
        expiries={}, revoked=frozenset({key_digest("three")}),
    )  # fmt: skip
    assert tenants.names == ("globex",)
    assert opened(tenants, "one") is None
    assert opened(tenants, "two").name == "globex"
    assert held.salt("m") == build_tenants("one").identify("Bearer one", None).salt("m")
    assert held.salt("m") != opened(tenants, "two").salt("m")


def test_settings_that_cannot_be_leave_the_tenants_before():
    """The new book is written before it is opened."""
    tenants = build_tenants("one")
    with pytest.raises(ValueError, match="isolation is"):
        tenants.become({"x": TenantSettings(isolation="odd")}, {}, SECRET, expiries={}, revoked=frozenset())
    assert opened(tenants, "one")


def test_the_operator_names_a_key_by_its_fingerprint():
    """For /explain of a tenant whose keys are kept apart: the salt is that key's, and a key of others is none."""
    settings = {"acme": TenantSettings(isolation="key"), "globex": TenantSettings()}
    tenants = Tenants(settings, {"acme": [key_digest("one")], "globex": [key_digest("two")]}, SECRET)
    one, two = fingerprint(key_digest("one")), fingerprint(key_digest("two"))
    assert tenants.named("acme", one).salt("m") == opened(tenants, "one").salt("m")
    assert tenants.named("acme", two) is None
    assert tenants.named("acme", "") is None
    assert "fingerprint" in tenants.named("acme").caveat
    assert tenants.named("acme", one).caveat is None
    assert tenants.named("globex").caveat is None


def test_an_unknown_key_is_compared_like_a_wrong_one(monkeypatch):
    """G5: one comparison in constant time on every way, found or not."""
    compared: list[tuple[int, int]] = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((len(first), len(second)))
        return first == second

    monkeypatch.setattr("gateway.tenants.hmac.compare_digest", compare)
    tenants = build_tenants("right", "ended", expiries={key_digest("ended"): 0.0})
    for key in ("right", "wrong", "ended", "x" * 5000):
        opened(tenants, key)
    assert compared == [(32, 32)] * 4


def test_nobody_is_never_opened():
    """Not even by whom has a key with nobody's digest."""
    tenants = build_tenants("right")
    assert all(opened(tenants, key) is None for key in ("", "\0" * 32, "wrong"))


@pytest.mark.parametrize(
    ("first", "second", "least", "most"),
    [([1.0, 2.0, 3.0] * 50, [1.0, 2.0, 3.0] * 50, 0.0, 0.0), ([1.0, 2.0] * 50, [5.0, 6.0] * 50, 50.0, 100.0)],
)
def test_welchs_t_is_what_it_should_be(first: Sequence[float], second: Sequence[float], least: float, most: float):
    """Zero for the same, large for what is apart; the bench rests on it (`make bench-keys`)."""
    t = abs(welch_t(first, second))
    assert least <= t <= most
    if t:
        spread = statistics.variance(first) / len(first) + statistics.variance(second) / len(second)
        assert t == pytest.approx(4.0 / spread**0.5)


def test_the_time_of_a_look_up_does_not_tell_unknown_from_wrong():
    """The short form of `make bench-keys`: less than a fifth of what twenty additions would tell, in some round."""
    rounds = (measure(1500) for _ in range(6))
    assert any(keys.apart < control.apart / 5 for keys, control in rounds)
