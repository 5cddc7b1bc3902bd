"""A gateway's configuration and clients for the end-to-end tests."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openai

KEYS = {"alpha": "sk-alpha-0123456789abcdef", "beta": "sk-beta-0123456789abcdef"}
MODEL = "smollm2"
HEAD = " ".join(f"Rule {number}: keep answers short and name the source." for number in range(60))


def build_config(directory: Path, workers: Mapping[str, str], **model: Any) -> dict[str, Any]:
    """Two isolated tenants that may see which worker answered, on one model."""
    salt = directory / "salt"
    if not salt.exists():  # gateways of one test share it, as replicas do
        salt.write_text(secrets.token_hex(32))
    static = [{"name": name, "url": url} for name, url in workers.items()]
    return {
        "salt_secrets": {"k1": f"file:{salt}"},
        "probes": {"interval_seconds": 0.2},
        "models": {MODEL: {"backends": {"static": static}, **model}},
        "tenants": {name: build_tenant(key) for name, key in KEYS.items()},
    }


def build_tenant(key: str) -> dict[str, Any]:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {"keys": [f"sha256:{digest}"], "models": [MODEL], "allow_debug_headers": True}


def client(url: str, tenant: str = "alpha", **options: Any) -> openai.OpenAI:
    """The official client, without its own retries so that a test sees every answer."""
    key = KEYS.get(tenant, tenant)
    return openai.OpenAI(
        base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60, default_headers={"x-homing-debug": "1"}, **options
    )


def chat(system: str, *turns: str) -> list[dict[str, str]]:
    """Messages: a system text, then user and assistant in turn."""
    roles = ("user", "assistant")
    said = [{"role": roles[number % 2], "content": text} for number, text in enumerate(turns)]
    return [{"role": "system", "content": system}, *said]


def ask(api: openai.OpenAI, messages: Sequence[Mapping[str, str]], **fields: Any) -> tuple[Any, str]:
    """A whole answer, and the worker that gave it."""
    fields = {"model": MODEL, "max_tokens": 8, "temperature": 0, **fields}
    raw = api.chat.completions.with_raw_response.create(messages=messages, **fields)
    return raw.parse(), raw.headers["x-homing-backend"]


def cached(answer: Any) -> int:
    """Prompt tokens that the worker found in its cache."""
    return answer.usage.prompt_tokens_details.cached_tokens
