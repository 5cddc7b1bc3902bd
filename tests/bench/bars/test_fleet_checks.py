"""Bars 6 and 8: replicas, a newcomer, and engine B."""

from bench.bars.cells import Workload
from bench.bars.fleet_checks import checks
from tests.bench.bars.builders import build_figures, build_results

ENGINE_B = Workload("conversation", 4_000, 0.9, "B")
HOT_HEAD = Workload("hot_head", 4_000, 1.0, "B")
NEWCOMER = {"to_newcomer_share": 0.1, "moved_share": 0.3, "moved_share_alone": 0.3, "recovery_seconds": 60.0}


def missed(results) -> list[str]:
    return [check.bound_is for check in checks(results) if not check.met]


def test_four_replicas_may_cost_8_percent():
    """Not 9."""
    one = {"homing": build_figures(1.0)}
    assert not missed(build_results(one, four=build_figures(1.07)))
    assert missed(build_results(one, four=build_figures(1.09))) == ["1.08 × one 1.000"]


def test_a_newcomer_may_take_a_ninth_and_five_points():
    """And the hit rate must be back after two minutes."""
    one = {"homing": build_figures(1.0)}
    assert not missed(build_results(one, ninth=NEWCOMER))
    assert len(missed(build_results(one, ninth=NEWCOMER | {"to_newcomer_share": 0.17}))) == 1
    assert len(missed(build_results(one, ninth=NEWCOMER | {"moved_share": 0.5}))) == 1
    assert len(missed(build_results(one, ninth=NEWCOMER | {"recovery_seconds": 130.0}))) == 1


def test_answers_end_sooner_than_least_requests_and_sticky_and_not_later_than_near_peers():
    """A peer that is slow to the first token may end sooner: it is not near."""
    found = {
        "homing": build_figures(1.0, total_seconds=10.0),
        "oracle": build_figures(1.0, total_seconds=9.0),
        "least_requests": build_figures(4.0, total_seconds=20.0),
        "llmd_sticky": build_figures(1.1, total_seconds=11.0),
        "near": build_figures(1.4, total_seconds=9.8),
        "far": build_figures(1.6, total_seconds=5.0),
    }
    assert not missed(build_results(found, ENGINE_B))
    found["llmd_sticky"] = build_figures(1.1, total_seconds=10.4)
    found["near"] = build_figures(1.4, total_seconds=9.6)
    assert missed(build_results(found, ENGINE_B)) == ["0.95 × llmd_sticky 10.40", "1.03 × near 9.60"]


def test_behind_a_hot_head_answers_end_as_soon_as_with_least_requests():
    """Within 1 %."""
    for seconds, misses in ((10.05, 0), (10.2, 1)):
        found = {"homing": build_figures(0.1, total_seconds=seconds)}
        found["least_requests"] = build_figures(0.1, total_seconds=10.0)
        assert len(missed(build_results(found, HOT_HEAD))) == misses
