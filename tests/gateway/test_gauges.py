"""Gauges that are read before a scrape: workers and directories as they are, and nothing made up."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from gateway.gauges import Gauges
from gateway.metrics import Metrics
from gateway.worker_metrics import WorkerFigures
from gateway.worker_state import Outcome, ProbeResult
from router.core import Prompt
from router.router import Router
from tests.gateway.builders import build_backend, build_cards, build_fleet, build_healthy


class Scrapes:
    """A fleet, routers, and what a scrape of them shows."""

    def __init__(self, *workers):
        self.fleet = build_fleet(*workers)
        self.routers = {"m": Router()}
        self.metrics = Metrics(CollectorRegistry())
        self.metrics.know(models=["m"])
        self.now = 0.0
        Gauges(self.metrics, self.fleet, self.routers, lambda: self.now)

    def value(self, name, **labels):
        self.metrics.refresh()
        return self.metrics.registry.get_sample_value(f"homing_{name}", labels)

    def answer(self, number, seconds):
        """The first token and the end of a placed request, so long after it was placed."""
        router = self.routers["m"]
        router.first_token(str(number), number + seconds)
        router.finished(str(number), number + seconds, reported_cached_tokens=0, output_tokens=1)

    def place(self, number, blocks=4):
        chain = [bytes([number, block]) * 8 for block in range(blocks)]
        prompt = Prompt(tokens=blocks * 64, block_tokens=64, exact_blocks=chain, key_blocks=chain)
        self.routers["m"].place(prompt, self.fleet.view("m"), float(number), request_id=str(number))


def test_workers_show_as_they_are():
    """Up and down, in flight, and their own figures."""
    scrapes = Scrapes("w1", "w2")
    figures = WorkerFigures(running=3.0, waiting=2.0, kv_cache_usage_ratio=0.5)
    scrapes.fleet.probed("w1", build_healthy(figures=figures), now=1.0)
    scrapes.fleet.report(scrapes.fleet.worker("w2"), Outcome.REFUSED)
    assert [scrapes.value("backend_up", backend=name) for name in ("w1", "w2")] == [1.0, 0.0]
    assert scrapes.value("backend_requests_running", backend="w1") == 3.0
    assert scrapes.value("backend_requests_waiting", backend="w1") == 2.0
    assert scrapes.value("backend_kv_cache_usage_ratio", backend="w1") == 0.5
    assert scrapes.value("backend_in_flight", backend="w1") == 0.0


def test_what_is_unknown_has_no_series():
    """E-02: no 0 and no NaN where there were no prompts; a series that loses its ground ends."""
    scrapes = Scrapes("w1")
    assert scrapes.value("backend_prefix_cache_hit_ratio", backend="w1") is None
    for now, queries, hits in ((1.0, 0.0, 0.0), (2.0, 100.0, 30.0)):
        figures = WorkerFigures(start_seconds=1.0, cache_queries=queries, cache_hits=hits)
        scrapes.fleet.probed("w1", build_healthy(figures=figures), now=now)
    assert scrapes.value("backend_prefix_cache_hit_ratio", backend="w1") == 0.3
    scrapes.fleet.probed("w1", build_healthy(figures=WorkerFigures(start_seconds=2.0)), now=3.0)
    assert scrapes.value("backend_prefix_cache_hit_ratio", backend="w1") is None
    assert b"NaN" not in generate_latest(scrapes.metrics.registry)


def test_a_worker_that_left_leaves_no_series():
    """Yesterday's pods do not stay on the dashboard."""
    scrapes = Scrapes("w1", "w2")
    assert scrapes.value("backend_up", backend="w1") == 1.0
    scrapes.fleet.remove("w1")
    assert scrapes.value("backend_up", backend="w1") is None
    assert scrapes.value("backend_up", backend="w2") == 1.0


def test_a_worker_that_joins_later_has_its_own_name():
    """Discovery goes on while the gateway runs."""
    scrapes = Scrapes("w1")
    scrapes.fleet.add(build_backend("w9"))
    assert scrapes.value("backend_up", backend="w9") == 0.0
    assert scrapes.value("backend_up", backend="other") is None


def test_ejections_are_counted_by_reason():
    """Once for each time, not for each probe that finds it still down."""
    scrapes = Scrapes("w1")
    scrapes.fleet.report(scrapes.fleet.worker("w1"), Outcome.REFUSED)
    for now in (1.0, 2.0):
        scrapes.fleet.probed("w1", ProbeResult(trouble="no connection", refused=True), now=now)
    assert scrapes.value("backend_ejections_total", reason="refused") == 1.0
    scrapes.fleet.probed("w1", build_healthy(), now=3.0)
    scrapes.fleet.probed("w1", ProbeResult(trouble="answers 503 to /health"), now=4.0)
    assert scrapes.value("backend_ejections_total", reason="probe") == 1.0


def test_models_that_workers_list_become_known():
    """An adapter is no `other`; what is not configured stays one."""
    scrapes = Scrapes("w1")
    cards = (*build_cards("m", lora_a="m"), *build_cards("private"))
    scrapes.fleet.probed("w1", ProbeResult(cards=cards), now=1.0)
    for model in ("lora-a", "private"):
        scrapes.metrics.requests_in_flight.labels(model).set(1)
    assert scrapes.value("requests_in_flight", model="lora-a") == 1.0
    assert scrapes.value("requests_in_flight", model="private") is None


def test_the_directory_is_read_from_the_routers():
    """Blocks believed, evictions counted up and never down, also when a worker is forgotten."""
    scrapes = Scrapes("w1")
    figures = WorkerFigures(block_tokens=64, cache_blocks=8)
    scrapes.fleet.probed("w1", build_healthy(figures=figures), now=0.0)
    for number in range(5):
        scrapes.place(number)
    assert scrapes.value("directory_blocks", model="m") == 8.0
    evicted = scrapes.value("directory_evictions_total", model="m")
    assert evicted == 12.0
    scrapes.routers["m"].forget("w1")
    assert scrapes.value("directory_blocks", model="m") == 0.0
    for number in range(5, 8):
        scrapes.place(number)
    assert scrapes.value("directory_evictions_total", model="m") >= evicted


def test_what_is_learned_of_a_worker_is_read_from_the_routers():
    """Rate and fixed cost start as configured; so many answers later they are the worker's own."""
    scrapes = Scrapes("w1")
    scrapes.fleet.probed("w1", build_healthy(figures=WorkerFigures(block_tokens=64, cache_blocks=800)), now=0.0)
    scrapes.place(0)
    place = {"model": "m", "backend": "w1"}
    assert scrapes.value("backend_prefill_tokens_per_second", **place) == 8000.0
    assert scrapes.value("backend_prefill_fixed_seconds", **place) == 0.02
    assert scrapes.value("backend_prefill_observations", **place) == 0.0
    assert scrapes.value("backend_directory_bound_blocks", **place) == 800.0
    scrapes.answer(0, 0.2)
    for number in range(1, 48):
        blocks = 4 + number
        scrapes.place(number, blocks)
        scrapes.answer(number, 0.1 + blocks * 64 / 2000)
    assert scrapes.value("backend_prefill_observations", **place) == 48.0
    assert abs(scrapes.value("backend_prefill_tokens_per_second", **place) - 2000) < 40
    assert abs(scrapes.value("backend_prefill_fixed_seconds", **place) - 0.1) < 0.01
    scrapes.fleet.remove("w1")
    scrapes.routers["m"].forget("w1")
    assert scrapes.value("backend_prefill_tokens_per_second", **place) is None


def test_price_and_utilisation_fall_when_traffic_stops():
    """They are of the moment of the scrape, not of the last request."""
    scrapes = Scrapes("w1")
    scrapes.fleet.probed("w1", build_healthy(), now=0.0)
    for number in range(30):
        scrapes.place(number, 100)
    scrapes.now = 30.0
    busy = scrapes.value("prefill_utilisation_ratio", model="m")
    assert busy > 0.2
    assert abs(scrapes.value("placement_price_ratio", model="m") - 1 / (1 - busy)) < 1e-9
    assert scrapes.value("placements_home_ratio", model="m") == 1.0
    assert scrapes.value("prefixes_with_several_homes", model="m") == 0.0
    scrapes.now = 600.0
    assert scrapes.value("prefill_utilisation_ratio", model="m") < 0.01


def test_a_prompt_too_hot_for_one_worker_shows():
    """The same prompt two thousand times in ten seconds: it has more than one home."""
    scrapes = Scrapes("w1", "w2")
    for name in ("w1", "w2"):
        scrapes.fleet.probed(name, build_healthy(), now=0.0)
    chain = [bytes([block]) * 16 for block in range(40)]
    prompt = Prompt(tokens=40 * 64, block_tokens=64, exact_blocks=chain, key_blocks=chain)
    for number in range(2000):
        scrapes.routers["m"].place(prompt, scrapes.fleet.view("m"), number / 200, request_id=str(number))
    scrapes.now = 10.0
    assert scrapes.value("prefixes_with_several_homes", model="m") == 1.0
