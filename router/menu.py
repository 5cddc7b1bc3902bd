"""The policies that may be asked for by name: the built-in ones, and such of them as have numbers of their own."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from router.policy import POLICIES, Policy
from router.settings import RouterSettings


class Menu:
    """What each name means. Built-in names go by `usual`; ValueError where that names an unknown policy."""

    def __init__(self, usual: RouterSettings) -> None:
        self._policies: dict[str, Policy] = {name: policy() for name, policy in POLICIES.items()}
        self._named: dict[str, RouterSettings] = {}
        self._usual = usual
        self.policy(usual.policy)

    def configure(self, usual: RouterSettings, named: Mapping[str, RouterSettings]) -> None:
        """Other numbers, and more names: one that is known stays known, for requests that began before.

        Raises ValueError, and changes nothing, for an unknown policy.
        """
        for each in (usual, *named.values()):
            self.policy(each.policy)
        self._usual = usual
        self._named.update(named)

    def policy(self, name: str) -> Policy:
        """The policy of that name; ValueError with the nearest one when there is none."""
        if name not in self._named and name in self._policies:
            return self._policies[name]
        named = self._named.get(name)
        policy = self._policies.get(name if named is None else named.policy)
        if policy is None:
            near = get_close_matches(name, self._policies, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(self._policies)}"
            raise ValueError(f"no placement policy is called {name!r}{hint}")
        return policy

    def settings(self, name: str) -> RouterSettings:
        """The numbers that a policy goes by."""
        return self._named[name] if name in self._named else self._usual  # noqa: SIM401 - a call less
