"""Whatever the cache, the chunks, the pool or the hash: every answer is the one that the tokens alone determine."""

from __future__ import annotations

import random

import pytest

from backends.engine import Engine
from tests.backends.core_builders import (
    SlotRunner,
    build_engine,
    build_prompt,
    build_request,
    expected_output,
    outputs,
    run_to_end,
)

SETTINGS = {
    "plain": {},
    "cache off": {"enable_prefix_caching": False},
    "small chunks": {"max_batched_tokens": 8},
    "single tokens": {"max_batched_tokens": 1, "max_sequences": 1},
    "tiny pool": {"num_blocks": 14},
    "tiny pool, small chunks": {"num_blocks": 14, "max_batched_tokens": 9},
    "tiny pool, cache off": {"num_blocks": 14, "enable_prefix_caching": False},
    "8-bit hash": {"bits": 8},
    "8-bit hash, tiny pool": {"bits": 8, "num_blocks": 14},
    "one hash for all": {"bits": 0, "num_blocks": 20},
    "blocks of one token": {"block_tokens": 1, "num_blocks": 60},
    "watermark": {"num_blocks": 14, "watermark_blocks": 2},
}
PREEMPTING = {"tiny pool", "tiny pool, small chunks", "tiny pool, cache off", "8-bit hash, tiny pool"}


def build_prompts(count: int, generator: random.Random) -> dict[str, list[int]]:
    """Prompts with shared heads of every length, some of them equal."""
    heads = [build_prompt(12, seed=number) for number in range(4)]
    prompts: dict[str, list[int]] = {}
    for number in range(count):
        head = generator.choice(heads)[: generator.randint(0, 12)]
        tail = build_prompt(generator.randint(1, 20), seed=generator.randint(1, 30))
        prompts[f"{number}"] = head + tail
    return prompts


def run_concurrently(engine: Engine, prompts: dict[str, list[int]], generator: random.Random, tokens: int):
    """Add requests while others run; step in between; everything is checked after each step."""
    waiting, deltas = list(prompts), []
    while waiting or engine.has_work:
        while waiting and generator.random() < 0.4:
            name = waiting.pop()
            engine.add(build_request(name, prompts[name], max_tokens=tokens))
        deltas += engine.step()
        engine.check_integrity()
    return deltas


@pytest.mark.parametrize("setting", SETTINGS)
def test_answers_depend_on_the_tokens_alone(setting):
    """Case H-20: sixty prompts with shared heads, added at random moments, against the runner's plain definition."""
    generator = random.Random(1)
    prompts, engine = build_prompts(60, generator), build_engine(**SETTINGS[setting])
    deltas = run_concurrently(engine, prompts, generator, tokens=12)
    assert outputs(deltas) == {name: expected_output(prompt, 12) for name, prompt in prompts.items()}
    stats = engine.stats()
    assert (stats.prefix_hits > 0) == engine.config.enable_prefix_caching
    assert setting not in PREEMPTING or stats.preemptions > 0
    assert stats.free_blocks == stats.num_blocks - 1


def test_two_thousand_prompts_under_an_8_bit_hash_get_no_foreign_block():
    """Case F-16: collisions all the time, outputs right all the time, and hits as many as with the whole hash."""
    hits = []
    for bits in (8, None):
        generator = random.Random(2)
        prompts, engine = build_prompts(2000, generator), build_engine(bits=bits, num_blocks=129)
        for name, prompt in prompts.items():
            engine.add(build_request(name, prompt, max_tokens=2, cache_salt=generator.choice((None, "s"))))
        found = outputs(run_unchecked(engine))
        assert found == {name: expected_output(prompt, 2) for name, prompt in prompts.items()}
        hits.append(engine.stats().prefix_hits)
    assert hits[0] == hits[1] > 2000


def run_unchecked(engine: Engine):
    deltas = []
    while engine.has_work:
        deltas += engine.step()
    engine.check_integrity()
    return deltas


@pytest.mark.parametrize("seed", range(4))
def test_aborts_resets_and_failures_disturb_nobody_else(seed):
    """Three thousand random calls: who is not aborted and not in a failed step gets the right answer."""
    generator, runner = random.Random(seed), SlotRunner()
    engine = build_engine(runner, num_blocks=generator.choice((14, 20, 40)), max_batched_tokens=16, bits=8)
    prompts: dict[str, list[int]] = {}
    found: dict[str, list[int]] = {}
    lost: set[str] = set()
    for number in range(3000):
        chance = generator.random()
        if chance < 0.15:
            prompts |= {f"{number}": prompt for prompt in build_prompts(1, generator).values()}
            engine.add(build_request(f"{number}", prompts[f"{number}"], max_tokens=8, n=generator.choice((1, 1, 2))))
        elif chance < 0.2 and prompts:
            name = generator.choice(list(prompts))
            if engine.abort(name):
                lost.add(name)
        elif chance < 0.21:
            assert engine.reset_prefix_cache() == (engine.stats().running == 0)
        else:
            runner.fail_next = chance < 0.22
            lost |= step_and_collect(engine, found)
        runner.fail_next = False
        engine.check_integrity()
    found |= {name: found.get(name, []) + more for name, more in outputs(run_to_end(engine)).items()}
    assert lost
    assert engine.stats().preemptions > 0
    for name in prompts.keys() - lost:
        assert found[name] == expected_output(prompts[name], 8)


def step_and_collect(engine: Engine, found: dict[str, list[int]]) -> set[str]:
    """Step; return who was lost in it."""
    try:
        for name, tokens in outputs(engine.step()).items():
            found.setdefault(name, []).extend(tokens)
    except Exception as error:
        return set(error.request_ids)
    return set()


def test_a_wrong_block_table_would_change_an_answer():
    """The runner of these tests sees it: the same step through a table with two blocks swapped."""
    prompt, runner = build_prompt(13), SlotRunner()
    engine = build_engine(runner)
    engine.add(build_request("a", prompt))
    engine.step()
    sequence = engine._scheduler.running[0]
    sequence.block_ids[0], sequence.block_ids[1] = sequence.block_ids[1], sequence.block_ids[0]
    deltas = engine.step()
    assert list(deltas[0].token_ids) != expected_output(prompt, 2)[1:]
