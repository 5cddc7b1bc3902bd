"""Policies by name: the built-in ones, and such of them as have numbers of their own."""

from __future__ import annotations

import pytest

from router.core import FleetView
from router.menu import Menu
from router.policy import POLICIES
from router.router import Router
from router.settings import RouterSettings
from tests.router.placement_builders import build_fleet, build_prompt


def test_every_built_in_policy_is_on_the_menu():
    """By the router's own numbers."""
    usual = RouterSettings(chwbl_factor=3.0)
    menu = Menu(usual)
    for name, policy in POLICIES.items():
        assert isinstance(menu.policy(name), policy)
        assert menu.settings(name) is usual


def test_a_name_may_stand_for_a_policy_with_other_numbers():
    """Beside the one it is made of."""
    menu, own = Menu(RouterSettings()), RouterSettings(policy="ring", ring_patience_seconds=9.0)
    menu.configure(RouterSettings(policy="session"), {"tenant:acme": own})
    assert menu.policy("tenant:acme") is menu.policy("ring")
    assert menu.settings("tenant:acme") is own
    assert menu.settings("ring").policy == "session"


def test_a_name_stays_known_when_others_come():
    """A request that began before may still ask for it."""
    menu = Menu(RouterSettings())
    menu.configure(RouterSettings(), {"tenant:gone": RouterSettings(policy="ring")})
    menu.configure(RouterSettings(), {"tenant:new": RouterSettings(policy="random")})
    assert menu.policy("tenant:gone") is menu.policy("ring")


@pytest.mark.parametrize("where", ["usual", "named"])
def test_an_unknown_policy_changes_nothing(where):
    """Whole or not at all."""
    usual = RouterSettings()
    menu, odd = Menu(usual), RouterSettings(policy="homming")
    with pytest.raises(ValueError, match="did you mean 'homing'"):
        menu.configure(odd if where == "usual" else RouterSettings(), {"x": odd if where == "named" else usual})
    assert menu.settings("homing") is usual
    with pytest.raises(ValueError, match="no placement policy is called 'x'"):
        menu.policy("x")


def test_a_router_begins_with_a_policy_that_exists():
    """Or not at all."""
    with pytest.raises(ValueError, match="did you mean 'homing'"):
        Router(RouterSettings(policy="homming"))


def slack_of(router: Router, fleet: FleetView, policy: str | None) -> float:
    return router.peek(build_prompt(("a", 4)), fleet, 0.0, policy=policy).slack_seconds


def test_a_router_places_by_the_numbers_of_the_name_that_was_asked_for():
    """And by its own where nothing is asked; what it had learnt stays."""
    router, fleet = Router(RouterSettings(ring_slack_seconds=0.5)), build_fleet(2)
    router.place(build_prompt(("a", 4)), fleet, 0.0, request_id="a")
    own = RouterSettings(policy="homing", ring_slack_seconds=7.0)
    router.configure(RouterSettings(ring_slack_seconds=0.25), {"tenant:acme": own})
    assert slack_of(router, fleet, None) == 0.25
    assert slack_of(router, fleet, "homing") == 0.25
    assert slack_of(router, fleet, "tenant:acme") == 7.0
    placed = router.place(build_prompt(("a", 4)), fleet, 1.0, request_id="b", policy="tenant:acme")
    assert placed.policy == "tenant:acme"
    assert router.stats().in_flight == 2
    assert router.stats().placed == 2
