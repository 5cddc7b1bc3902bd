"""Our values tell what prometheus_client's would, for the same observations, byte for byte."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client import Counter as TheirCounter
from prometheus_client import Gauge as TheirGauge
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics

from gateway.metric_families import LabelValues, counter, declared_rows, gauge, histogram
from gateway.metric_values import Counter, Histogram

BUCKETS = (0.001, 0.01, 0.5, 1.0, 60.0)
SIGNED = (-4.0, 0.0, 4.0)
NAMES = st.sampled_from(("a", "other", 'quo"te', "back\\slash", "line\nend", "été"))
AMOUNTS = st.floats(min_value=0, max_value=1e9, allow_nan=False)
ANY = st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=32), st.sampled_from(BUCKETS))


class Table:
    requests_total = counter("Requests.", "code")
    all_total = counter("Everything, \\ and\nmore.")
    open_now = gauge("Open.", "code")
    lag_seconds = histogram("Lag.", buckets=BUCKETS)
    error_blocks = histogram("Error.", "code", buckets=SIGNED)


def build_ours() -> tuple[CollectorRegistry, dict]:
    """Our families in a registry of their own."""
    registry = CollectorRegistry()
    rows = declared_rows(Table)
    return registry, {name: row.build(registry, "x_", LabelValues()) for name, row in rows.items()}


def build_theirs() -> tuple[CollectorRegistry, dict]:
    """The same metrics as prometheus_client makes them."""
    disable_created_metrics()
    registry = CollectorRegistry()
    kinds = {"counter": TheirCounter, "gauge": TheirGauge, "histogram": TheirHistogram}
    made = {}
    for name, declared in declared_rows(Table).items():
        row = declared.row
        extra = {"buckets": row.buckets} if row.buckets else {}
        made[name] = kinds[row.kind]("x_" + name, row.sentence, row.labels, registry=registry, **extra)
    return registry, made


OBSERVATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("requests_total"), st.just("inc"), NAMES, AMOUNTS),
        st.tuples(st.just("all_total"), st.just("inc"), st.none(), AMOUNTS),
        st.tuples(st.just("open_now"), st.sampled_from(("set", "inc", "dec")), NAMES, ANY),
        st.tuples(st.just("lag_seconds"), st.just("observe"), st.none(), ANY),
        st.tuples(st.just("error_blocks"), st.just("observe"), NAMES, ANY),
    ),
    max_size=30,
)


def apply(families: dict, observations: list) -> None:
    """Count the observations on either kind."""
    for name, method, label, amount in observations:
        child = families[name]
        if label is not None:
            child = child.labels(label)
        elif isinstance(child, (TheirCounter, TheirGauge, TheirHistogram)) is False:
            child = child.labels()
        getattr(child, method)(amount)


@given(OBSERVATIONS)
def test_the_exposition_is_prometheus_clients(observations):
    """Text format and OpenMetrics, whatever was counted."""
    ours, our_families = build_ours()
    theirs, their_families = build_theirs()
    apply(our_families, observations)
    apply(their_families, observations)
    assert generate_latest(ours) == generate_latest(theirs)
    assert generate_open_metrics(ours) == generate_open_metrics(theirs)


def test_a_counter_does_not_shrink():
    """As prometheus_client has it."""
    with pytest.raises(ValueError, match="only grows"):
        Counter().inc(-1)


def test_buckets_ascend():
    """A histogram whose buckets do not would count wrongly and say nothing."""
    with pytest.raises(ValueError, match="ascend"):
        Histogram((1.0, 0.5))


def test_the_last_bucket_takes_everything():
    """Infinity is added once, given or not."""
    assert Histogram((1.0,)).bounds == Histogram((1.0, math.inf)).bounds


def test_a_name_is_taken_once():
    """The registry refuses a second metric of the same name."""
    registry, _ = build_ours()
    with pytest.raises(ValueError, match="Duplicated"):
        declared_rows(Table)["lag_seconds"].build(registry, "x_", LabelValues())
