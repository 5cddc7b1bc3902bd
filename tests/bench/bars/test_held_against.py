"""Bars 1 … 5 and 7: what is held against what, and how a miss looks."""

from bench.bars.cells import Workload
from bench.bars.held_against import checks
from tests.bench.bars.builders import build_chat, build_figures, build_results


def missed(results) -> set[tuple[int, str]]:
    return {(check.bar, check.what) for check in checks(results) if not check.met}


def test_a_policy_like_the_oracle_misses_nothing():
    """1.00 s beside an oracle of 1.00 s and an ideal of 0.90 s."""
    assert missed(build_chat(1.0)) == set()


def test_slower_than_the_oracle_by_more_than_3_percent_is_a_miss():
    """And by 2 % is none."""
    assert (1, "TTFT s") not in missed(build_chat(1.02))
    assert (1, "TTFT s") in missed(build_chat(1.04))


def test_the_hit_rate_is_held_against_one_shared_cache():
    """0.92 of 0.5 are 0.46."""
    assert (2, "hit rate") not in missed(build_chat(1.0, hit=0.461))
    assert (2, "hit rate") in missed(build_chat(1.0, hit=0.459))


def test_a_better_peer_is_a_miss_and_is_named():
    """1.30 s beside llm-d's 1.20 s."""
    (check,) = [check for check in checks(build_chat(1.3)) if check.bar == 3 and check.what == "TTFT s"]
    assert not check.met
    assert check.best_peer == "llmd_sticky 1.200"
    assert "MISSED" in check.line()


def test_least_requests_must_be_four_times_slower():
    """5 s beside 1.26 s is not enough."""
    assert (3, "times better") in missed(build_chat(1.26))
    assert (3, "times better") not in missed(build_chat(1.24))


def test_uneven_work_is_a_miss():
    """1.1 of the mean on the conversation."""
    assert (7, "busy max/mean") in missed(build_chat(1.0, busy=1.11))


def test_agents_are_held_against_the_best_peer_without_any_margin_and_against_sticky():
    """At 5,000 blocks 1.4 times better than sticky."""
    workload = Workload("agents", 5_000, 1.5)
    figures = {name: build_figures(1.0) for name in ("homing", "oracle", "ideal")}
    figures["least_requests"] = build_figures(100.0)
    good = build_results(figures | {"llmd_sticky": build_figures(1.5), "ray": build_figures(1.01)}, workload)
    assert missed(good) == set()
    bad = build_results(figures | {"llmd_sticky": build_figures(1.3), "ray": build_figures(0.99)}, workload)
    assert missed(bad) == {(4, "TTFT s"), (4, "times better")}


def test_ragpulse_is_held_against_least_requests():
    """Within 2 %."""
    workload = Workload("ragpulse", 4_000, 0.9)
    for seconds, verdict in ((1.01, set()), (1.03, {(5, "TTFT s")})):
        found = {"homing": build_figures(seconds), "least_requests": build_figures(1.0)}
        assert missed(build_results(found, workload)) == verdict


def test_past_full_load_neither_the_oracle_nor_the_peers_are_bars():
    """At 1.1 the ideal is, at 1.30."""
    workload = Workload("conversation", 4_000, 1.1)
    found = {"homing": 1.15, "oracle": 1.0, "ideal": 0.9, "least_requests": 60.0, "llmd_sticky": 1.0}
    results = build_results({name: build_figures(seconds) for name, seconds in found.items()}, workload)
    assert {check.bar for check in checks(results)} == {2, 7}
    assert missed(results) == set()
