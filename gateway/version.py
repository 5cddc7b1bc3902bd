"""Which Homing this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

UNINSTALLED = "0+uninstalled"


def homing_version() -> str:
    """The installed version, or `0+uninstalled` when run from a bare checkout."""
    try:
        return version("homing")
    except PackageNotFoundError:
        return UNINSTALLED
