"""The figures of a replay as JSON and as a table."""

from __future__ import annotations

import json

from gateway.replay.report import COLUMNS, aligned, table, told_policies
from tests.gateway.replay.replay_builders import build_result


def test_json_has_each_policys_figures_under_their_names():
    """What other programs read."""
    told = told_policies({"homing": build_result(1.2, 0.3)})["homing"]
    assert json.loads(json.dumps(told)) == {
        "token_hit_rate": 0.3,
        "ttft_s": {"mean": 1.2, "p50": 0.6, "p90": 2.4, "p99": 4.8},
        "total_s": {"mean": 4.2},
        "busy_max_over_mean": 1.1,
        "requests_max_over_mean": 1.2,
        "slo_share": 0.9,
        "requests_per_second": 5.0,
    }


def test_distances_are_told_where_those_who_know_all_ran():
    """Over the oracle's and the ideal's time, and the ideal's hit rate that is reached."""
    told = told_policies(
        {"homing": build_result(1.5, 0.3), "oracle": build_result(1.0), "ideal": build_result(0.5, 0.6)}
    )
    assert (told["homing"]["ttft_over_oracle"], told["homing"]["ttft_over_ideal"]) == (1.5, 3.0)
    assert told["homing"]["hit_rate_over_ideal"] == 0.5
    assert told["oracle"]["ttft_over_oracle"] == 1.0


def test_a_distance_to_nothing_is_left_out():
    """A trace that hits nothing, prompts that take no time."""
    told = told_policies({"homing": build_result(1.0), "oracle": build_result(0.0), "ideal": build_result(0.0, 0.0)})
    assert not {"ttft_over_oracle", "ttft_over_ideal", "hit_rate_over_ideal"} & set(told["homing"])


def test_the_table_shows_what_there_is():
    """A line for each policy; columns without anything in them are left out; a recording's line has gaps."""
    told = told_policies({"homing": build_result(1.2345), "least_loaded": build_result(12.0)})
    head, first, second, third = table({**told, "as recorded": {"token_hit_rate": 0.25}}).splitlines()
    assert "x oracle" not in head
    assert "TTFT mean" in head
    assert first.split()[:4] == ["homing", "50.0%", "1.234", "s"]
    assert second.startswith("least_loaded")
    assert third == "as recorded      25.0%"
    assert len({len(line) for line in (head, first, second)}) == 1


def test_every_column_is_filled_when_all_ran():
    """No column looks for a figure that is not there."""
    told = told_policies({"homing": build_result(), "oracle": build_result(), "ideal": build_result()})
    assert all(column.head in table(told) for column in COLUMNS)


def test_lines_are_aligned():
    """Names to the left, figures to the right."""
    assert aligned([("", "one"), ("longer", "2"), ("x", "")]) == ["        one", "longer    2", "x"]
