"""`python -m backends.main`: load, say what fits, serve, and drain on SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import logging
import signal
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from aiohttp import web

from backends.admission import Admission
from backends.arguments import parse_arguments
from backends.async_engine import AsyncEngine
from backends.engine import Engine
from backends.events.publisher import EventsError
from backends.events.service import build_events
from backends.hashing import BlockHasher
from backends.journal import together
from backends.loading import Loaded, StartError, load
from backends.log_line import Pulse
from backends.metrics import WorkerMetrics
from backends.prompt_ids import PromptReader
from backends.server import build_runner
from backends.serving import ServerSettings, Worker
from backends.vllm_hashing import VllmBlockHasher

logger = logging.getLogger("homing.worker")

HASHERS = {"sha256": BlockHasher, "sha256_cbor": VllmBlockHasher}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until a signal ends it; 0 after a clean end, 2 when it cannot start as asked."""
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s %(message)s", datefmt="%m-%d %H:%M:%S")
    try:
        loaded = load(options)
        return asyncio.run(serve(options, loaded))
    except (StartError, EventsError) as error:
        print(f"homing worker: error: {error}", file=sys.stderr)
        return 2


async def serve(options: argparse.Namespace, loaded: Loaded) -> int:
    """Serve until SIGTERM or SIGINT, then let open requests finish. StartError when the port cannot be had."""
    pulse, signals = Pulse(), Signals()
    worker = build_worker(options, loaded, pulse)
    worker.events.start()
    worker.engine.start()
    runner = build_runner(worker, shutdown_seconds=options.shutdown_timeout)
    await runner.setup()
    try:
        await _listen(runner, options.host, options.port)
        logger.info(
            "%s, serving %s", loaded.budget.sentence(loaded.config.max_model_tokens), ", ".join(_names(options))
        )
        logger.info("Listening on %s", " ".join(_urls(runner)))
        await signals.wait(pulse)
        logger.info("Draining: %d requests open, at most %g s", worker.in_flight, options.shutdown_timeout)
        worker.draining = True
    finally:
        await runner.cleanup()
        await worker.engine.stop()
        worker.events.stop()
    return 0


def build_worker(options: argparse.Namespace, loaded: Loaded, pulse: Pulse) -> Worker:
    """Everything wired, nothing started."""
    config = loaded.config
    settings = build_settings(options, loaded)
    cache_info = {
        "block_size": config.block_tokens,
        "num_gpu_blocks": config.num_blocks,
        "enable_prefix_caching": config.enable_prefix_caching,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "num_gpu_blocks_override": options.num_gpu_blocks_override,
        "kv_cache_size_tokens": loaded.budget.tokens,
        "kv_cache_max_concurrency": loaded.budget.tokens / config.max_model_tokens,
        "prefix_caching_hash_algo": options.prefix_caching_hash_algo,
        "cache_dtype": options.dtype,
    }
    metrics = WorkerMetrics(settings.served_names[0], config.max_model_tokens, cache_info)
    metrics_and_pulse = pulse.beside(metrics.watch)
    events = build_events(options)
    engine = Engine(
        config,
        loaded.runner,
        loaded.text.tokeniser,
        time.monotonic,
        observer=metrics.requests,
        hasher=HASHERS[options.prefix_caching_hash_algo](config.block_tokens),
        journal=together(events.journal),
    )
    admission = Admission(options.max_num_queued_reqs, options.max_num_queued_tokens)
    prompts = PromptReader(loaded.text, max_model_tokens=config.max_model_tokens, vocab_size=loaded.runner.vocab_size)
    async_engine = AsyncEngine(engine, admission=admission, watch=events.before(metrics_and_pulse))
    return Worker(settings, async_engine, prompts, metrics, events)


def build_settings(options: argparse.Namespace, loaded: Loaded) -> ServerSettings:
    """How the worker presents itself."""
    config = loaded.config
    identity = f"{loaded.root}\0{config.max_model_tokens}\0{options.dtype}"
    return ServerSettings(
        served_names=_names(options),
        root=loaded.root,
        max_model_tokens=config.max_model_tokens,
        block_tokens=config.block_tokens,
        prefix_caching=config.enable_prefix_caching,
        version=_version(),
        fingerprint=f"homing-{_version()}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}",
        prompt_tokens_details=options.enable_prompt_tokens_details,
        api_keys=tuple(options.api_key),
        dev_routes=options.enable_dev_routes,
        mint_request_ids=options.enable_request_id_headers,
        seed=options.seed,
        body_limit_bytes=options.max_body_bytes,
    )


def _names(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(options.served_model_name or [options.model])


def _version() -> str:
    try:
        return version("homing")
    except PackageNotFoundError:
        return "0"


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _urls(runner: web.AppRunner) -> list[str]:
    """Where the server really listens, also with port 0."""
    hosts = [(f"[{host}]" if ":" in host else host, port) for host, port, *_ in runner.addresses]
    return [f"http://{host}:{port}" for host, port in hosts]


class Signals:
    """SIGTERM and SIGINT as an event; once one has come, the next one ends the process at once."""

    def __init__(self) -> None:
        self._come = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._heard)

    def _heard(self) -> None:
        self._come.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.remove_signal_handler(number)

    async def wait(self, pulse: Pulse) -> None:
        """Wait for the first one, logging the periodic line meanwhile."""
        beating = asyncio.create_task(pulse.beat(time.monotonic))
        await self._come.wait()
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating


if __name__ == "__main__":
    sys.exit(main())
