"""The worker's /metrics: vLLM's names (≥ 0.12), types, labels and buckets, as far as they have a meaning here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from backends.accounts import EngineStats, FinishedRequest

LABELS = ("model_name", "engine")
ENGINE = "0"
"""One engine per worker; vLLM numbers its data-parallel ranks."""

FINISHED_REASONS = ("stop", "length", "abort", "error")
REJECTED_REQUESTS = "max_num_queued_reqs"
REJECTED_TOKENS = "max_num_queued_tokens"

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
FIRST_TOKEN_BUCKETS = (*_TTFT, 80.0, 160.0, 640.0, 2560.0)
TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PREEMPTION_BUCKETS = (1, 2, 3, 4, 5, 10, 20)
ANSWER_BUCKETS = (1, 2, 5, 10, 20)

_HISTOGRAMS: Mapping[str, str] = {
    "request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
}
_COUNTERS: Mapping[str, tuple[str, str]] = {
    "prefix_queries": ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens."),
    "prefix_hits": ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens."),
    "preemptions": ("num_preemptions", "Cumulative number of preemption from the engine."),
    "prompt_tokens": ("prompt_tokens", "Number of prefill tokens processed."),
    "cached_prompt_tokens": ("prompt_tokens_cached", "Number of cached prompt tokens (local + external)."),
    "generation_tokens": ("generation_tokens", "Number of generation tokens processed."),
}
"""Counter of EngineStats → metric (without prefix and `_total`) and its sentence."""


def token_buckets(max_model_tokens: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 … up to the model's length."""
    buckets = (digit * 10**exponent for exponent in range(12) for digit in (1, 2, 5))
    return tuple(bucket for bucket in buckets if bucket <= max_model_tokens)


class WorkerMetrics:
    """All metrics of one worker, in a registry of its own. An Observer of the engine; thread-safe.

    `cache_info` becomes the labels of `vllm:cache_config_info`.
    """

    def __init__(self, model_name: str, max_model_tokens: int, cache_info: Mapping[str, object]) -> None:
        self.registry = CollectorRegistry()
        for collector in (GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR):
            self.registry.register(collector)
        self._model_name = model_name
        self._declare_gauges()
        self._counters = {field: self._counter(*row) for field, row in _COUNTERS.items()}
        self._declare_sources()
        self._declare_request_shape(token_buckets(max_model_tokens))
        self._declare_latencies()
        self._declare_cache_info(cache_info)
        self._before: EngineStats | None = None

    def text(self) -> bytes:
        """The exposition, in Prometheus' text format 0.0.4."""
        return bytes(generate_latest(self.registry))

    def watch(self, stats: EngineStats) -> None:
        """Take over the engine's gauges, and its counters' growth since last time."""
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._waiting_for_capacity.set(stats.waiting)
        self._kv_usage.set(stats.kv_usage)
        growth = {field: getattr(stats, field) - getattr(self._before, field, 0) for field in _COUNTERS}
        self._before = stats
        for field, counter in self._counters.items():
            counter.inc(growth[field])
        self._from_cache.inc(growth["cached_prompt_tokens"])
        self._from_device.inc(growth["cached_prompt_tokens"])
        self._computed.inc(growth["prompt_tokens"] - growth["cached_prompt_tokens"])

    def rejected(self, reason: str) -> None:
        """A queue limit turned a request away."""
        self._rejections.labels(self._model_name, reason).inc()

    def first_token(self, request_id: str, seconds: float) -> None:  # noqa: ARG002 - the engine's Observer
        """Seconds from arrival to the first token."""
        self._time_to_first_token.observe(seconds)

    def next_token(self, request_id: str, seconds: float) -> None:  # noqa: ARG002 - the engine's Observer
        """Seconds since the answer's previous token."""
        self._inter_token.observe(seconds)

    def stepped(self, scheduled_tokens: int, preempted: int) -> None:  # noqa: ARG002 - counted from the stats
        """A step ran."""
        self._step_tokens.observe(scheduled_tokens)

    def finished(self, request: FinishedRequest) -> None:
        """An answer ended; phases it never reached are not observed."""
        self._success.labels(self._model_name, ENGINE, request.finish_reason).inc()
        self._observe_shape(request)
        latency = self._latency
        latency["e2e_request_latency_seconds"].observe(request.e2e_seconds)
        latency["request_queue_time_seconds"].observe(request.queue_seconds)
        if request.completion_tokens:
            latency["request_prefill_time_seconds"].observe(request.prefill_seconds)
            latency["request_decode_time_seconds"].observe(request.decode_seconds)
            latency["request_inference_time_seconds"].observe(request.inference_seconds)
            self._per_token.observe(request.decode_seconds / max(1, request.completion_tokens - 1))

    def _observe_shape(self, request: FinishedRequest) -> None:
        self._shape["request_prompt_tokens"].observe(request.prompt_tokens)
        self._shape["request_generation_tokens"].observe(request.completion_tokens)
        self._shape["request_max_num_generation_tokens"].observe(request.completion_tokens)
        self._shape["request_params_max_tokens"].observe(request.max_tokens)
        self._shape["request_prefill_kv_computed_tokens"].observe(request.prompt_tokens - request.cached_tokens)
        self._answers_asked.observe(request.n)
        self._preempted.observe(request.preemptions)

    def _declare_gauges(self) -> None:
        self._running = self._gauge("num_requests_running", "Number of requests in model execution batches.")
        self._waiting = self._gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason: 'capacity' or 'deferred'.",
            (*LABELS, "reason"),
            registry=self.registry,
        )
        self._waiting_for_capacity = by_reason.labels(self._model_name, ENGINE, "capacity")
        by_reason.labels(self._model_name, ENGINE, "deferred").set(0)
        self._kv_usage = self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")

    def _declare_sources(self) -> None:
        by_source = self._family("prompt_tokens_by_source", "Number of prompt tokens by source.", "source")
        self._computed = by_source.labels(self._model_name, ENGINE, "local_compute")
        self._from_cache = by_source.labels(self._model_name, ENGINE, "local_cache_hit")
        by_tier = self._family("prompt_tokens_cached_by_source", "Prefix-cache hit tokens by cache tier.", "source")
        self._from_device = by_tier.labels(self._model_name, ENGINE, "device")
        self._success = self._family("request_success", "Count of successfully processed requests.", "finished_reason")
        for reason in FINISHED_REASONS:
            self._success.labels(self._model_name, ENGINE, reason)
        self._rejections = Counter(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            ("model_name", "reason"),
            registry=self.registry,
        )
        for reason in (REJECTED_REQUESTS, REJECTED_TOKENS):
            self._rejections.labels(self._model_name, reason)

    def _declare_request_shape(self, buckets: Sequence[int]) -> None:
        sentences = {
            "request_prompt_tokens": "Number of prefill tokens processed.",
            "request_generation_tokens": "Number of generation tokens processed.",
            "request_max_num_generation_tokens": "Histogram of maximum number of requested generation tokens.",
            "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
            "request_prefill_kv_computed_tokens": "Histogram of new KV tokens computed during prefill.",
        }
        self._shape = {name: self._histogram(name, sentence, buckets) for name, sentence in sentences.items()}
        self._answers_asked = self._histogram("request_params_n", "Histogram of the n parameter.", ANSWER_BUCKETS)
        self._preempted = self._histogram(
            "request_num_preemptions", "Histogram of the number of times a request was preempted.", PREEMPTION_BUCKETS
        )
        self._step_tokens = self._histogram(
            "iteration_tokens_total", "Histogram of number of tokens per engine_step.", STEP_BUCKETS
        )

    def _declare_latencies(self) -> None:
        self._time_to_first_token = self._histogram(
            "time_to_first_token_seconds", "Histogram of time to first token in seconds.", FIRST_TOKEN_BUCKETS
        )
        self._inter_token = self._histogram(
            "inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", TOKEN_BUCKETS
        )
        self._per_token = self._histogram(
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            TOKEN_BUCKETS,
        )
        self._latency = {name: self._histogram(name, text, REQUEST_BUCKETS) for name, text in _HISTOGRAMS.items()}

    def _declare_cache_info(self, cache_info: Mapping[str, object]) -> None:
        info = Gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            (*cache_info, "engine"),
            registry=self.registry,
        )
        info.labels(*map(str, cache_info.values()), ENGINE).set(1)

    def _gauge(self, name: str, sentence: str) -> Gauge:
        return Gauge(f"vllm:{name}", sentence, LABELS, registry=self.registry).labels(self._model_name, ENGINE)

    def _counter(self, name: str, sentence: str) -> Counter:
        return Counter(f"vllm:{name}", sentence, LABELS, registry=self.registry).labels(self._model_name, ENGINE)

    def _family(self, name: str, sentence: str, label: str) -> Counter:
        return Counter(f"vllm:{name}", sentence, (*LABELS, label), registry=self.registry)

    def _histogram(self, name: str, sentence: str, buckets: Sequence[float]) -> Histogram:
        family = Histogram(f"vllm:{name}", sentence, LABELS, buckets=buckets, registry=self.registry)
        return family.labels(self._model_name, ENGINE)
