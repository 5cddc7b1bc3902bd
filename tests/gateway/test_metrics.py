"""Metrics: one table, bounded labels, and nothing in a scrape that nobody asked for."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.metric_families import KNOWN_VALUES_BOUND, OTHER
from gateway.metrics import METRICS, PREFIX, Metrics


def build_metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def exposed(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def series(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_every_row_of_the_table_is_exposed():
    """What the table declares is what a scrape shows, with its sentence."""
    text = exposed(build_metrics())
    for row in METRICS:
        assert f"# HELP {PREFIX}{row.name} {row.sentence}" in text


def test_names_follow_the_rules():
    """`_total` on counters and nowhere else, units in words, no label that grows with traffic."""
    for row in METRICS:
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name
        assert re.fullmatch(r"[a-z_]+", row.name)
        assert not {"request_id", "user", "key", "prompt"} & set(row.labels)
        assert row.sentence.endswith(".")


def test_a_count_appears_under_the_names_it_was_given():
    """A known tenant and model keep their names."""
    metrics = build_metrics()
    metrics.know(tenants=["acme"], models=["m"])
    metrics.requests_total.labels("acme", "m", "200").inc()
    assert 'homing_requests_total{code="200",model="m",tenant="acme"} 1.0' in exposed(metrics)


def test_ten_thousand_made_up_models_are_one_series():
    """E-07: what clients send does not make a scrape grow."""
    metrics = build_metrics()
    metrics.know(tenants=["acme"], models=["m"])
    before = len(series(exposed(metrics)))
    for number in range(10_000):
        metrics.requests_total.labels(f"tenant-{number}", f"model-{number}", "404").inc()
    assert len(series(exposed(metrics))) - before == 1
    assert f'homing_requests_total{{code="404",model="{OTHER}",tenant="{OTHER}"}} 10000.0' in exposed(metrics)


def test_a_model_that_becomes_known_later_gets_its_own_series():
    """A first request before the first probe does not doom a name to `other`."""
    metrics = build_metrics()
    metrics.placements_total.labels("late", "home").inc()
    metrics.know(models=["late"])
    metrics.placements_total.labels("late", "home").inc()
    assert 'homing_placements_total{model="late",reason="home"} 1.0' in exposed(metrics)


def test_even_known_names_are_bounded():
    """A worker that lists a new adapter every minute cannot grow a scrape for ever."""
    metrics = build_metrics()
    metrics.know(models=(f"adapter-{number}" for number in range(2 * KNOWN_VALUES_BOUND)))
    for number in range(2 * KNOWN_VALUES_BOUND):
        metrics.requests_in_flight.labels(f"adapter-{number}").set(1)
    assert len(list(metrics.requests_in_flight)) == KNOWN_VALUES_BOUND + 1


def test_no_created_series():
    """They double a scrape and nobody reads them."""
    metrics = build_metrics()
    metrics.requests_total.labels("a", "m", "200").inc()
    metrics.event_loop_lag_seconds.labels().observe(0.1)
    assert "_created" not in exposed(metrics)


def test_the_child_is_the_same_object_each_time():
    """The request's path pays one look-up, not a lock and a join."""
    family = build_metrics().overhead_seconds
    assert family.labels("parse") is family.labels("parse")


def test_a_series_ends_when_its_worker_is_gone():
    """A gauge of yesterday's worker is a lie."""
    metrics = build_metrics()
    metrics.know(backends=["w1"])
    metrics.backend_up.labels("w1").set(1)
    metrics.backend_up.remove("w1")
    metrics.backend_up.remove("never-there")
    assert 'backend="w1"' not in exposed(metrics)


def test_the_wrong_number_of_labels_is_an_error():
    """A forgotten label is found at once, not in a dashboard."""
    with pytest.raises(ValueError, match="zip"):
        build_metrics().requests_total.labels("acme")


def test_read_gauges_are_refreshed_before_a_scrape():
    """What is read rather than counted is read when somebody looks."""
    metrics = build_metrics()
    metrics.know(models=["m"])
    metrics.before_scrape(lambda: metrics.directory_blocks.labels("m").set(7))
    metrics.refresh()
    assert 'homing_directory_blocks{model="m"} 7.0' in exposed(metrics)
