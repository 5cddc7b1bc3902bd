"""Which test stands for which known trap of prefix caches and which recorded case; every entry must exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = "tests/backends/"
EVENTS = CORE + "events/"
TIERS = CORE + "tiers/"

TRAPS: dict[int, tuple[str, ...]] = {
    1: (
        CORE + "test_engine.py::test_the_same_salt_a_hundred_times_hits_almost_always",
        CORE + "test_prefix_cache.py::test_salts_and_adapters_separate_equal_prompts",
        "tests/gateway/test_tenants.py::test_a_tenants_salt_is_one_value",
    ),
    2: (
        CORE + "test_hashing.py::test_an_adapter_named_like_a_salt_shares_nothing_with_it",
        CORE + "test_engine.py::test_another_salt_or_adapter_hits_nothing",
    ),
    3: (
        CORE + "test_block_map.py::test_equal_tokens_after_another_beginning_are_no_hit",
        CORE + "test_prefix_cache.py::test_with_one_digest_for_all_no_foreign_block_is_found",
        CORE + "test_equality.py::test_two_thousand_prompts_under_an_8_bit_hash_get_no_foreign_block",
        CORE + "test_random_engine.py::test_a_hash_of_eight_bits_or_none_serves_no_foreign_block",
        CORE + "test_in_flight.py::test_equal_digests_alone_make_nobody_wait",
    ),
    4: (
        CORE + "test_hashing.py::test_the_hashes_are_frozen",
        CORE + "test_hashing.py::test_every_process_has_the_same_hashes",
        EVENTS + "test_worker_events.py::test_processes_name_the_same_blocks_alike",
    ),
    5: (
        CORE + "test_prefix_cache.py::test_the_last_token_is_never_a_hit",
        CORE + "test_prefix_cache.py::test_the_second_equal_prompt_hits_all_but_its_last_block",
        CORE + "test_fork.py::test_a_shared_full_block_is_copied_before_its_last_token_is_computed_again",
    ),
    6: (CORE + "test_prefix_cache.py::test_a_sequence_ended_in_mid_block_leaves_no_half_block",),
    7: (
        CORE + "test_prefix_cache.py::test_hits_are_held_before_new_blocks_are_taken",
        CORE + "test_prefix_cache.py::test_hits_that_nobody_holds_use_up_free_blocks",
    ),
    8: (
        CORE + "test_block_pool.py::test_the_tail_of_a_chain_is_evicted_before_its_head",
        CORE + "test_cache_machine.py::test_random_operations_break_nothing",
    ),
    9: (
        CORE + "test_prefix_cache.py::test_two_prefills_of_one_prompt_are_two_copies",
        CORE + "test_block_map.py::test_removing_one_copy_keeps_the_others",
        EVENTS + "test_following.py::test_a_copy_that_goes_is_not_told",
    ),
    10: (
        CORE + "test_block_pool.py::test_a_double_free_raises",
        CORE + "test_scheduler.py::test_a_sequence_may_end_at_any_moment",
        CORE + "test_fetching.py::test_an_abort_of_one_that_waits_for_a_tier_leaves_nothing_behind",
        CORE + "test_fork.py::test_an_abort_between_fork_and_copy_leaves_nothing_held",
    ),
    11: (
        CORE + "test_engine.py::test_a_preempted_answer_goes_on_where_it_was",
        CORE + "test_prefix_cache.py::test_a_repeated_admission_is_not_counted",
        CORE + "test_scheduler.py::test_the_oldest_running_sequence_always_gets_on",
        CORE + "test_engine_policies.py::test_a_request_over_its_partition_is_refused_with_both_numbers",
        CORE + "test_engine_policies.py"
        "::test_the_least_important_is_preempted_even_if_it_came_first_and_its_tokens_go_to_others",
    ),
    12: (
        CORE + "test_prefix_cache.py::test_nothing_is_found_before_it_was_computed",
        CORE + "test_engine.py::test_a_failed_step_loses_its_requests_and_nothing_else",
    ),
    13: (
        CORE + "test_fetching.py::test_a_block_on_its_way_is_no_hit_and_others_pass",
        CORE + "test_fetching.py::test_a_broken_payload_is_computed_instead",
        CORE + "test_fork.py::test_the_source_of_a_copy_is_held_until_it_is_copied_even_if_the_parent_ended",
        TIERS + "test_entry.py::test_any_flipped_bit_is_noticed",
        TIERS + "test_disk.py::test_a_file_of_a_foreign_config_is_a_miss",
    ),
    14: (
        CORE + "test_block_pool.py::test_a_reset_is_refused_while_a_block_is_held",
        CORE + "test_fetching.py::test_a_reset_reaches_the_tiers_only_when_asked",
        EVENTS + "test_following.py::test_a_reset_is_told_at_once",
    ),
    15: (
        EVENTS + "test_journal.py::test_the_order_of_a_step_is_kept",
        EVENTS + "test_following.py::test_messages_that_get_lost_are_repaired",
        EVENTS + "test_publisher.py::test_a_gap_that_is_too_old_is_noticed",
        EVENTS + "test_journal.py::test_a_slower_medium_has_events_of_its_own",
    ),
    16: (
        CORE + "test_prompt_ids.py::test_a_chat_brings_its_special_tokens_in_its_template",
        CORE + "test_prompt_ids.py::test_a_text_is_tokenised_behind_the_tokenisers_own_prefix",
    ),
    17: (
        CORE + "test_engine.py::test_sampling_parameters_never_enter_the_key",
        CORE + "test_prompt_work.py::test_prompt_logprobs_read_no_cache_and_do_not_count_as_a_miss",
    ),
    18: (CORE + "model/test_gguf_weights.py::test_unpermuting_undoes_the_converter",),
    19: (
        CORE + "test_same_tokens.py::test_the_same_tokens_whatever_the_batches",
        CORE + "test_shared_heads.py::test_the_same_answers_with_and_without_the_cache",
    ),
    20: (
        CORE + "test_engine.py::test_a_stop_string_across_tokens_ends_the_answer",
        CORE + "test_engine.py::test_a_character_of_several_tokens_is_never_shown_in_halves",
        CORE + "test_engine.py::test_an_end_token_ends_the_answer_unless_it_is_ignored",
    ),
}
"""The twenty correctness traps, by their numbers: 1 salts, 2 domain separation, 3 collisions, 4 seeds of hashes, 5 the
last token, 6 full blocks only, 7 touch before allocate, 8 order of eviction, 9 duplicates, 10 ends at any moment, 11
preemption, 12 sharing within a step, 13 tiers, 14 reset, 15 events, 16 tokenisation, 17 what is no part of the key, 18
GGUF, 19 rounding, 20 stop conditions."""

CASES: dict[str, tuple[str, ...]] = {
    "H-01": (CORE + "test_prefix_cache.py::test_only_whole_blocks_hit",),
    "H-03": (
        CORE + "test_engine.py::test_two_equal_prompts_in_one_step_share_nothing",
        CORE + "test_in_flight.py::test_two_equal_prompts_in_one_step_are_computed_once",
        CORE + "test_engine.py::test_an_abort_in_mid_prefill_leaves_what_was_computed_and_no_half_block",
    ),
    "H-04": (CORE + "test_prefix_cache.py::test_hits_are_held_before_new_blocks_are_taken",),
    "H-06": (
        CORE + "test_engine.py::test_another_salt_or_adapter_hits_nothing",
        CORE + "test_prefix_cache.py::test_salts_and_adapters_separate_equal_prompts",
    ),
    "H-08": (
        CORE + "test_hashing.py::test_every_process_has_the_same_hashes",
        EVENTS + "test_worker_events.py::test_processes_name_the_same_blocks_alike",
    ),
    "H-09": (
        CORE + "test_engine.py::test_a_reset_is_refused_during_an_answer",
        EVENTS + "test_worker_events.py::test_a_reset_reaches_the_consumer",
    ),
    "H-11": (EVENTS + "test_following.py::test_messages_that_get_lost_are_repaired",),
    "H-13": (EVENTS + "test_worker_events.py::test_a_consumer_follows_a_worker_through_a_kill_and_a_restart",),
    "H-18": (
        CORE + "test_request_checks.py::test_prompt_and_answer_may_fill_the_limit_exactly",
        CORE + "test_request_checks.py::test_one_token_too_many_is_refused_with_both_numbers",
        CORE + "test_engine_policies.py::test_a_request_over_its_partition_is_refused_with_both_numbers",
        CORE + "test_generate.py::test_prompt_and_answer_may_fill_the_model_to_the_last_token",
    ),
    "H-20": (
        CORE + "test_shared_heads.py::test_the_same_answers_with_and_without_the_cache",
        CORE + "test_equality.py::test_answers_depend_on_the_tokens_alone",
        CORE + "test_random_engine.py::test_random_calls_break_no_answer_and_no_invariant",
    ),
}
"""Cases of group H. H-15 and H-16 are about an index of events in a gateway, which this one has not."""


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of all test functions of a file."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions))


def missing(nodes: tuple[str, ...]) -> list[str]:
    """The nodes of an entry that do not exist."""
    split = [node.split("::") for node in nodes]
    return [f"{file}::{name}" for file, name in split if name not in names_in(ROOT / file)]


@pytest.mark.parametrize("trap", range(1, 21))
def test_every_trap_is_a_test(trap):
    """A test that was renamed or lost fails here, by name."""
    assert TRAPS[trap]
    assert missing(TRAPS[trap]) == []


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_a_test(case):
    """As the traps."""
    assert missing(CASES[case]) == []


def test_a_test_that_is_not_there_is_noticed():
    """The index is not only words."""
    assert missing((CORE + "test_traps.py::test_nothing",)) == [CORE + "test_traps.py::test_nothing"]
