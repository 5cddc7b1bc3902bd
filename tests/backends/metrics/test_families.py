"""Declaring metrics: vLLM's prefix and labels, and `_total` on counters."""

from __future__ import annotations

from tests.backends.metrics.page import build_families, families, values


def test_each_kind_has_vllms_prefix_and_labels():
    """One child is there at once, for the one engine there is."""
    declared = build_families()
    declared.gauge("a", "A gauge.").set(2)
    declared.counter("b", "A counter.").inc(3)
    declared.histogram("c", "A histogram.", (1.0, 2.0)).observe(1.5)
    seen = values(declared.registry)
    assert (seen["a"], seen["b_total"], seen["c_sum"], seen["c_bucket 2.0"]) == (2, 3, 1.5, 1)


def test_a_family_has_a_child_for_every_value_of_its_label():
    """Also those that have not occurred yet."""
    declared = build_families()
    declared.counters("b", "Counters.", "kind", ("x", "y"))["y"].inc()
    first, _ = declared.gauges("a", "Gauges.", "kind", ("x", "y"))
    first.set(7)
    assert {name: value for name, value in values(declared.registry).items() if "created" not in name} == {
        "b_total x": 0,
        "b_total y": 1,
        "a x": 7,
        "a y": 0,
    }


def test_labels_are_the_model_and_the_engine():
    """As vLLM's."""
    from prometheus_client import generate_latest

    declared = build_families()
    declared.gauge("a", "A gauge.")
    kind, labels, _ = families(generate_latest(declared.registry).decode())["vllm:a"]
    assert (kind, labels) == ("gauge", {"vllm:a": {frozenset({"model_name", "engine"})}})
