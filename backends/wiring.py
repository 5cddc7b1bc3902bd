"""From options and a loaded model to a worker that can start: which part is given to which."""

from __future__ import annotations

import argparse
import hashlib
import time
from importlib.metadata import PackageNotFoundError, version

from backends.admission import Admission
from backends.async_engine import AsyncEngine
from backends.engine import Engine
from backends.events.service import EventService, build_events
from backends.exchange.peers import Measuring
from backends.exchange.service import build_exchange
from backends.hashing import BlockHasher
from backends.holdings import Holdings
from backends.journal import Journal, together
from backends.loading import Loaded, StartError
from backends.log_line import Pulse
from backends.metrics import WorkerMetrics
from backends.metrics.residency import BlockResidency
from backends.openai_wire import WireLimits
from backends.prompt_ids import PromptReader
from backends.request_profile import RequestRecorder
from backends.serving import ServerSettings, Worker
from backends.tiers.interface import Offload
from backends.tiers.metrics import TierCollector
from backends.tiers.offload import TieredOffload
from backends.tiers.options import build_offload
from backends.tiers.rates import Rates
from backends.tiers.seen_too import SeenToo
from backends.vllm_hashing import VllmBlockHasher

HASHERS = {"sha256": BlockHasher, "sha256_cbor": VllmBlockHasher}


def build_worker(options: argparse.Namespace, loaded: Loaded, pulse: Pulse) -> Worker:
    """Everything wired, nothing started but the tiers. StartError for options that do not go together."""
    try:
        return _worker(options, loaded, pulse)
    except (ValueError, OSError) as error:
        raise StartError(str(error)) from error


def _worker(options: argparse.Namespace, loaded: Loaded, pulse: Pulse) -> Worker:
    config = loaded.config
    settings = build_settings(options, loaded)
    cache_info = {
        "block_size": config.block_tokens,
        "num_gpu_blocks": config.num_blocks,
        "enable_prefix_caching": config.enable_prefix_caching,
        "gpu_memory_utilization": loaded.memory_utilization,
        "num_gpu_blocks_override": options.num_gpu_blocks_override,
        "kv_cache_size_tokens": loaded.budget.tokens,
        "kv_cache_max_concurrency": loaded.budget.tokens / config.max_model_tokens,
        "prefix_caching_hash_algo": options.prefix_caching_hash_algo,
        "cache_dtype": options.dtype,
    }
    metrics = WorkerMetrics(
        settings.served_names[0], config.max_model_tokens, cache_info, legacy=options.show_legacy_metrics
    )
    metrics_and_pulse = pulse.beside(metrics.watch)
    events, rates = build_events(options), Rates()
    exchange = build_exchange(options, rates)
    tiers, offload, watching = _offload(options, loaded, rates, events, metrics)
    engine = Engine(
        config,
        loaded.runner,
        loaded.text.tokeniser,
        time.monotonic,
        observer=metrics.requests,
        hasher=HASHERS[options.prefix_caching_hash_algo](config.block_tokens),
        journal=together(events.journal, exchange.journal, *watching),
        offload=offload,
    )
    if options.record_request_profile is not None:
        engine.cache.profile = RequestRecorder(options.record_request_profile)
    admission = Admission(options.max_num_queued_reqs, options.max_num_queued_tokens)
    prompts = PromptReader(loaded.text, max_model_tokens=config.max_model_tokens, vocab_size=loaded.runner.vocab_size)
    async_engine = AsyncEngine(engine, admission=admission, watch=events.before(metrics_and_pulse))
    holdings = Holdings(engine.cache, loaded.runner)
    exchange.connect(async_engine, holdings)
    if tiers is not None and events.tiers is not None:
        tiers.tell_between_steps(async_engine.order)
    if exchange.settings.routes or events.config is not None:
        metrics.registry.register(exchange.collector(metrics.families.model_name, events, holdings))
    return Worker(settings, async_engine, prompts, metrics, holdings, events, exchange, offload)


def _offload(
    options: argparse.Namespace, loaded: Loaded, rates: Rates, events: EventService, metrics: WorkerMetrics
) -> tuple[TieredOffload | None, Offload, list[Journal]]:
    """The tiers; what brings evicted blocks back; who must hear of the pool's blocks for it and for the metrics."""
    tiers = build_offload(
        options,
        loaded.runner,
        model=metrics.families.model_name,
        block_tokens=loaded.config.block_tokens,
        clock=time.monotonic,
        journal=events.tiers,
        rates=rates,
    )
    journals: list[Journal] = []
    if tiers is not None:
        journals.append(tiers)
        metrics.registry.register(TierCollector(metrics.families.model_name, tiers.stats))
    if not options.kv_cache_metrics:
        return tiers, tiers or Measuring(rates), journals
    residency = BlockResidency(metrics.families, time.monotonic, options.kv_cache_metrics_sample)
    return tiers, SeenToo(tiers or Measuring(rates), residency.seen), [*journals, residency]


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
        wire_limits=WireLimits(
            max_logprobs=None if options.max_logprobs < 0 else options.max_logprobs, partitions=config.partitions.names
        ),
    )


def _names(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(options.served_model_name or [options.model])


def _version() -> str:
    try:
        return version("homing")
    except PackageNotFoundError:
        return "0"
