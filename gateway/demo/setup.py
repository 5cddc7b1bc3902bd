"""What the demonstration starts: the gateway's configuration, the workers' arguments, the size of their caches."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway.demo.drive import Pace
from gateway.demo.load import BLOCK_TOKENS, TENANTS, Conversation, Message, distinct_blocks
from router.core import PromptSource
from router.normalise import fold_rules
from router.prompt import PromptBuilder
from router.tokenise import BYTES_PER_TOKEN, bytes_text, find_smollm2, load_tokeniser

MODEL = "smollm2"
WORKERS = 3
THREADS = 1
REAL_PREFILL_TOKENS_PER_SECOND = 1_000
SIMULATED_PREFILL_TOKENS_PER_SECOND = 45_000
SIMULATED_SLACK_SECONDS = 1_000 * BYTES_PER_TOKEN / SIMULATED_PREFILL_TOKENS_PER_SECOND
"""The default slack, the time to prefill 1,000 tokens, where a token is a byte."""
SIMULATED_FIXED_SECONDS = 0.004
SIMULATED_SECONDS_PER_TOKEN = 0.004
REAL_PACE = Pace(arrival_seconds=3.0, think_seconds=6.0)
SIMULATED_PACE = Pace(arrival_seconds=0.28, think_seconds=0.56)
MAX_MODEL_TOKENS = {True: 32_768, False: 8_192}
"""By whether the workers are simulated: those count bytes."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that stays the same over both runs."""

    simulated: bool
    keys: Mapping[str, str]
    salt: Path
    directory: Path
    load: Sequence[Conversation]
    distinct_blocks: int

    @property
    def pace(self) -> Pace:
        """How fast people come and type, in keeping with how fast the workers are."""
        return SIMULATED_PACE if self.simulated else REAL_PACE

    @property
    def pool_blocks(self) -> int:
        """A worker's cache: half of the load's distinct blocks (and vLLM's null block)."""
        return self.distinct_blocks // 2 + 1


def prepare(load: Sequence[Conversation], directory: Path, *, simulated: bool) -> Stage:
    """Mint the keys and the salt of this run, and count the blocks that the load fills."""
    keys = {tenant: secrets.token_urlsafe(32) for tenant in TENANTS}
    salt = directory / "salt"
    salt.touch(mode=0o600)
    salt.write_text(secrets.token_hex(32))
    return Stage(simulated, keys, salt, directory, load, _count_blocks(load, simulated=simulated))


def worker_arguments(stage: Stage, port: int) -> list[str]:
    """`python -m` arguments of one worker."""
    common = ["backends.main", "--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL]
    sizes = ["--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(stage.pool_blocks)]
    limits = ["--max-model-len", str(MAX_MODEL_TOKENS[stage.simulated]), "--max-num-seqs", "16"]
    return [*common, *sizes, *limits, *(_simulated_arguments() if stage.simulated else _real_arguments())]


def gateway_config(stage: Stage, policy: str, port: int, admin_port: int, workers: Mapping[str, str]) -> Path:
    """Write the gateway's YAML for one policy; `workers` are names and addresses. Returns its path."""
    path = stage.directory / f"{policy}.yaml"
    path.write_text(yaml.safe_dump(_config(stage, policy, port, admin_port, workers), sort_keys=False))
    return path


def _config(stage: Stage, policy: str, port: int, admin_port: int, workers: Mapping[str, str]) -> dict[str, Any]:
    rate = SIMULATED_PREFILL_TOKENS_PER_SECOND if stage.simulated else REAL_PREFILL_TOKENS_PER_SECOND
    slack = {"ring_slack_seconds": SIMULATED_SLACK_SECONDS} if stage.simulated else {}
    model: dict[str, Any] = {
        "policy": {"name": policy, **slack},
        "prefill_tokens_per_second": rate,
        "backends": {"static": [{"name": name, "url": url} for name, url in workers.items()]},
    }
    model_file = None if stage.simulated else find_smollm2()
    if model_file is not None:
        model["tokenizer"] = str(model_file)
    return {
        "listen": {"host": "127.0.0.1", "port": port, "admin_port": admin_port},
        "timeouts": {"drain_delay_seconds": 0, "drain_seconds": 5},
        "salt_secrets": {"demo": f"file:{stage.salt}"},
        "models": {MODEL: model},
        "tenants": {tenant: _tenant(key) for tenant, key in stage.keys.items()},
    }


def _tenant(key: str) -> dict[str, Any]:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {"keys": [f"sha256:{digest}"], "models": [MODEL], "isolation": "tenant", "allow_debug_headers": True}


def _real_arguments() -> list[str]:
    return ["--model", MODEL, "--threads", str(THREADS)]


def _simulated_arguments() -> list[str]:
    return [
        *("--model", MODEL, "--simulated"),
        *("--simulated-prefill-tokens-per-second", str(SIMULATED_PREFILL_TOKENS_PER_SECOND)),
        *("--simulated-fixed-seconds", str(SIMULATED_FIXED_SECONDS)),
        *("--simulated-seconds-per-token", str(SIMULATED_SECONDS_PER_TOKEN)),
    ]


def _count_blocks(load: Sequence[Conversation], *, simulated: bool) -> int:
    model_file = None if simulated else find_smollm2()
    if model_file is not None:
        builder = PromptBuilder(load_tokeniser(model_file), block_tokens=BLOCK_TOKENS)
    else:  # a simulated worker's token is a byte, a router's stand-in token is several
        text = bytes_text("the workers are simulated")
        builder = PromptBuilder(text, block_tokens=BLOCK_TOKENS // BYTES_PER_TOKEN)
    rules = fold_rules("none")

    def chain_of(tenant: str, messages: list[Message]) -> Sequence[bytes]:
        return builder.build(PromptSource(messages=messages), salt=tenant, model=MODEL, rules=rules).exact_blocks

    return distinct_blocks(load, chain_of)
