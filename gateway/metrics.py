"""Every metric that Homing exposes, in one table: the class body of `Metrics`."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, disable_created_metrics

from gateway.metric_families import LabelValues, MetricRow, Refresh, counter, declared_rows, gauge, histogram

PREFIX = "homing_"

TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
"""Seconds: OpenTelemetry's for generative AI, and what a long queue adds."""

ITL_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
DURATION_BUCKETS = tuple(0.01 * 2**step for step in range(14))
OVERHEAD_BUCKETS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05)
PLACE_BUCKETS = (0.00001, 0.00002, 0.00003, 0.00005, 0.000075, 0.0001, 0.00015, 0.00025, 0.0005, 0.001, 0.005, 0.025)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
ERROR_BUCKETS = (-256.0, -64.0, -16.0, -4.0, -1.0, 0.0, 1.0, 4.0, 16.0, 64.0, 256.0)


class Metrics:
    """The table; an instance holds the families: `metrics.requests_total.labels(tenant, model, code).inc()`.

    Labels are given in the order written here. A tenant, model or backend that was not made known reads `other`.
    """

    # Requests
    requests_total = counter("Requests answered, by HTTP status; 499 when the caller left.", "tenant", "model", "code")
    requests_in_flight = gauge("Requests begun and not yet ended.", "model")
    request_duration_seconds = histogram(
        "From the first byte of a request to the last byte of its answer.", "tenant", "model", buckets=DURATION_BUCKETS
    )
    time_to_first_token_seconds = histogram(
        "From a request's arrival to the first token of its answer, by the reason of its placement.",
        "tenant", "model", "placement", buckets=TTFT_BUCKETS,
    )  # fmt: skip
    inter_token_latency_seconds = histogram(
        "Between two events of a streamed answer, as they reach the gateway.", "model", buckets=ITL_BUCKETS
    )
    overhead_seconds = histogram(
        "What the gateway itself adds, by stage: auth, parse, prepare, place.", "stage", buckets=OVERHEAD_BUCKETS
    )

    rewrites_total = counter("Requests in whose prompt a tenant's rewrite changed something.", "tenant", "rule")

    # Placement and affinity: where requests went. Counted apart from cached tokens, on purpose.
    placements_total = counter("Placements by reason; `home` is the ring's home.", "model", "reason")
    placements_home_ratio = gauge(
        "Share of this gateway's placements that went to a home of their prompt (0 to 1).", "model"
    )
    prefixes_with_several_homes = gauge("Hot prefixes that have more than one home, because one would not do.", "model")
    place_seconds = histogram(
        "What choosing a worker takes, with all that is noted of it.", "model", buckets=PLACE_BUCKETS
    )
    prefill_utilisation_ratio = gauge(
        "Predicted prefill placed lately over what the workers could do (0 to 0.99).", "model"
    )
    placement_price_ratio = gauge(
        "Seconds of others' waiting that a second of prefill is weighed with (1 to 8).", "model"
    )
    affinity_placements_total = counter(
        "Placements at the prompt's home or away from it (outcome: home, away), whatever the worker then had cached.",
        "tenant", "model", "outcome",
    )  # fmt: skip

    # Cache: what the workers really had
    prompt_tokens_total = counter("Prompt tokens, as workers report them.", "tenant", "model")
    cached_tokens_total = counter("Prompt tokens that workers report as found in their cache.", "tenant", "model")
    predicted_cached_tokens_total = counter(
        "Prompt tokens believed cached at the chosen worker when the request was placed.", "tenant", "model"
    )
    completion_tokens_total = counter("Tokens generated, as workers report them.", "tenant", "model")
    prediction_error_blocks = histogram(
        "Cached blocks predicted less cached blocks reported, by what was gone by: known (the worker's events) or "
        "believed (the directory).",
        "model", "source", buckets=ERROR_BUCKETS,
    )  # fmt: skip
    directory_blocks = gauge("Blocks that the directory believes some worker holds.", "model")
    directory_evictions_total = counter(
        "Blocks that the directory let go because a worker's bound was reached.", "model"
    )

    # Events: what workers tell of their caches
    backend_cache_known = gauge(
        "1 while placement goes by the worker's KV events, 0 while it goes by belief.", "backend"
    )
    backend_known_blocks = gauge("The worker's own blocks that it holds, as its events tell.", "backend")
    backend_event_lag_seconds = gauge(
        "How old the worker's last batch of events was when it was applied, by both sides' clocks.", "backend"
    )
    event_batches_total = counter(
        "Batches of KV events by outcome: applied (as published), replayed (asked for again), repeated (known, and "
        "passed over), bad (unreadable).",
        "outcome",
    )
    event_blocks_total = counter(
        "Blocks that events told of: stored, removed, and of these absent (removed, but not known), orphan (stored "
        "behind an unknown one), refused (beyond the bound).",
        "kind",
    )
    event_gaps_total = counter(
        "Gaps in the numbers of batches: noticed, and lost (nobody could repeat what is missing: learned anew).",
        "outcome",
    )
    event_lives_total = counter("Streams that began anew because their worker had: what was known was dropped.")

    # Workers
    backend_up = gauge("1 while the worker takes requests, else 0.", "backend")
    backend_in_flight = gauge("Requests this gateway has at the worker.", "backend")
    backend_requests_running = gauge("Requests the worker says it is running.", "backend")
    backend_requests_waiting = gauge("Requests the worker says are queued.", "backend")
    backend_kv_cache_usage_ratio = gauge("Share of the worker's KV cache in use, by its own word (0 to 1).", "backend")
    backend_prefix_cache_hit_ratio = gauge(
        "Share of prompt tokens the worker found in its prefix cache in the last minute, by its own word (0 to 1); "
        "no series while it had no prompts.",
        "backend",
    )
    backend_prefill_tokens_per_second = gauge(
        "How fast the worker prefills: learned, or as configured.", "model", "backend"
    )
    backend_prefill_fixed_seconds = gauge(
        "What a prefill costs before its first token: learned, or as configured.", "model", "backend"
    )
    backend_prefill_observations = gauge(
        "Answers that the worker's own prefill rate was learned from.", "model", "backend"
    )
    backend_directory_bound_blocks = gauge(
        "Blocks that the worker's cache is believed to have room for.", "model", "backend"
    )
    backend_ejections_total = counter(
        "Times a worker was taken out of rotation (refused, broke, silent, erred, hung, probe).", "reason"
    )
    upstream_retries_total = counter("Requests sent on to another worker before their first byte.", "reason")
    retries_denied_total = counter("Retries that were not made because the retry budget was spent.")
    panic = gauge("1 while requests also go to ejected workers, because too few others are left.", "model")
    trials_total = counter("Requests of the gateway's own to ejected workers, by outcome: good, bad.", "outcome")
    quarantined_prompts_total = counter("Prompts that two workers died of, and that were refused from then on.")
    quarantined_requests_total = counter("Requests refused because of their prompt.", "tenant")

    # Limits
    limit_rejections_total = counter(
        "Requests over a limit: requests, tokens, concurrency, budget, output, share (of a full fleet), queue (waited "
        "in vain), closed (Redis away); enforced false where they passed all the same.",
        "tenant", "limit", "enforced",
    )  # fmt: skip
    tenant_budget_used_ratio = gauge("Share of the tenant's budget that is spent, as last known here.", "tenant")
    limited_tenants = gauge(
        "Tenants with limits that this gateway has seen, by where they are counted now: redis, local, open, closed.",
        "mode",
    )
    queue_seconds = histogram(
        "How long a request waited for room in a full fleet, whatever came of it.", "model", buckets=TTFT_BUCKETS
    )
    queued_requests = gauge("Requests that wait for room in a full fleet.", "model")

    # Prewarming: never counted as requests
    prewarmed_prompts_total = counter(
        "Prompts brought to a worker's cache before anybody asked, by how: pulled from another worker, or computed.",
        "how",
    )
    prewarmed_tokens_total = counter("Tokens that the worker lacked of them, as believed.", "how")
    prewarm_seconds_total = counter(
        "Seconds of workers' prefill spent on it, as estimated, or more where it took longer."
    )
    prewarm_skipped_total = counter(
        "Prompts that were not brought, by reason: budget, deadline, failed, refused, gone (the worker left), "
        "yielded (given up for a request that waited).",
        "reason",
    )
    prewarm_kept_prompts = gauge("Recent prompts kept in memory for prewarming.")
    prewarm_kept_bytes = gauge("Memory that they take.")
    pinned_prompts_held_ratio = gauge(
        "Share of the places where a tenant's pinned prompts are to be held that are believed to hold them (0 to 1).",
        "tenant",
    )

    # The recording
    recorded_requests_total = counter(
        "Requests that came by the recording, by outcome: written, not_sampled, queue_full, write_failed.", "outcome"
    )

    # Replicas: what gateways on one Redis tell each other
    replica_state = gauge(
        "1 for the state this replica is in: joined, joining (reading what it missed) or alone; no series without "
        "Redis.",
        "state",
    )
    replicas_heard = gauge("Other replicas that gave a sign of life in the last seconds.")
    news_published_total = counter("News of own requests taken by Redis (placed, first_token, ended).", "kind")
    news_heard_total = counter("News of other replicas' requests that was applied.", "kind")
    news_dropped_total = counter("News of own requests that was given up because too much of it waited.")
    news_ignored_total = counter(
        "Values and news in Redis that were not applied: malformed, oversized, forged (sealed with another secret) or "
        "of another version; of a model or worker that this replica does not know alike; or repeated.",
        "reason",
    )
    news_unresolved_total = counter(
        "Placements heard whose chain could not be rebuilt; they count as load, not as cached blocks."
    )
    news_bytes_total = counter("Bytes of news sent to Redis (out) and read from it, our own too (in).", "direction")
    news_lag_seconds = histogram(
        "From making a batch to reading it back from Redis: how late the others hear.", buckets=LAG_BUCKETS
    )
    redis_errors_total = counter("Calls to Redis that failed or took too long, while joined.")

    # The configuration
    config_reloads_total = counter(
        "Times the configuration was read anew: applied, refused (the one before stays) or unchanged.", "result"
    )
    config_last_reload_successful = gauge(
        "0 while the file holds a configuration that was refused; /config on the admin port says why."
    )
    config_last_reload_success_timestamp_seconds = gauge(
        "Unix time when the configuration was last read and found right."
    )

    # Connections of clients
    client_connections = gauge("Connections of clients, by state: idle, or busy with a request.", "state")
    client_connections_closed_total = counter(
        "Connections closed by the gateway's own bounds, by reason: too_many, slow_head, large_head, unread (an answer "
        "that nobody took).",
        "reason",
    )

    # The process
    task_restarts_total = counter("Background tasks that a fault of our own ended and that were begun again.", "task")
    processes = gauge("Processes that serve, of `homing serve --processes`; 0 where one serves alone.")
    process_restarts_total = counter("Processes that died and were started anew.")
    event_loop_lag_seconds = histogram("How late the event loop woke a timer.", buckets=LAG_BUCKETS)
    event_loop_tasks = gauge("Tasks of the event loop; with nothing to do as many as after the start.")
    build_info = gauge("Always 1; the labels say what runs.", "version", "python")

    def __init__(self, registry: CollectorRegistry) -> None:
        # `_created` series double a scrape and nobody reads them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry
        self._values = LabelValues()
        self._refreshers: list[Refresh] = []
        for name, row in declared_rows(type(self)).items():
            setattr(self, name, row.build(registry, PREFIX, self._values))

    def know(self, *, tenants: Iterable[str] = (), models: Iterable[str] = (), backends: Iterable[str] = ()) -> None:
        """Let these names appear as label values."""
        self._values.allow("tenant", tenants)
        self._values.allow("model", models)
        self._values.allow("backend", backends)

    def knows(self, label: str, value: str) -> bool:
        """Whether `value` may appear under `label` ('tenant', 'model' or 'backend')."""
        return self._values.bounded(label, value) == value

    def before_scrape(self, refresh: Refresh) -> None:
        """Call `refresh` just before each exposition, for gauges that are read rather than counted."""
        self._refreshers.append(refresh)

    def refresh(self) -> None:
        """Bring every read gauge up to date."""
        for refresh in self._refreshers:
            refresh()


METRICS: tuple[MetricRow, ...] = tuple(declared.row for declared in declared_rows(Metrics).values())
"""The table as data, for documentation and tests."""
