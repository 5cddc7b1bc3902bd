"""The worker as a process: the official client, signals, and what it says when it cannot start."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys

import aiohttp
import openai
import pytest

from tests.backends.server_builders import until
from tests.backends.worker_process import ROOT, start, worker_process

MESSAGES = [{"role": "user", "content": "hello " * 20}]


async def metric(url: str, name: str) -> float:
    """The sum over one metric's labels."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}{{"))


async def test_the_official_client_chats_and_streams():
    """The same text in one piece and in pieces, usage with cached tokens, models."""
    async with worker_process("--simulated", "--served-model-name", "m") as worker, worker.client() as client:
        assert [model.id async for model in client.models.list()] == ["m"]
        whole = await client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=20)
        stream = await client.chat.completions.create(
            model="m", messages=MESSAGES, max_tokens=20, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(pieces) == whole.choices[0].message.content
        assert whole.usage.prompt_tokens_details.cached_tokens == 0
        assert chunks[-1].usage.prompt_tokens_details.cached_tokens == (whole.usage.prompt_tokens - 1) // 16 * 16
        completion = await client.completions.create(model="m", prompt=[1, 2, 3], max_tokens=4)
        assert completion.usage.prompt_tokens == 3


async def test_errors_reach_the_official_client_as_its_own():
    """404 and 400 with the worker's words; 401 where a key is wanted."""
    async with worker_process("--simulated", "--max-model-len", "200", "--api-key", "k") as worker:
        async with worker.client("wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
        async with worker.client("k") as client:
            with pytest.raises(openai.NotFoundError, match="The model `nope` does not exist"):
                await client.chat.completions.create(model="nope", messages=MESSAGES)
            with pytest.raises(openai.BadRequestError, match="maximum context length is 200 tokens"):
                await client.completions.create(model="smollm2", prompt="x" * 300)


async def test_a_client_that_closes_its_stream_frees_the_blocks():
    """Seen from outside: nothing runs, nothing is held, one abort is counted."""
    arguments = ("--simulated", "--simulated-seconds-per-token", "0.02")
    async with worker_process(*arguments) as worker, worker.client() as client:
        stream = await client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=5000, stream=True)
        await anext(aiter(stream))
        assert await metric(worker.url, "num_requests_running") == 1
        await stream.close()

        async def nothing_runs() -> bool:
            return await metric(worker.url, "num_requests_running") == 0

        await until(nothing_runs, "the request still runs")
        assert await metric(worker.url, "kv_cache_usage_perc") == 0
        assert await metric(worker.url, "request_success_total") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_open_answers_finish(number: int):
    """The stream ends whole, new connections are refused, the exit status is 0."""
    arguments = ("--simulated", "--simulated-seconds-per-token", "0.02")
    async with worker_process(*arguments) as worker, worker.client() as client:
        stream = await client.completions.create(model="smollm2", prompt="x", max_tokens=60, stream=True)
        chunks = [await anext(aiter(stream))]
        ending = asyncio.create_task(worker.end(number))
        chunks += [chunk async for chunk in stream]
        assert len(chunks) == 60
        assert chunks[-1].choices[0].finish_reason == "length"
        assert await ending == 0
        assert any("Draining: 1 requests open" in line for line in worker.log)
        with pytest.raises(openai.APIConnectionError):
            await client.models.list()


async def test_an_answer_that_takes_too_long_does_not_hold_up_the_end():
    """--shutdown-timeout is a bound."""
    arguments = ("--simulated", "--simulated-seconds-per-token", "0.05", "--shutdown-timeout", "0.2")
    async with worker_process(*arguments) as worker, worker.client() as client:
        stream = await client.completions.create(model="smollm2", prompt="x", max_tokens=5000, stream=True)
        await anext(aiter(stream))
        assert await asyncio.wait_for(worker.end(), 10) == 0


async def test_a_second_signal_ends_the_worker_at_once():
    """Who presses Ctrl-C twice does not want to wait."""
    arguments = ("--simulated", "--simulated-seconds-per-token", "0.05")
    async with worker_process(*arguments) as worker, worker.client() as client:
        stream = await client.completions.create(model="smollm2", prompt="x", max_tokens=5000, stream=True)
        await anext(aiter(stream))
        worker.process.send_signal(signal.SIGTERM)
        await worker.until_log(re.compile("Draining"))
        assert await asyncio.wait_for(worker.end(), 10) != 0


async def test_the_start_says_what_fits():
    """Blocks, tokens, and requests of full length."""
    arguments = ("--simulated", "--max-model-len", "1000", "--num-gpu-blocks-override", "251")
    async with worker_process(*arguments) as worker:
        said = "".join(worker.log)
        assert "250 blocks of 16 tokens = 4,000 tokens" in said
        assert "4.0 requests of 1,000 tokens fit" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "/no/such.gguf"], "--model /no/such.gguf: no such file"),
        (["--simulated", "--num-gpu-blocks-override", "3"], "--num-gpu-blocks-override 3 is too small"),
        (["--simulated", "--max-num-batched-tokens", "8"], "--max-num-batched-tokens 8 is below --max-num-seqs 256"),
        (["--simulated", "--port", "99999"], "99999 is no port"),
        (["--simulated", "--block-size", "0"], "0 is not a whole number above 0"),
        (["--simulated-fixed-seconds", "1"], "need --simulated"),
        (["--simulated", "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
    ],
)
async def test_what_cannot_start_says_why_and_exits_2(arguments: list[str], words: str):
    """A sentence, no traceback."""
    worker = await start(*arguments)
    assert await asyncio.wait_for(worker.end(0), 60) == 2
    said = "".join(worker.log)
    assert words in said
    assert "Traceback" not in said


async def test_a_port_in_use_is_said_and_exits_2():
    """With the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        worker = await start("--simulated", "--port", str(port))
        assert await asyncio.wait_for(worker.end(0), 60) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in "".join(worker.log)


async def test_a_simulated_worker_never_imports_torch():
    """It starts in a second, and where torch is not installed."""
    code = (
        "import sys; sys.modules['torch'] = None; from backends.main import main; "
        "sys.exit(main(['--simulated', '--num-gpu-blocks-override', '3']))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"too small" in said


async def test_a_worker_without_torch_says_what_to_install():
    """Not a traceback."""
    code = "import sys; sys.modules['torch'] = None; from backends.main import main; sys.exit(main([]))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 2
    assert re.search(rb"torch is missing: pip install 'homing\[worker\]', or try --simulated", said)
