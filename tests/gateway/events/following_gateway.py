"""A whole gateway before fake workers whose events come from our own publisher, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tokenizers

from backends.events.wire import Stored
from gateway.app import Gateway
from gateway.config import load_secrets
from gateway.settings import Backends, Config, Listen, Model, Probes, StaticBackend, TenantSettings
from router.core import Prompt, PromptSource
from router.normalise import fold_rules
from tests.gateway.builders import ENVIRON, FakeWorker, key_line
from tests.gateway.running_gateway import Running

SIZE = 16
FIGURES = 'vllm:cache_config_info{{block_size="{}",num_gpu_blocks="1000"}} 1\nprocess_start_time_seconds {}\n'


@dataclass
class Following(Running):
    """A running gateway, with questions about what it knows."""

    def events(self, worker: str = "w1") -> str | None:
        """Why the worker's cache is only believed; None: it is known."""
        return self.gateway.fleet.worker(worker).events

    async def ask_ids(self, ids: Sequence[int]) -> Any:
        """A completion of token ids, under no salt."""
        return await self.ask(path="/v1/completions", key="shared-key", prompt=list(ids), messages=None)

    def _prompt(self, ids: Sequence[int]) -> Prompt:
        prompts = self.gateway.prompts.of("m")._own
        return prompts.build(PromptSource(prompt=list(ids)), salt=None, model="m", rules=fold_rules("none"))

    def lacks(self, ids: Sequence[int], worker: str = "w1") -> bool:
        """Whether the worker is to be asked what it holds of a prompt that it is believed to hold whole."""
        lacks, prompt = self.gateway.fleet.worker(worker).lacks, self._prompt(ids)
        return lacks is not None and lacks(prompt, prompt.tokens)

    def cached_tokens(self, ids: Sequence[int]) -> list[int]:
        """What each worker is taken to hold of a prompt."""
        placement = self.gateway.serving.router("m").peek(self._prompt(ids), self.gateway.fleet.view("m"), 1e9)
        return [candidate.cached_tokens for candidate in placement.candidates]

    def scrape(self) -> None:
        self.gateway.metrics.refresh()


def build_figures(block: int = SIZE, started: float = 1.0) -> str:
    return FIGURES.format(block, started)


def pages_of(publisher, **more: Any) -> dict[str, Any]:
    """What a vLLM says of its events."""
    config = publisher.config
    return {
        "/kv_event_sources": {"0": {"endpoint": config.endpoint, "replay_endpoint": config.replay_endpoint, **more}}
    }


def build_run(start: int, blocks: int, size: int = SIZE) -> list[int]:
    """Token ids of so many blocks that begin with `start`."""
    return [start, *range(1, blocks * size)]


def stored(start: int, blocks: int, size: int = SIZE) -> Stored:
    """A chain of so many blocks, named after `start`."""
    names = [start * 1000 + number for number in range(blocks)]
    return Stored(names, None, build_run(start, blocks, size), size, None, [None] * blocks)


@cache
def tiny_tokenizer() -> TemporaryDirectory[str]:
    """A tokenizer of three words: prompts here are token ids, and loading a real one takes longer than the test."""
    folder = TemporaryDirectory()
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"one": 0, "two": 1, "?": 2}, unk_token="?"))
    words.save(str(Path(folder.name) / "tokenizer.json"))
    return folder


@asynccontextmanager
async def following(*workers: FakeWorker, events: Any = "auto", tokenizer: bool = True) -> AsyncIterator[Following]:
    """A gateway of the model `m` before these workers."""
    static = [StaticBackend(url=worker.url, name=f"w{number}") for number, worker in enumerate(workers, 1)]
    path = str(Path(tiny_tokenizer().name) / "tokenizer.json") if tokenizer else None
    config = Config(
        listen=Listen(port=0, admin_port=0),
        models={"m": Model(backends=Backends(static=list(static)), events=events, tokenizer=path)},
        tenants={"shared": TenantSettings(keys=[key_line("shared-key")], isolation="shared")},
        probes=Probes(interval_seconds=0.05, start_seconds=2.0),
    )
    async with Gateway(config, load_secrets(config, ENVIRON)) as gateway:
        yield Following(gateway)


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
