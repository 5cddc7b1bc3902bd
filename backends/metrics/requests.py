"""What requests looked like and how long they took: vLLM's histograms, filled by the engine's Observer calls."""

from __future__ import annotations

from collections.abc import Mapping

from backends.accounts import FinishedRequest
from backends.metrics.families import Families

FINISHED_REASONS = ("stop", "length", "abort", "error")

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

_LATENCIES: Mapping[str, str] = {
    "request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
}
_TOKEN_COUNTS: Mapping[str, str] = {
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "request_max_num_generation_tokens": "Histogram of maximum number of requested generation tokens.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "request_prefill_kv_computed_tokens": "Histogram of new KV tokens computed during prefill.",
}


def token_buckets(max_model_tokens: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 … up to the model's length."""
    buckets = (digit * 10**exponent for exponent in range(12) for digit in (1, 2, 5))
    return tuple(bucket for bucket in buckets if bucket <= max_model_tokens)


class _Answers:
    """A request's answers: how many have not ended yet, and the longest so far, in tokens."""

    __slots__ = ("left", "longest_tokens")

    def __init__(self, answers: int) -> None:
        self.left = answers
        self.longest_tokens = 0


class RequestMetrics:
    """An Observer of the engine. Every answer of a request counts, as in vLLM, but what is asked of all: once."""

    def __init__(self, families: Families, max_model_tokens: int) -> None:
        histogram, buckets = families.histogram, token_buckets(max_model_tokens)
        self._shape = {name: histogram(name, sentence, buckets) for name, sentence in _TOKEN_COUNTS.items()}
        self._latency = {name: histogram(name, sentence, REQUEST_BUCKETS) for name, sentence in _LATENCIES.items()}
        self._answers_asked = histogram("request_params_n", "Histogram of the n parameter.", ANSWER_BUCKETS)
        self._preempted = histogram(
            "request_num_preemptions", "Histogram of the number of times a request was preempted.", PREEMPTION_BUCKETS
        )
        self._step_tokens = histogram(
            "iteration_tokens_total", "Histogram of number of tokens per engine_step.", STEP_BUCKETS
        )
        self._time_to_first_token = histogram(
            "time_to_first_token_seconds", "Histogram of time to first token in seconds.", FIRST_TOKEN_BUCKETS
        )
        self._inter_token = histogram(
            "inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", TOKEN_BUCKETS
        )
        self._per_token = histogram(
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            TOKEN_BUCKETS,
        )
        self._success = families.counters(
            "request_success", "Count of successfully processed requests.", "finished_reason", FINISHED_REASONS
        )
        self._open: dict[str, _Answers] = {}

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
        self._success[request.finish_reason].inc()
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
        self._shape["request_params_max_tokens"].observe(request.max_tokens)
        self._shape["request_prefill_kv_computed_tokens"].observe(request.prompt_tokens - request.cached_tokens)
        self._preempted.observe(request.preemptions)
        self._observe_whole(request)

    def _observe_whole(self, request: FinishedRequest) -> None:
        """With the last of a request's answers: how many they were, and how long the longest."""
        name = request.request_id.rpartition("/")[0] if request.n > 1 else request.request_id
        answers = self._open.setdefault(name, _Answers(request.n))
        answers.left -= 1
        answers.longest_tokens = max(answers.longest_tokens, request.completion_tokens)
        if answers.left == 0:
            del self._open[name]
            self._answers_asked.observe(request.n)
            self._shape["request_max_num_generation_tokens"].observe(answers.longest_tokens)
