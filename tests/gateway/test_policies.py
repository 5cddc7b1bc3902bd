"""From `policy` in the configuration to the router's numbers: a model's own, and what tenants have instead."""

from __future__ import annotations

import pytest

from gateway.config import ConfigError, load_config
from gateway.placement_settings import PolicySettings
from gateway.policies import policy_name, policy_settings, tenant_policies
from gateway.settings import TenantSettings
from router.menu import Menu
from router.settings import RouterSettings
from tests.gateway.builders import ENVIRON, key_line, write_config_data

OWN = PolicySettings(name="chwbl", chwbl_factor=2.0)


def test_a_name_alone_is_a_policy_with_its_measured_numbers():
    """The long form of the short one."""
    assert policy_settings("ring") == PolicySettings(name="ring")
    assert policy_settings(OWN) is OWN


def test_a_tenant_with_numbers_has_a_policy_of_its_own():
    """Named after it, with a colon: no built-in name has one."""
    tenants = {"a": TenantSettings(), "b": TenantSettings(policy="ring"), "c": TenantSettings(policy=OWN)}
    assert [policy_name(name, each) for name, each in tenants.items()] == [None, "ring", "tenant:c"]
    assert tenant_policies(tenants) == {"tenant:c": RouterSettings(policy="chwbl", chwbl_factor=2.0)}
    menu = Menu(RouterSettings())
    menu.configure(RouterSettings(), tenant_policies(tenants))
    assert menu.settings("tenant:c").chwbl_factor == 2.0


@pytest.mark.parametrize(
    ("policy", "place"),
    [("homming", "$.tenants.acme.policy:"), ({"name": "homming"}, "$.tenants.acme.policy.name:")],
)
def test_a_tenants_unknown_policy_is_told_with_the_nearest(policy, place, tmp_path):
    """In either form."""
    tenants = {"acme": {"keys": [key_line("a")], "policy": policy}}
    with pytest.raises(ConfigError, match="did you mean `homing`") as error:
        load_config(write_config_data(tmp_path, tenants=tenants), ENVIRON)
    assert place in str(error.value)
