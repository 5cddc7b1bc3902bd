"""Which test stands for which recorded case of routing, load and replicas; every entry must exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES_FILE = "tests/router/test_placement_cases.py::"
STORIES = "tests/router/test_placement_stories.py::"
RING = "tests/router/test_ring.py::"
ROUTER = "tests/router/test_router.py::"
FAULTS = "tests/gateway/test_faults.py::"
FLEET = "tests/gateway/test_fleet.py::"

CASES: dict[str, tuple[str, ...]] = {
    "B-01": (
        CASES_FILE + "test_b01_a_bound_below_one_does_not_send_everything_home",
        CASES_FILE + "test_b01_when_all_are_over_the_bound_the_least_loaded_gets_it",
    ),
    "B-02": (CASES_FILE + "test_b02_an_empty_cache_does_not_attract_misses_to_a_busy_worker",),
    "B-04": (
        STORIES + "test_b04_every_request_counts_whatever_its_prompt",
        FLEET + "test_a_lease_counts_while_it_is_held",
        "tests/gateway/test_proxy.py::test_every_shape_of_prompt_reaches_the_worker",
    ),
    "B-05": (
        STORIES + "test_b05_a_thousand_clients_that_leave_leave_nothing_behind",
        FAULTS + "test_many_clients_that_leave_leave_nothing_behind",
        FLEET + "test_no_order_of_events_leaks_a_lease",
    ),
    "B-08": (
        CASES_FILE + "test_b08_a_late_end_never_makes_a_worker_look_emptier_than_empty",
        CASES_FILE + "test_b08_ties_do_not_depend_on_the_order_of_the_list",
    ),
    "B-09": (
        CASES_FILE + "test_b09_a_session_on_an_idle_fleet_stays_on_one_worker",
        CASES_FILE + "test_b09_distinct_keys_on_an_idle_fleet_are_spread",
        "tests/router/test_heat.py::test_one_conversation_on_a_quiet_fleet_keeps_its_key_at_every_turn",
    ),
    "B-10": (CASES_FILE + "test_b10_a_tiny_match_does_not_outweigh_load",),
    "B-11": (CASES_FILE + "test_b11_users_of_one_agent_are_spread_and_come_back_to_their_worker",),
    "B-13": (
        CASES_FILE + "test_b13_overflow_walks_on_in_a_fixed_order",
        CASES_FILE + "test_b13_a_hot_prefix_uses_as_many_workers_as_it_needs_and_no_more",
        "tests/router/test_homes.py::test_a_prompt_asked_for_all_the_time_gets_more_homes_on_the_ring",
        "tests/router/test_homes.py::test_two_routers_that_saw_the_same_choose_the_same_homes",
    ),
    "B-14": (
        STORIES + "test_b14_a_worker_that_cannot_hold_its_sessions_gives_some_away_for_good",
        "tests/router/test_crowding.py::test_a_crowded_home_keeps_what_it_holds_and_gives_away_what_is_new_to_it",
        "tests/router/test_belief.py::test_a_cache_smaller_than_told_is_learned",
    ),
    "B-16": (RING + "test_two_workers_on_one_point_survive_each_other", RING + "test_an_empty_ring_has_no_home"),
    "B-18": (
        RING + "test_a_light_worker_still_gets_its_keys",
        RING + "test_a_worker_of_weight_zero_is_nobodys_home",
    ),
    "B-21": ("tests/gateway/test_proxy.py::test_a_workers_refusal_reaches_the_client_as_it_is",),
    "B-23": (
        CASES_FILE + "test_b23_requests_that_cannot_be_tokenised_are_spread",
        ROUTER + "test_a_prompt_that_could_not_be_read_has_no_fixed_home",
    ),
    "B-24": (
        CASES_FILE + "test_b24_pins_are_scoped_by_tenant",
        "tests/router/test_policy.py::test_session_pins_to_the_tenants_session",
    ),
    "B-26": (
        CASES_FILE + "test_b26_the_same_hint_with_other_heads_goes_to_one_worker",
        "tests/router/test_policy.py::test_session_without_a_session_uses_the_prompts_key",
    ),
    "B-27": (STORIES + "test_b27_the_policy_says_what_wins_over_what",),
    "G-08": (
        CASES_FILE + "test_g08_replicas_that_never_talked_agree_on_every_home",
        RING + "test_replicas_agree_whatever_their_hash_seed_and_order",
    ),
    "G-10": (
        STORIES + "test_g10_bounds_of_replicas_that_share_nothing_add_up_to_one_bound_and_three_floors",
        STORIES + "test_g10_replicas_alone_spread_a_hot_key_over_the_same_workers",
    ),
    "G-18": (
        STORIES + "test_a_restarted_worker_is_believed_empty_at_once_and_keeps_its_keys",
        STORIES + "test_a_worker_that_restarts_unheard_is_found_out_by_its_answers",
        FLEET + "test_a_restart_is_heard",
    ),
}
"""By the number of the case in the collection that the project was planned with."""


@cache
def names_in(path: Path) -> frozenset[str]:
    """Names of the test functions in a file."""
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_tests_that_exist(case: str) -> None:
    """Renaming a test without its entry here fails."""
    assert CASES[case]
    for entry in CASES[case]:
        file, _, name = entry.partition("::")
        assert name in names_in(ROOT / file), entry
