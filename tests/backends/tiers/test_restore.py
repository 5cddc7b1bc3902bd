"""Evict → restore through a real engine: the answers are the same as if nothing had ever been evicted."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from backends.tiers.redis import SOCKET_SECONDS, RedisTier
from tests.backends.core_builders import build_prompt, build_request, expected_output, outputs
from tests.backends.tiers.engine_builders import TieredEngine, run
from tests.backends.tiers.redis_server import RedisServer

POLICIES = ("write-back", "write-through", "selective")


def answer(tiered: TieredEngine, request_id: str, prompt, **settings):
    """Run one request alone; its last delta, after checking its output."""
    tiered.engine.add(build_request(request_id, prompt, **settings))
    deltas = run(tiered)
    assert outputs(deltas)[request_id] == expected_output(prompt, 4)
    return deltas[-1]


def flood(tiered: TieredEngine, count: int = 6) -> None:
    """Enough other prompts to evict whatever the pool had."""
    for number in range(count):
        answer(tiered, f"other {number}", build_prompt(40, seed=1000 + number))


@pytest.mark.parametrize(("host_blocks", "disk"), [(100, False), (3, True), (0, True)])
def test_what_was_evicted_comes_back_with_the_same_answer(tmp_path: Path, host_blocks: int, disk: bool):
    """From host memory, from both, from disk; only the last block is computed anew."""
    tiered = TieredEngine(tmp_path if disk else None, host_blocks=host_blocks)
    prompt = build_prompt(40)
    assert answer(tiered, "first", prompt).cached_tokens == 0
    flood(tiered)
    tiered.settle()
    computed = tiered.computed_tokens()
    assert answer(tiered, "again", prompt).cached_tokens == 36
    assert tiered.computed_tokens() - computed == 4 + 3
    stats = tiered.engine.stats()
    assert stats.external_hits == 36
    assert [source for source, _ in stats.external_hits_by_source] == ["disk" if disk else "host"]
    tiered.close()


def test_a_restart_finds_what_was_written_through(tmp_path: Path):
    """Another process of the same model and config."""
    prompt = build_prompt(40)
    before = TieredEngine(tmp_path, policy="write-through")
    answer(before, "first", prompt)
    before.close()
    after = TieredEngine(tmp_path, policy="write-through")
    assert answer(after, "again", prompt).cached_tokens == 36
    after.close()


def test_with_write_back_a_restart_finds_what_was_given_up(tmp_path: Path):
    """And only that."""
    prompt = build_prompt(40)
    before = TieredEngine(tmp_path)
    answer(before, "first", prompt)
    flood(before)
    before.close()
    after = TieredEngine(tmp_path)
    assert answer(after, "again", prompt).cached_tokens == 36
    assert answer(after, "last", build_prompt(40, seed=1005)).cached_tokens == 0
    after.close()


def test_another_config_finds_nothing_and_answers_right(tmp_path: Path):
    """Another model's K/V would change the answer."""
    prompt = build_prompt(40)
    before = TieredEngine(tmp_path, policy="write-through")
    answer(before, "first", prompt)
    before.close()
    for path in tmp_path.rglob("*.kv"):
        path.write_bytes(path.read_bytes().replace(b"0" * 12, b"f" * 12))
    after = TieredEngine(tmp_path)
    assert answer(after, "again", prompt).cached_tokens == 0
    assert after.disk.counters.broken >= 1
    after.close()


def test_salted_prompts_do_not_meet_in_a_tier(tmp_path: Path):
    """A tenant's blocks are nobody else's, wherever they are."""
    tiered = TieredEngine(tmp_path, host_blocks=3, policy="write-through")
    prompt = build_prompt(40)
    answer(tiered, "first", prompt, cache_salt="a")
    flood(tiered)
    assert answer(tiered, "other", prompt, cache_salt="b").cached_tokens == 0
    flood(tiered)
    assert answer(tiered, "again", prompt, cache_salt="a").cached_tokens == 36
    tiered.close()


def test_a_reset_of_everything_also_empties_the_tiers(tmp_path: Path):
    """Trap 14; a reset of the pool alone leaves them."""
    tiered = TieredEngine(tmp_path, host_blocks=3, policy="write-through")
    prompt = build_prompt(40)
    answer(tiered, "first", prompt)
    assert tiered.engine.reset_prefix_cache()
    assert answer(tiered, "second", prompt).cached_tokens == 36
    assert tiered.engine.reset_prefix_cache(external=True)
    assert answer(tiered, "third", prompt).cached_tokens == 0
    tiered.close()


def test_running_requests_go_on_while_a_load_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Trap 13: the disk never answers, somebody else's answer comes all the same, and an abort ends the wait."""
    tiered = TieredEngine(tmp_path, policy="write-through")
    prompt = build_prompt(40)
    answer(tiered, "first", prompt)
    flood(tiered)
    tiered.settle()
    hangs = [True]
    read = tiered.disk._files.read

    def hang(*arguments):
        while hangs:
            time.sleep(0.001)
        return read(*arguments)

    monkeypatch.setattr(tiered.disk._files, "read", hang)
    tiered.engine.add(build_request("hung", prompt))
    tiered.engine.step()
    tiered.engine.add(build_request("other", build_prompt(20, seed=5)))
    deltas = []
    while len(outputs(deltas).get("other", [])) < 4:
        deltas += tiered.engine.step()
        tiered.check_integrity()
    assert outputs(deltas)["other"] == expected_output(build_prompt(20, seed=5), 4)
    assert "hung" not in outputs(deltas)
    tiered.engine.abort("hung")
    assert not tiered.engine.has_work
    hangs.clear()
    tiered.check_integrity()
    tiered.close()


def test_a_frozen_redis_does_not_stall_the_steps(redis_server: RedisServer):
    """A real server, stopped: no step takes as long as a socket's timeout; then everything is computed."""

    def redis_tier(entries) -> RedisTier:
        return RedisTier(redis_server.url, entries, prefix="t:", ttl_seconds=60, clock=time.monotonic)

    tiered = TieredEngine(more_tiers=[redis_tier], policy="write-through")
    prompt = build_prompt(40)
    answer(tiered, "first", prompt)
    flood(tiered)
    tiered.settle()
    assert answer(tiered, "again", prompt).cached_tokens == 36
    flood(tiered)
    tiered.settle()
    redis_server.freeze()
    tiered.engine.add(build_request("frozen", prompt))
    deltas, slowest = [], 0.0
    while tiered.engine.has_work:
        begin = time.monotonic()
        deltas += tiered.engine.step()
        slowest = max(slowest, time.monotonic() - begin)
    assert outputs(deltas)["frozen"] == expected_output(prompt, 4)
    assert deltas[-1].cached_tokens == 0
    assert slowest < SOCKET_SECONDS
    tiered.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_random_requests_get_the_answers_they_must(tmp_path: Path, policy: str):
    """Shared heads, aborts, resets, broken files, small tiers of all kinds: right answers, whole accounts."""
    tiered = TieredEngine(tmp_path, host_blocks=8, disk_blocks=30, policy=policy, num_blocks=24)
    generator, prompts, deltas, aborted = random.Random(policy), {}, [], set()
    heads = [build_prompt(24, seed) for seed in range(6)]
    for number in range(150):
        prompt = generator.choice(heads)[: generator.randrange(8, 25)] + build_prompt(generator.randrange(20), number)
        prompts[f"{number}"] = prompt
        tiered.engine.add(build_request(f"{number}", prompt))
        if generator.random() < 0.1:
            aborted.add(victim := generator.choice(sorted(prompts)))
            tiered.engine.abort(victim)
        if generator.random() < 0.1:
            break_some_file(tiered, generator)
        if generator.random() < 0.05:
            tiered.engine.reset_prefix_cache(external=True)
        for _ in range(generator.randrange(6)):
            deltas += tiered.engine.step()
            tiered.check_integrity()
    deltas += run(tiered)
    found = outputs(deltas)
    assert all(found[name] == expected_output(prompts[name], 4) for name in prompts if name not in aborted)
    assert tiered.engine.stats().external_hits > 100 or policy == "selective"
    tiered.close()
    tiered.disk.check_integrity()
    tiered.offload.stepped(0, 0.0)
    assert len(tiered.notes.kept.get("CPU", ())) == tiered.host.stats().blocks
    assert len(tiered.notes.kept.get("STORAGE", ())) == tiered.disk.stats().blocks


def break_some_file(tiered: TieredEngine, generator: random.Random) -> None:
    """Flip a bit in place; the file may be gone by then."""
    names = sorted(tiered.disk._index.copy())
    with suppress(FileNotFoundError):
        if names:
            with tiered.disk._files.path(generator.choice(names)).open("r+b") as file:
                place = generator.randrange(os.fstat(file.fileno()).st_size or 1)
                file.seek(place)
                byte = file.read(1) or b"\0"
                file.seek(place)
                file.write(bytes([byte[0] ^ 1 << generator.randrange(8)]))
