"""The ring: homes are even, stable, the same everywhere, and move only with the worker that comes or goes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import router.ring
from router.ring import Ring, lay_out, ring_position

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden" / "ring.json"
NAMES = st.lists(st.text("abcxyz019-.", min_size=1, max_size=12), min_size=1, max_size=10, unique=True)


def build_ring(workers: int, weight: int = 1) -> Ring:
    return Ring({f"vllm-{number}": weight for number in range(workers)})


def build_keys(count: int) -> list[bytes]:
    return [f"key-{number}".encode() for number in range(count)]


def homes(ring: Ring, keys: list[bytes]) -> dict[bytes, str | None]:
    return {key: ring.home(key) for key in keys}


@given(NAMES, st.text("pq", min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_a_joining_worker_takes_keys_and_nothing_moves_between_the_others(names: list[str], joiner: str) -> None:
    """Every key whose home changes goes to the newcomer; when it leaves again, everything is as before."""
    keys, before = build_keys(1000), Ring(dict.fromkeys(names, 1))
    after = before.with_worker(joiner)
    moved = {key: home for key, home in homes(after, keys).items() if home != before.home(key)}
    assert set(moved.values()) <= {joiner}
    assert homes(after.without_worker(joiner), keys) == homes(before, keys)
    after.check_integrity()


@pytest.mark.parametrize("workers", [4, 8, 32])
def test_a_joining_worker_takes_about_its_share(workers: int) -> None:
    """At most 1/(N+1) and 2 points of all keys move."""
    keys, before = build_keys(20_000), build_ring(workers)
    after = before.with_worker("newcomer")
    moved = sum(after.home(key) != before.home(key) for key in keys)
    assert moved / len(keys) <= 1 / (workers + 1) + 0.02


@pytest.mark.parametrize("name", ["worker-{}", "vllm-{}", "w{}", "pod-{}", "10.0.0.{}:8000"])
@pytest.mark.parametrize("workers", [4, 8, 16, 32])
def test_no_worker_is_home_to_more_than_a_fifth_above_the_mean(workers: int, name: str) -> None:
    """With 256 points a worker the fullest has at most 1.2 times the mean share."""
    ring = Ring({name.format(number): 1 for number in range(workers)})
    counts = Counter(ring.home(key) for key in build_keys(50_000))
    assert len(counts) == workers
    assert max(counts.values()) <= 1.20 * 50_000 / workers


@given(NAMES, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_in_which_workers_are_named_does_not_matter(names: list[str], chance: random.Random) -> None:
    """Two replicas that learned of the workers in another order agree on every home and every walk."""
    shuffled = chance.sample(names, len(names))
    one, other = Ring(dict.fromkeys(names, 1)), Ring(dict.fromkeys(shuffled, 1))
    keys = build_keys(200)
    assert homes(one, keys) == homes(other, keys)
    assert [list(one.walk(key)) for key in keys[:20]] == [list(other.walk(key)) for key in keys[:20]]


def test_homes_are_the_ones_of_the_golden_file() -> None:
    """A change of the ring would send every prefix of every running fleet to another worker: it must be meant."""
    for case in json.loads(GOLDEN.read_text()):
        ring = Ring(case["weights"])
        assert {key: ring.home(key.encode()) for key in case["homes"]} == case["homes"]
        assert {key: list(ring.walk(key.encode())) for key in case["walks"]} == case["walks"]


def test_replicas_agree_whatever_their_hash_seed_and_order() -> None:
    """G-08: two processes with other PYTHONHASHSEEDs and worker orders name the same home for 10,000 keys."""
    program = (
        "import sys; from router.ring import Ring\n"
        "ring = Ring({name: 1 for name in sys.argv[1:]})\n"
        "print(' '.join(ring.home(b'key-%d' % n) for n in range(10_000)))"
    )
    names = [f"pod-{number}" for number in range(7)]

    def answers(seed: str, order: list[str]) -> str:
        command = [sys.executable, "-c", program, *order]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert answers("1", names) == answers("4711", names[::-1])


def test_a_walk_names_every_worker_once_and_the_home_first() -> None:
    """The order of inheritance is complete, and its second becomes home when the first leaves."""
    ring = build_ring(9)
    for key in build_keys(100):
        order = list(ring.walk(key))
        assert order[0] == ring.home(key)
        assert sorted(order) == sorted(ring.weights)
        assert ring.without_worker(order[0]).home(key) == order[1]


def test_an_empty_ring_has_no_home() -> None:
    """B-16: nobody there is an answer, not an exception."""
    assert Ring({}).home(b"key") is None
    assert list(Ring({}).walk(b"key")) == []
    assert Ring({"a": 0, "b": 0}).home(b"key") is None
    assert build_ring(1).without_worker("vllm-0").home(b"key") is None


def test_two_workers_on_one_point_survive_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-16: when all points of two workers collide, one owns them; remove it and the other does; then nobody."""
    monkeypatch.setattr(router.ring, "ring_position", lambda text: ring_position(text.rsplit("-", 1)[1]))
    both = Ring({"a": 1, "b": 1})
    both.check_integrity()
    assert both.home(b"key") == "b"
    assert list(both.walk(b"key")) == ["b", "a"], "who has lost all its points still inherits"
    assert both.without_worker("b").home(b"key") == "a"
    assert both.without_worker("a").home(b"key") == "b"
    assert both.without_worker("a").without_worker("b").home(b"key") is None


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_of_two_on_one_point_the_greater_name_owns_it(names: tuple[str, str]) -> None:
    """In whatever order they came: replicas agree."""
    assert Ring(dict.fromkeys(names, 1), laid_out=lambda *_: [7]).home(b"key") == "b"


def test_a_light_worker_still_gets_its_keys() -> None:
    """B-18: weights 200, 200 and 1 leave the third between 0.05 % and 2 % of the keys."""
    ring = Ring({"heavy-1": 200, "heavy-2": 200, "light": 1}, points=40)
    share = Counter(ring.home(key) for key in build_keys(40_000))["light"] / 40_000
    assert 0.0005 <= share <= 0.02


def test_a_worker_of_weight_zero_is_nobodys_home() -> None:
    """B-18: drained by weight: no new keys, and the others' keys stay where they are."""
    full, drained = Ring({"a": 1, "b": 1, "c": 1}), Ring({"a": 1, "b": 1, "c": 0})
    for key in build_keys(2000):
        assert drained.home(key) != "c"
        assert drained.home(key) == full.home(key) or full.home(key) == "c"
    assert "c" in drained.weights
    assert len(drained) == 2


def test_weights_multiply_the_share_of_keys() -> None:
    """A worker of weight 3 beside one of weight 1 is home to about three quarters."""
    ring = Ring({"big": 3, "small": 1})
    counts = Counter(ring.home(key) for key in build_keys(20_000))
    assert 0.70 <= counts["big"] / 20_000 <= 0.80


@pytest.mark.parametrize("weight", [-1, 1.5, "2"])
def test_a_weight_that_is_no_whole_number_is_refused_by_name(weight: object) -> None:
    """The message names the worker and the fix."""
    with pytest.raises(ValueError, match=r"'w-1'.*whole number"):
        Ring({"w-1": weight})


def test_names_of_any_script_have_a_place() -> None:
    """Worker names come from configuration: letters of any script, even broken ones, hash."""
    assert Ring({"работник": 1, "\udce9": 1}).home(b"key") in {"работник", "\udce9"}


def test_points_that_were_laid_out_before_make_the_same_ring() -> None:
    """A ring put together from kept points is the ring that would be computed, weights and ties included."""
    weights = {"a": 1, "b": 3, "vllm-0": 1, "gone": 0}
    kept = {(name, weight): lay_out(name, weight) for name, weight in weights.items() if weight}
    keys = build_keys(500)
    assert homes(Ring(weights, laid_out=lambda name, weight, _: kept[name, weight]), keys) == homes(Ring(weights), keys)
