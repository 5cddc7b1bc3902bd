"""From the workers of one configuration to those of the next, in a fleet that hands have changed too."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.applying import Moves, label_values, plan_moves
from gateway.discovery.static import static_backends
from gateway.settings import Config
from gateway.worker_state import Backend
from tests.gateway.builders import build_backend, build_config_data

KEYS = {"env:K": "secret", "env:L": "other"}


def build_config(*static: Any, **models: Any) -> Config:
    """The model `m` on these workers, given as ports or mappings."""
    entries = [
        {"url": f"http://127.0.0.1:{each}", "name": f"w{each}"} if isinstance(each, int) else each for each in static
    ]
    return msgspec.convert(build_config_data(models={"m": {"backends": {"static": entries}}, **models}), Config)


def entry(port: int, **more: Any) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{port}", "name": f"w{port}", **more}


def fleet_of(config: Config, *by_hand: Backend, without: str = "") -> dict[str, Backend]:
    backends = (*static_backends(config.models, KEYS), *by_hand)
    return {each.name: each for each in backends if each.name != without}


def moves(before: Config, after: Config, there: dict[str, Backend] | None = None, keys: dict | None = None) -> Moves:
    wanted = static_backends(after.models, keys or KEYS)
    return plan_moves(before, after, wanted, fleet_of(before) if there is None else there)


def names(planned: Moves) -> tuple[list[str], list[str], list[str]]:
    return (
        sorted(planned.leave),
        sorted(each.name for each in planned.join),
        sorted(each.name for each in planned.revise),
    )


def test_the_same_workers_do_not_move():
    """Whatever else has changed."""
    assert names(moves(build_config(1, 2), build_config(2, 1))) == ([], [], [])


def test_workers_come_and_go():
    """Those that are in both stay."""
    assert names(moves(build_config(1, 2), build_config(2, 3))) == (["w1"], ["w3"], [])


@pytest.mark.parametrize("more", [{"weight": 3}, {"max_in_flight": 7}, {"api_key": "env:K"}])
def test_numbers_and_keys_change_in_place(more):
    """Its cache is as warm as before."""
    planned = moves(build_config(1, 2), build_config(entry(1, **more), 2))
    assert names(planned) == ([], [], ["w1"])


def test_a_key_behind_the_same_reference_changes_in_place():
    """A Secret that was rotated."""
    config = build_config(entry(1, api_key="env:K"))
    assert names(moves(config, config, keys={"env:K": "rotated"})) == ([], [], ["w1"])


def test_a_worker_that_moves_leaves_and_joins():
    """Another address, or other models: what was known of it holds no more."""
    moved = build_config(entry(1) | {"url": "http://127.0.0.1:9"})
    assert names(moves(build_config(1), moved)) == (["w1"], ["w1"], [])
    other = build_config(2, n={"backends": {"static": [entry(1)]}})
    assert names(moves(build_config(1, 2), other)) == (["w1"], ["w1"], [])


def test_two_workers_may_change_places():
    """The address of each is free when the other joins."""
    crossed = build_config(entry(1) | {"name": "w2"}, entry(2) | {"name": "w1"})
    assert names(moves(build_config(1, 2), crossed)) == (["w1", "w2"], ["w1", "w2"], [])


def test_what_hands_have_done_stays():
    """Added by hand: not touched. Removed by hand: not put back, until its entry changes."""
    before, mine = build_config(1, 2), build_backend("mine", port=9)
    there = fleet_of(before, mine, without="w1")
    assert names(moves(before, build_config(1, 2, 3), there)) == ([], ["w3"], [])
    assert names(moves(before, build_config(entry(1, weight=2), 2), there)) == ([], ["w1"], [])
    assert names(moves(before, build_config(2), there)) == ([], [], [])


def test_a_worker_added_by_hand_may_be_written_down():
    """As it is: then the configuration owns it. Otherwise its name and its address are taken."""
    before, mine = build_config(1), build_backend("w9", port=9)
    there = fleet_of(before, mine)
    assert names(moves(before, build_config(1, 9), there)) == ([], [], [])
    for taken in (entry(9, weight=2), entry(8) | {"name": "w9"}, entry(9) | {"name": "w8"}):
        with pytest.raises(ValueError, match="added by hand"):
            moves(before, build_config(1, taken), there)


def test_labels_are_tenants_models_and_adapters():
    """Not the name that stands for any model."""
    static = {"backends": {"static": ["http://h:1"]}}
    data = build_config_data(models={"*": static, "m": {**static, "adapters": ["lora"]}})
    told = label_values(msgspec.convert(data, Config))
    assert (set(told["tenants"]), set(told["models"])) == ({"acme"}, {"m", "lora"})
