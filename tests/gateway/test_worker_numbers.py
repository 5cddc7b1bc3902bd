"""Numbers that workers tell: one that cannot be is passed over, and never fails a request, a probe or a counter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects.table import dialect_of
from gateway.model_cards import parse_cards
from gateway.wire import Endpoint
from gateway.worker_metrics import parse_figures
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import DONE, Exchange, answer_json, event, scripted_worker, until
from tests.gateway.test_probes import look

WRONG = [-5, 10**15, int("9" * 40)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_usage_that_cannot_be_is_none(wrong: int, stream: bool) -> None:
    """The answer passes as it is, its connection stays, and it counts as answered well."""
    usage = {"prompt_tokens": 7, "completion_tokens": wrong}

    async def wrongly(exchange: Exchange) -> None:
        if not stream:
            await exchange.send_json(json.dumps(json.loads(answer_json()) | {"usage": usage}).encode())
            return
        await exchange.begin_stream()
        told = json.dumps({"id": "1", "choices": [], "usage": usage}, separators=(",", ":")).encode()
        await exchange.chunk(event() + b"data: " + told + b"\n\n" + DONE)
        await exchange.end_stream()

    async with scripted_worker(wrongly) as worker, running_gateway(worker) as running:
        answer = await running.ask(stream=stream)
        assert (answer.status, answer.whole) == (200, True)
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="200") == 1
        assert running.count("completion_tokens_total", tenant="acme", model="m") == 0


@pytest.mark.parametrize("wrong", [-5, 10**15])
@pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.MESSAGES, Endpoint.RESPONSES])
def test_every_dialect_passes_it_over(endpoint: Endpoint, wrong: int) -> None:
    """OpenAI's, Anthropic's and that of /v1/responses."""
    usage: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 3, "input_tokens": 7, "output_tokens": 3}
    dialect = dialect_of(endpoint)
    assert dialect.read_usage(json.dumps({"usage": usage}).encode()) is not None
    for name in ("prompt_tokens", "output_tokens"):
        usage[name] = wrong
    assert dialect.read_usage(json.dumps({"usage": usage}).encode()) is None


async def test_a_list_of_models_without_an_end_is_a_worker_in_trouble() -> None:
    """Its probe's task would die of it again and again, and /livez with it."""
    async with scripted_worker() as worker:
        serve_page = worker._look

        async def look_deep(exchange: Exchange, path: str) -> None:
            if path == "/v1/models":
                await exchange.send_json(b'{"data":[{"id":"m","x":' + b"[" * 100_000)
            else:
                await serve_page(exchange, path)

        worker._look = look_deep  # type: ignore[method-assign]
        result = await look(worker.url)
    assert result.trouble == "answers /v1/models with something else than a list of models"


@pytest.mark.parametrize("wrong", ["1e308", "-1e308", "9" * 400, "9" * 5000])
def test_figures_beyond_all_measure_are_passed_over(wrong: str) -> None:
    """Two of them would not even add up."""
    text = f'vllm:num_requests_waiting {wrong}\nvllm:num_requests_waiting{{engine="1"}} {wrong}\n'
    text += f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{wrong}"}} 1\n'
    figures = parse_figures(text)
    assert (figures.waiting, figures.cache_blocks, figures.block_tokens) == (None, None, 16)


def test_a_length_below_one_is_none() -> None:
    """It would forbid every prompt, for the shortest length of all workers holds."""
    (card,) = parse_cards(b'{"data":[{"id":"m","max_model_len":-5}]}')
    assert card.max_model_len is None
