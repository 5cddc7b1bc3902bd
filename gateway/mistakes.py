"""What a check of the configuration finds."""

from __future__ import annotations

from typing import NamedTuple

from gateway.config_source import Path


class Mistake(NamedTuple):
    """One thing that is wrong: where, what, and what would put it right."""

    path: Path
    what: str
    hint: str = ""
