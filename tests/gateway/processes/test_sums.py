"""What several processes counted is one page, and no counter on it ever falls."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from gateway.metrics import METRICS, PREFIX, Metrics
from gateway.processes.sums import OWN_GAUGES, Sums, read_page


def build_metrics(requests: int = 0, in_flight: int = 0, up: float = 1.0) -> Metrics:
    """What a process has counted after so many requests."""
    metrics = Metrics(CollectorRegistry())
    metrics.know(tenants=["t"], models=["m"], backends=["w"])
    for _ in range(requests):
        metrics.requests_total.labels("t", "m", "200").inc()
        metrics.request_duration_seconds.labels("t", "m").observe(0.5)
    metrics.requests_in_flight.labels("m").set(in_flight)
    metrics.backend_up.labels("w").set(up)
    return metrics


def page_of(metrics: Metrics):
    """Its page, as it is scraped."""
    return read_page(generate_latest(metrics.registry).decode())


def told(sums: Sums) -> dict[str, float]:
    """The samples on the common page; histogram buckets by their bound."""
    page = read_page(generate_latest(sums).decode())
    return {
        sample.name + sample.labels.get("le", ""): sample.value for metric in page.values() for sample in metric.samples
    }


def test_counters_and_histograms_add_up():
    """Two processes with three and four requests have seven."""
    sums = Sums()
    sums.heard(0, page_of(build_metrics(3)))
    sums.heard(1, page_of(build_metrics(4)))
    found = told(sums)
    assert found["homing_requests_total"] == 7
    assert found["homing_request_duration_seconds_count"] == 7
    assert found["homing_request_duration_seconds_bucket+Inf"] == 7
    assert found["homing_request_duration_seconds_sum"] == 3.5


def test_what_each_process_has_a_part_of_is_added_and_the_rest_is_told_once():
    """Requests under way add up; a worker is up once, and also where one process has not heard of it yet."""
    sums = Sums()
    sums.heard(0, page_of(build_metrics(in_flight=2)))
    sums.heard(1, page_of(build_metrics(in_flight=3, up=0.0)))
    found = told(sums)
    assert found["homing_requests_in_flight"] == 5
    assert found["homing_backend_up"] == 1


def test_what_a_process_counted_outlives_it():
    """E-06: and no file is left that a later scrape could stumble over; what is under way there does not."""
    sums = Sums()
    sums.heard(0, page_of(build_metrics(5, in_flight=1)))
    sums.left(0)
    sums.heard(0, page_of(build_metrics(2)))
    sums.left(7)
    assert told(sums)["homing_requests_total"] == 7
    assert told(sums)["homing_requests_in_flight"] == 0


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(("count", "hear", "die"))), max_size=12))
def test_no_counter_falls_whatever_happens(steps):
    """Processes count, are heard, and die and are started anew, in any order."""
    sums, alive, last = Sums(), {}, 0.0
    for process, what in steps:
        requests = alive.get(process, 0)
        if what == "count":
            alive[process] = requests + 1
        elif what == "hear":
            sums.heard(process, page_of(build_metrics(requests)))
        else:
            sums.left(process)
            alive[process] = 0
        now = told(sums).get("homing_requests_total", 0.0)
        assert now >= last
        last = now


def test_the_common_page_names_every_metric_once():
    """Each with its help and type, as one process has it."""
    sums = Sums()
    sums.heard(0, page_of(build_metrics(1)))
    sums.heard(1, page_of(build_metrics(1)))
    lines = generate_latest(sums).decode().splitlines()
    alone = generate_latest(build_metrics(1).registry).decode().splitlines()
    assert [line for line in lines if line.startswith("# ")] == [line for line in alone if line.startswith("# ")]


def test_gauges_that_are_added_up_exist():
    """A name that nobody exposes would be a slip of the pen."""
    assert {PREFIX + row.name for row in METRICS if row.kind == "gauge"} >= OWN_GAUGES
