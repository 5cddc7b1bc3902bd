"""One worker's record: what it serves, what is wrong with it, and when its cache is gone."""

from __future__ import annotations

import pytest

from gateway.worker_metrics import WorkerFigures
from gateway.worker_state import ProbeResult, ServingFacts, State, Worker
from tests.gateway.builders import build_backend, build_cards, build_worker

FACTS = ServingFacts()


def build_serving(*models: str, configured=("m",), **adapters: str) -> Worker:
    """A ready worker that lists these models and adapters."""
    worker = Worker(build_backend(models=configured))
    worker.cards = build_cards(*models, **adapters)
    worker.state, worker.trouble = State.READY, None
    return worker


@pytest.mark.parametrize(
    ("model", "serves"), [("m", True), ("lora-a", True), ("other", False), ("lora-b", False), ("nothing", False)]
)
def test_it_serves_what_is_configured_and_listed(model, serves):
    """The model, and adapters of it; not what it lists beyond."""
    worker = build_serving("m", "other", lora_a="m", lora_b="other")
    assert worker.serves(model) is serves


def test_configured_for_any_model_it_serves_its_whole_list():
    """`*`."""
    worker = build_serving("a", "b", configured=("*",), lora_a="a")
    assert all(worker.serves(model) for model in ("a", "b", "lora-a"))
    assert not worker.serves("c")


def test_a_configured_model_it_does_not_list_is_not_served():
    """Before its list is known, or when the list is another."""
    worker = build_worker()
    assert worker.configured_for("m")
    assert not worker.serves("m")


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        ({}, None),
        ({"cards": None}, "has not listed its models yet"),
        ({"cards": ()}, "serves no model, but is configured for m"),
        ({"cards": build_cards("x", "y")}, "serves x, y, but is configured for m"),
        ({"figures": WorkerFigures(asleep=True)}, "asleep"),
    ],
)
def test_what_makes_it_unfit_is_said_in_words(change, trouble):
    """For the log and /readyz."""
    worker = build_serving("m")
    for name, value in change.items():
        setattr(worker, name, value)
    assert worker.unfit() == trouble


def test_the_least_bound_counts():
    """The worker's own or the model's."""
    worker = Worker(build_backend(max_in_flight=8))
    assert worker.view("m", ServingFacts(max_in_flight=4)).max_in_flight == 4
    assert worker.view("n", ServingFacts(max_in_flight=16)).max_in_flight == 8
    assert build_worker().view("m", FACTS).max_in_flight is None


def test_each_model_has_its_own_picture():
    """Ready for one, not for the other."""
    worker = build_serving("m", configured=("m", "n"))
    assert worker.view("m", FACTS).ready
    assert not worker.view("n", FACTS).ready


@pytest.mark.parametrize(
    ("figures", "facts", "blocks"),
    [
        (WorkerFigures(cache_blocks=400, block_tokens=16), FACTS, 100),
        (WorkerFigures(cache_blocks=400, block_tokens=128), FACTS, 400),
        (WorkerFigures(cache_tokens=6400.0), FACTS, 100),
        (WorkerFigures(cache_tokens=6400.0), ServingFacts(worker_block_tokens=80), 80),
        (WorkerFigures(cache_blocks=1, block_tokens=16), FACTS, 1),
        (WorkerFigures(cache_blocks=400), FACTS, None),
        (WorkerFigures(), FACTS, None),
    ],
)
def test_the_cache_is_counted_in_routing_blocks(figures, facts, blocks):
    """By the worker's own word; at least one; unknown stays unknown."""
    worker = build_worker()
    worker.figures = figures
    assert worker.view("m", facts).cache_blocks == blocks


def test_its_repr_is_short_and_has_no_key():
    """It ends up in tracebacks."""
    worker = Worker(build_backend(api_key="CANARY"))
    worker.draining = True
    assert repr(worker) == "<worker w1: unknown, draining, 0 in flight>"
    assert "CANARY" not in repr(worker.backend)


def test_only_silence_is_borne_with_and_not_for_ever():
    """A refusal is clear at once; an answer starts the count anew."""
    worker = build_serving("m")
    silent = ProbeResult(trouble="no answer", silent=True)
    assert [worker.bears_with(silent) for _ in range(3)] == [True, True, False]
    assert not worker.bears_with(ProbeResult(trouble="refused", refused=True))
    assert worker.bears_with(silent)
    assert not worker.bears_with(ProbeResult())
    assert worker.silent_probes == 0


def test_a_first_reading_says_nothing_about_a_restart():
    """There is nothing to compare it with."""
    worker = build_worker()
    assert not worker.lost_its_cache(ProbeResult(figures=WorkerFigures(start_seconds=1.0)), now=0.0)
    assert worker.lost_its_cache(ProbeResult(figures=WorkerFigures(start_seconds=2.0)), now=1.0)


def test_a_missing_page_is_no_restart():
    """A probe without metrics keeps what the last one said."""
    worker = build_worker()
    figures = WorkerFigures(start_seconds=1.0, waiting=3.0)
    worker.lost_its_cache(ProbeResult(figures=figures), now=0.0)
    assert not worker.lost_its_cache(ProbeResult(), now=1.0)
    assert worker.figures == figures


def test_a_worker_without_a_start_time_that_was_gone_has_lost_its_cache():
    """Nothing vouches for it."""
    worker = build_serving("m")
    assert not worker.lost_its_cache(ProbeResult(trouble="no connection", refused=True), now=0.0)
    assert worker.lost_its_cache(ProbeResult(), now=1.0)
    assert not worker.lost_its_cache(ProbeResult(), now=2.0)


def test_its_problems_are_named():
    """For `check_integrity`."""
    worker = build_serving("m")
    assert worker.problems() == []
    worker.view("m", FACTS)
    worker.in_flight, worker.trouble = 1, "odd"
    assert worker.problems() == ["w1 is ready but its trouble is odd", "the picture of w1 is stale"]
