"""Heat: the prefixes that too many requests share are passed over when a home is looked for."""

from __future__ import annotations

import random

from router.heat import Heat
from tests.router.placement_builders import build_chain

SHARE = 1 / 16


def test_before_anything_is_known_the_first_block_is_the_key() -> None:
    """A new router looks prompts up by their first block."""
    chain = build_chain(("system", 4), ("user", 4))
    assert Heat().adaptive_key(chain, SHARE) == chain[0]


def test_a_prefix_that_everybody_shares_is_passed_over() -> None:
    """With one system prompt for all, the key is the first block after it: each conversation has its own."""
    heat = Heat()
    for user in range(100):
        heat.count(build_chain(("system", 40), (f"user-{user}", 10)), SHARE)
    chain = build_chain(("system", 40), ("newcomer", 10))
    assert heat.adaptive_key(chain, SHARE) == chain[40]
    known = build_chain(("system", 40), ("user-99", 10), ("next turn", 5))
    assert heat.adaptive_key(known, SHARE) == known[40]


def test_rare_prefixes_keep_their_first_block_as_key() -> None:
    """Forty tenants with a system prompt each: none has a sixteenth of the requests, each has one home."""
    heat, chance = Heat(), random.Random(1)
    for number in range(4000):
        heat.count(build_chain((f"tenant-{chance.randrange(40)}", 10), (f"user-{number}", 5)), SHARE)
    chain = build_chain(("tenant-7", 10), ("somebody", 5))
    assert heat.adaptive_key(chain, SHARE) == chain[0]
    heat.check_integrity()


def test_a_prompt_asked_for_again_and_again_keeps_its_key() -> None:
    """Passing it over would spread nobody, and would move it from the worker that holds it."""
    heat, chain, keys = Heat(), build_chain(("same", 6)), set()
    for _ in range(50):
        heat.count(chain, SHARE)
        keys |= {heat.adaptive_key(chain, SHARE), heat.adaptive_key(chain[:3], SHARE)}
    assert keys == {chain[0]}


def test_a_prompt_that_is_asked_for_and_gone_on_from_has_a_key_of_its_own() -> None:
    """Half ask for the prompt as it is, half go on from it: the two are spread."""
    heat, chain = Heat(), build_chain(("same", 6))
    for number in range(100):
        heat.count(chain if number % 2 else [*chain, *build_chain(("more", 2))], SHARE)
    assert heat.adaptive_key(chain, SHARE) == chain[-1]
    assert heat.adaptive_key([*chain, *build_chain(("more", 2))], SHARE) == build_chain(("more", 2))[0]


def test_shares_follow_the_requests() -> None:
    """A prefix of every fourth request has a share of a quarter, at every depth."""
    heat = Heat()
    for number in range(4000):
        heat.count(build_chain((f"group-{number % 4}", 8), (f"user-{number}", 2)), SHARE)
    for depth in (1, 4, 8):
        assert abs(heat.share(build_chain(("group-1", 8))[:depth]) - 0.25) < 0.01
    assert heat.share(build_chain(("unknown", 2))) == 0.0
    assert heat.share([]) == 0.0


def test_yesterdays_hot_prefix_cools_down() -> None:
    """After a few half-lives of other traffic the old system prompt is rare again."""
    heat = Heat(half_life_requests=100)
    for number in range(300):
        heat.count(build_chain(("old", 8), (f"user-{number}", 2)), SHARE)
    chain = build_chain(("old", 8), ("again", 2))
    assert heat.adaptive_key(chain, SHARE) == chain[8]
    for number in range(700):
        heat.count(build_chain((f"new-{number}", 4)), SHARE)
    assert heat.adaptive_key(chain, SHARE) == chain[0]


def test_counting_for_ever_loses_no_precision() -> None:
    """Steps grow without end and are scaled down in time: shares stay right over a million half-lives' worth."""
    heat = Heat(half_life_requests=1)
    for number in range(3000):
        heat.count(build_chain((f"group-{number % 2}", 2)), SHARE)
    assert heat.share(build_chain(("group-1", 2))) == heat.share(build_chain(("group-0", 2))) * 2
    heat.check_integrity()


def test_memory_is_bounded_and_hot_prefixes_outlive_the_cold() -> None:
    """A flood of one-off prompts pushes out one-off prompts."""
    heat = Heat(bound_blocks=400)
    for number in range(2000):
        hot = build_chain(("hot", 20), (f"own-{number}", 1))
        heat.count(build_chain((f"flood-{number}", 30)) if number % 4 else hot, SHARE)
        assert len(heat) <= 400
    chain = build_chain(("hot", 20), ("more", 5))
    assert heat.adaptive_key(chain, SHARE) == chain[20]
    heat.check_integrity()


def test_looking_changes_nothing() -> None:
    """`explain` may look as often as it likes."""
    heat, chain = Heat(), build_chain(("system", 3), ("user", 3))
    heat.count(chain, SHARE)
    before = (len(heat), heat.share(chain))
    for _ in range(10):
        heat.adaptive_key(build_chain(("system", 3), ("other", 9)), SHARE)
    assert (len(heat), heat.share(chain)) == before


def test_a_system_prompt_of_a_few_conversations_is_passed_over_before_it_is_counted_often() -> None:
    """The fourth conversation of a young router has a home of its own, and keeps it at its next turn."""
    heat = Heat()
    for user in range(3):
        heat.count(build_chain(("system", 10), (f"user-{user}", 4)), SHARE)
    first = build_chain(("system", 10), ("user-3", 4))
    assert heat.adaptive_key(first, SHARE) == first[10]
    heat.count(first, SHARE)
    assert heat.adaptive_key(build_chain(("system", 10), ("user-3", 9)), SHARE) == first[10]


def test_one_conversation_on_a_quiet_fleet_keeps_its_key_at_every_turn() -> None:
    """Case B-09: each turn ends in a partial block that the next turn replaces; that is not a branch."""
    heat, text = Heat(), build_chain(("conversation", 1000))
    keys = set()
    for turn in range(1, 250):
        chain = [*text[: turn * 4], *build_chain((f"tail of turn {turn}", 1))]
        keys.add(heat.adaptive_key(chain, SHARE))
        heat.count(chain, SHARE)
    assert keys == {text[0]}
    heat.check_integrity()


def test_short_turns_of_one_conversation_seldom_change_its_key() -> None:
    """Several turns end within one block; only while next to nothing is known do they look like a fork."""
    heat, text = Heat(), build_chain(("conversation", 200))
    keys = []
    for turn in range(1, 300):
        chain = [*text[: 5 + turn // 2], *build_chain((f"tail of turn {turn}", 1))]
        keys.append(heat.adaptive_key(chain, SHARE))
        heat.count(chain, SHARE)
    assert len(set(keys)) <= 8
    assert len(set(keys[30:])) == 1


def test_two_halves_of_the_traffic_behind_one_prefix_get_keys_of_their_own() -> None:
    """Two conversations behind one preamble, and nothing else: neither is the main line."""
    heat = Heat()

    def turn(tenant: str, number: int) -> list[bytes]:
        return build_chain(("preamble", 2), (tenant, 4 * number), (f"tail of turn {number}", 1))

    for number in range(1, 60):
        for tenant in ("one", "other"):
            heat.count(turn(tenant, number), SHARE)
    for tenant in ("one", "other"):
        assert heat.adaptive_key(turn(tenant, 60), SHARE) == turn(tenant, 60)[2]
