"""Kept prompts, a router and a fleet for tests of prewarming."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gateway.prewarm.store import KeptPrompt, PromptStore
from gateway.wire import Endpoint
from tests.router.placement_builders import build_prompt


def build_body(**fields: Any) -> bytes:
    """A forwarded chat body."""
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "CANARY hello"}], "cache_salt": "salt", **fields}
    ).encode()


def build_kept(*parts: tuple[str, int], at: float = 0.0, heat: float = 1.0, **more: Any) -> KeptPrompt:
    """A kept prompt whose chain is made of these parts."""
    fields = {"model": "m", "endpoint": Endpoint.CHAT, "body": build_body(), "tenant": "t", "policy": None, **more}
    fields |= {"session": None, "wishes": None, "at": at, "heat": heat}
    return KeptPrompt(prompt=build_prompt(*(parts or (("text", 4),))), **fields)


def build_store(most_bytes: int = 1 << 20, most_prompts: int = 100, most_seconds: float = 900.0) -> PromptStore:
    return PromptStore(most_bytes, most_prompts, most_seconds)


def fill(store: PromptStore, prompts: Sequence[KeptPrompt]) -> PromptStore:
    for kept in prompts:
        store.keep(kept)
    store.check_integrity()
    return store
