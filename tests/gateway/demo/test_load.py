"""The demonstration's load is the same every time, and is what the README says."""

from __future__ import annotations

import pytest

from gateway.demo import texts
from gateway.demo.load import BLOCK_TOKENS, TENANTS, conversations, distinct_blocks
from gateway.demo.setup import prepare
from router.tokenise import find_smollm2, load_tokeniser


def test_the_load_is_a_dozen_conversations_and_one_agent():
    """Four for each tenant, four turns each; the agent takes eight steps."""
    load = conversations()
    assert [sum(talk.name.startswith(tenant) for talk in load) for tenant in TENANTS] == [4, 4, 4]
    assert [len(talk.turns) for talk in load] == [4] * 12 + [8]
    assert len({talk.name for talk in load}) == 13


def test_a_turn_carries_the_whole_history():
    """Each request repeats what was said and answered before, as chat clients do."""
    talk = conversations()[0]
    messages = talk.messages(["first answer", "second answer"])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert messages[2]["content"] == "first answer"
    assert messages[:2] == talk.messages([])[:2]


def test_the_travel_tenants_clock_moves_every_second_turn_and_nothing_else_does():
    """One tenant has the fault that the fold rules are about: a clock on its first line."""
    first, second = texts.travel_system_prompt(1), texts.travel_system_prompt(2)
    assert first.splitlines()[0] != second.splitlines()[0]
    assert first.splitlines()[1:] == second.splitlines()[1:]
    assert texts.travel_system_prompt(110).startswith("Current time: Monday, 3 November 2025 15:00 UTC")


def test_system_prompts_have_the_promised_length():
    """500 to 900 tokens each, by the model's own tokenizer."""
    model = find_smollm2()
    assert model is not None
    tokeniser = load_tokeniser(model).tokeniser
    for text in (texts.shop_system_prompt(), texts.lease_system_prompt(), texts.travel_system_prompt(0)):
        assert 500 <= len(tokeniser.encode(text)) // 4 <= 900


def test_shared_blocks_are_counted_once():
    """Two conversations that share their opening need its blocks once."""

    def chain_of(tenant, messages):
        words = [tenant, *" ".join(message["content"] for message in messages).split()]
        return [" ".join(words[: end + 1]).encode() for end in range(0, len(words), BLOCK_TOKENS)]

    load = conversations(turns=1, per_tenant=2)
    apart = sum(distinct_blocks([talk], chain_of) for talk in load)
    together = distinct_blocks(load, chain_of)
    assert together <= apart - 50


@pytest.mark.parametrize("simulated", [False, True])
def test_a_workers_pool_holds_half_of_the_loads_blocks(tmp_path, simulated):
    """The pressure under which scattering hurts, said to the worker as vLLM's flag."""
    stage = prepare(conversations(turns=2), tmp_path, simulated=simulated)
    assert stage.distinct_blocks > 100
    assert stage.pool_blocks == stage.distinct_blocks // 2 + 1


def test_keys_and_salt_are_minted_for_each_run(tmp_path):
    """Nobody can find a secret of the demonstration in its source."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = prepare(conversations(turns=1), tmp_path / "a", simulated=True)
    two = prepare(conversations(turns=1), tmp_path / "b", simulated=True)
    assert set(one.keys.values()).isdisjoint(two.keys.values())
    assert one.salt.read_text() != two.salt.read_text()
    assert one.salt.stat().st_mode & 0o077 == 0
