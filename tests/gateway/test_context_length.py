"""Prompts longer than the model takes: refused by the gateway where it counts tokens, left to the worker elsewhere."""

from __future__ import annotations

import pytest

from gateway.fleet import Fleet
from gateway.worker_state import ProbeResult
from tests.gateway.builders import build_backend, build_cards
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import scripted_worker, until

TAKES = 4096
"""What the scripted worker's card says."""

COMPLETIONS = "/v1/completions"


async def test_a_prompt_longer_than_the_model_takes_takes_up_no_worker() -> None:
    """The answer names both numbers; one token less is served."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        answer = await running.ask(path=COMPLETIONS, prompt=[7] * (TAKES + 1))
        assert (answer.status, answer.error["type"], answer.error["code"], answer.error["param"]) == (
            400,
            "invalid_request_error",
            "context_length_exceeded",
            "prompt",
        )
        assert str(TAKES) in answer.error["message"]
        assert str(TAKES + 1) in answer.error["message"]
        assert answer.fields["x-should-retry"] == "false"
        assert not worker.exchanges
        assert (await running.ask(path=COMPLETIONS, prompt=[7] * TAKES)).status == 200
        await until(running.settled)


async def test_a_prompt_counted_in_bytes_is_left_to_the_worker() -> None:
    """An estimate is no reason to refuse."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        assert (await running.ask(path=COMPLETIONS, prompt="word " * TAKES * 4)).status == 200
        assert len(worker.exchanges) == 1


@pytest.mark.parametrize(("truncate", "status"), [(100, 200), (-1, 200), (None, 400)])
async def test_a_prompt_that_the_worker_is_asked_to_cut_is_not_refused(truncate: int | None, status: int) -> None:
    """vLLM's `truncate_prompt_tokens`."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        answer = await running.ask(path=COMPLETIONS, prompt=[7] * (TAKES + 1), truncate_prompt_tokens=truncate)
        assert answer.status == status


def test_a_model_takes_what_every_worker_takes_and_an_adapter_what_its_base_does() -> None:
    """And a worker that comes to say something else is heard, under the same names."""
    fleet = Fleet({})
    for name, port, length in (("w1", 8001, 4096), ("w2", 8002, 2048)):
        fleet.add(build_backend(name, port=port))
        fleet.probed(name, ProbeResult(cards=build_cards("m", max_model_len=length, lora_a="m")), 0.0)
    assert (fleet.context_tokens("m"), fleet.context_tokens("lora-a"), fleet.context_tokens("x")) == (2048, 2048, None)
    fleet.probed("w2", ProbeResult(cards=build_cards("m", max_model_len=8192, lora_a="m")), 1.0)
    assert fleet.context_tokens("m") == 4096
    for name in ("w1", "w2"):
        fleet.probed(name, ProbeResult(cards=build_cards("m", max_model_len=None)), 2.0)
    assert fleet.context_tokens("m") is None
