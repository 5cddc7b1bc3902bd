"""The simulated workers' pages are read by this gateway as those of a real worker, and their answers add up."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

from bench.live.drive import Driver, Load
from bench.live.processes import fetch, status_of
from bench.live.stage import Stage, simulated_workers, worker_counts
from bench.live.texts import Planned, plan, text_of
from gateway.model_cards import parse_cards
from gateway.worker_metrics import parse_figures
from router.core import Prompt
from router.replay.core import TraceRequest


@asynccontextmanager
async def one_worker(directory):
    stage = Stage(directory, workers=1, cache_blocks=50, speed_up=100.0, pinned=False)
    async with simulated_workers(stage) as ports:
        yield ports[0]


def build_request(number: int, blocks: int, tokens: int, at_seconds: float = 0.0) -> TraceRequest:
    names = [b"block %d" % place for place in range(blocks)]
    return TraceRequest(number, at_seconds, 3, number, 0.0, Prompt(tokens, 512, names, names))


def test_a_prompt_is_as_long_as_the_trace_says_and_blocks_are_the_same_everywhere():
    """Cut within its last block; a rest that the trace does not list gets a text too."""
    long, short = text_of([b"a", b"b", b"c"], 512, 1500), text_of([b"a", b"b"], 512, 1024)
    assert (len(long), len(short), long[:1024]) == (1500, 1024, short)
    assert len(text_of([b"a"], 512, 700)) == 700
    assert len(text_of([], 512, 10)) == 10
    assert set(long) <= set("abcdefghijklmnopqrstuvwxyz ")


def test_a_longer_prompt_of_a_session_begins_with_the_shorter_ones_messages():
    """Turns are cut at the same places."""
    short, long = (
        json.loads(planned.body)["messages"]
        for planned in plan([build_request(0, 30, 30 * 512), build_request(1, 60, 60 * 512)], turns=True)
    )
    assert [message["role"] for message in short[:3]] == ["system", "user", "assistant"]
    assert long[: len(short) - 1] == short[:-1]
    assert "".join(message["content"] for message in long).startswith("".join(m["content"] for m in short))


async def test_the_gateway_understands_what_a_simulated_worker_says_of_itself(tmp_path):
    """Block and cache size, counters, the model; unknown pages are not there."""
    async with one_worker(tmp_path) as port:
        figures = parse_figures((await fetch(f"http://127.0.0.1:{port}/metrics"))[1].decode())
        assert (figures.block_tokens, figures.cache_blocks, figures.waiting) == (512, 50, 0)
        assert figures.start_seconds is not None
        cards = parse_cards((await fetch(f"http://127.0.0.1:{port}/v1/models"))[1])
        assert [card.id for card in cards] == ["simulated"]
        assert await status_of(f"http://127.0.0.1:{port}/health") == 200
        assert await status_of(f"http://127.0.0.1:{port}/tokenize") == 404


async def test_usage_and_counts_agree(tmp_path):
    """Streamed: the second request finds all but its last token; /stats sums it up, /reset forgets it."""
    async with one_worker(tmp_path) as port:
        planned = plan([build_request(0, 4, 2048), build_request(1, 4, 2048, at_seconds=5.0)])
        first, second = await Driver(Load(planned, [port], 100.0)).run()
        assert (first.error, first.prompt_tokens, first.cached_tokens) == (None, 2048, 0)
        assert (second.error, second.cached_tokens) == (None, 2047)
        assert 0 < second.ttft < first.ttft < first.total
        (counts,) = await worker_counts([port])
        assert (counts["requests"], counts["prompt_tokens"], counts["cached_tokens"]) == (2, 4096, 2047)
        await fetch(f"http://127.0.0.1:{port}/reset", "POST")
        (counts,) = await worker_counts([port])
        assert counts["requests"] == 0
        (again,) = await Driver(Load(planned[:1], [port], 100.0)).run()
        assert again.cached_tokens == 0


async def test_an_answer_that_is_not_streamed_and_one_that_is_wrong(tmp_path):
    """Completions as well as chats; what cannot be read is a 400."""
    async with one_worker(tmp_path) as port:
        url = f"http://127.0.0.1:{port}/v1/completions"
        status, body = await fetch(url, "POST", json.dumps({"prompt": "x" * 100, "max_tokens": 2}).encode())
        usage = json.loads(body)["usage"]
        assert (status, usage["prompt_tokens"], usage["completion_tokens"]) == (200, 100, 2)
        assert (await fetch(url, "POST", b"{"))[0] == 400
        assert (await fetch(url, "POST", b"{}"))[0] == 400


async def test_sessions_wait_for_their_answers(tmp_path):
    """Closed loop: the second call goes out after the first answer's end and the time to think."""
    async with one_worker(tmp_path) as port:
        body = plan([build_request(0, 1, 512)])[0].body
        planned = [Planned(0, 0.0, 7, 0.0, body), Planned(1, 0.0, 7, 4.0, body)]
        first, second = await Driver(Load(planned, [port], 100.0, closed_loop=True)).run()
        assert second.sent_at >= first.sent_at + first.total + 4.0
