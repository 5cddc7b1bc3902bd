"""Who shares a prefix cache with whom: the word in the configuration, read."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class IsolationKind(Enum):
    """Who shares a prefix cache."""

    SHARED = "shared"
    GROUP = "group"
    TENANT = "tenant"
    KEY = "key"
    USER = "user"


class Isolation(NamedTuple):
    """A trust boundary; `group` is the name in `group:NAME`."""

    kind: IsolationKind
    group: str = ""


SHARED = Isolation(IsolationKind.SHARED)


def parse_isolation(text: str) -> Isolation:
    """Read `shared`, `group:NAME`, `tenant`, `key` or `user`; ValueError for anything else."""
    word, colon, name = text.partition(":")
    if word == "group" and name:
        return Isolation(IsolationKind.GROUP, name)
    plain = {kind.value: kind for kind in IsolationKind if kind is not IsolationKind.GROUP}
    if colon or word not in plain:
        raise ValueError(f"isolation is shared, group:NAME, tenant, key or user, got {text!r}")
    return Isolation(plain[word])
