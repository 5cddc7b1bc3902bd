"""The simulated worker's inside: an exact cache, and prefills one after the other, on time."""

from __future__ import annotations

import asyncio

from bench.live.engine import BLOCK_TOKENS, BlockCache, SimulatedWorker, chain_of

SPEED_UP = 100.0


def letters(blocks: float, letter: str = "a") -> str:
    return letter * round(blocks * BLOCK_TOKENS)


def test_a_chain_names_whole_beginnings():
    """A block after another beginning is another block; a partial end has a name too."""
    one, other = chain_of(letters(2) + letters(1, "b")), chain_of(letters(1, "c") + letters(1) + letters(1, "b"))
    assert len(set(one) | set(other)) == 6
    assert chain_of(letters(2.5))[:2] == one[:2]
    assert len(chain_of(letters(2.5))) == 3
    assert chain_of("") == []


def test_the_least_recent_ends_go_first():
    """What is held stays beyond the bound; what is let go leaves from the end of its chain."""
    cache = BlockCache(4)
    old, new = chain_of(letters(3)), chain_of(letters(3, "b"))
    cache.hold(old)
    cache.hold(new)
    assert (len(cache), cache.held) == (6, 6)
    cache.let_go(old)
    assert (len(cache), cache.match(old), cache.match(new)) == (4, 1, 3)
    cache.let_go(new)
    assert (cache.held, cache.match(old), cache.match(new)) == (0, 1, 3)


def test_a_block_held_twice_is_let_go_twice():
    """Two requests with one beginning."""
    cache, chain = BlockCache(1), chain_of(letters(2))
    cache.hold(chain)
    cache.hold(chain)
    cache.let_go(chain)
    assert cache.held == 2
    cache.let_go(chain)
    assert (cache.held, len(cache), cache.match(chain)) == (0, 1, 1)


async def serve(worker: SimulatedWorker, text: str) -> tuple[int, float]:
    """One whole request: its cached tokens, and when its prefill was over (worker's seconds)."""
    async with worker.prefilled(text) as cached:
        over_at = asyncio.get_running_loop().time() * worker.speed_up
        await worker.decode(1)
    return cached, over_at


async def test_prefills_come_one_after_the_other():
    """20 ms + 8,000 tokens a second each; the second finds what the first computed, all but one token of it."""
    worker = SimulatedWorker(0, 100, SPEED_UP)
    began = asyncio.get_running_loop().time() * SPEED_UP
    first, second, other = await asyncio.gather(
        *(serve(worker, text) for text in (letters(8), letters(8), letters(4, "b")))
    )
    assert [first[0], second[0], other[0]] == [0, 8 * BLOCK_TOKENS - 1, 0]
    ends = [end - began for _, end in (first, second, other)]
    assert ends == sorted(ends)
    assert worker.counts.busy_seconds == 3 * 0.02 + (12 * BLOCK_TOKENS + 1) / 8000
    assert 0 <= ends[-1] - worker.counts.busy_seconds < 5
    assert (worker.waiting, worker.running, worker.cache.held) == (0, 0, 0)


async def test_who_leaves_leaves_nothing_behind():
    """Cancelled while waiting, while being prefilled, and while being answered."""
    worker = SimulatedWorker(0, 100, SPEED_UP)
    asked = [asyncio.ensure_future(serve(worker, letters(40, letter))) for letter in "abc"]
    await asyncio.sleep(0.005)
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert (worker.waiting, worker.running, worker.cache.held) == (0, 0, 0)
    assert (await serve(worker, letters(1, "z")))[0] == 0
