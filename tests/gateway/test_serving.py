"""What each model needs to be served: loaded once, shared with adapters, anew when the worker's block is another."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

import router.roster
from gateway.fleet import Fleet
from gateway.policies import router_settings
from gateway.prompts import Prompts
from gateway.serving import Serving, serving_facts
from gateway.settings import Backends, Model, PolicySettings
from gateway.worker_metrics import WorkerFigures
from gateway.worker_state import Outcome
from router.core import PromptSource
from router.settings import RouterSettings
from router.tokenise import TokeniserError
from tests.gateway.builders import build_backend, build_healthy

SOURCE = PromptSource(messages=[{"role": "user", "content": "a question " * 40}])
NO_RULES = frozenset()


def build_model(**more) -> Model:
    return Model(backends=Backends(static=["http://127.0.0.1:8000"]), **more)


@asynccontextmanager
async def serving_of(**models: Model):
    """Serving, and its fleet of one ready worker of the first model."""
    fleet = Fleet(serving_facts(models))
    fleet.add(build_backend("w1", models=list(models)))
    prompts = Prompts()
    serving = Serving(models, fleet, prompts)
    fleet.probed("w1", build_healthy("m"), now=0.0)
    try:
        yield serving, fleet
    finally:
        await serving.close()
        prompts.close()


async def prepare(serving, model="m", salt=None):
    return await serving.prepare(model, SOURCE, salt=salt, rules=NO_RULES)


async def test_models_are_loaded_before_serving():
    """Configured ones, and what workers list under `*`."""
    async with serving_of(m=build_model(policy="ring")) as (serving, _):
        await serving.load_all()
        assert serving.describe() == {"m": {"block_tokens": 64, "tokenizer": "bytes", "policy": "ring"}}
    async with serving_of(**{"*": build_model()}) as (serving, _):
        await serving.load_all()
        assert serving.names() == ("m",)


async def test_a_model_seen_first_in_a_request_is_loaded_then():
    """Once, however many ask at the same time."""
    async with serving_of(m=build_model()) as (serving, _):
        prompts = await asyncio.gather(*(prepare(serving) for _ in range(5)))
        assert len({prompt.key_blocks[0] for prompt in prompts}) == 1
        assert list(serving.describe()) == ["m"]


async def test_a_caller_that_leaves_does_not_stop_the_loading_for_others():
    """The first one's cancellation is its own."""
    async with serving_of(m=build_model()) as (serving, _):
        first = asyncio.create_task(prepare(serving))
        second = asyncio.create_task(prepare(serving))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).tokens > 0
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_an_adapter_shares_the_text_and_router_of_its_base_but_no_block():
    """D-09: key of lora-a ≠ key of m."""
    async with serving_of(m=build_model()) as (serving, fleet):
        fleet.probed("w1", build_healthy("m", lora_a="m"), now=1.0)
        base, adapter = await prepare(serving), await prepare(serving, "lora-a")
        assert serving.router("lora-a") is serving.router("m")
        assert base.tokens == adapter.tokens
        assert not set(base.key_blocks) & set(adapter.key_blocks)
        assert list(serving.describe()) == ["m"]


async def test_salts_reach_the_hashes():
    """Placement is salted like the cache."""
    async with serving_of(m=build_model()) as (serving, _):
        one, other = await prepare(serving, salt="a"), await prepare(serving, salt="b")
        assert not set(one.exact_blocks) & set(other.exact_blocks)


async def test_a_worker_with_other_blocks_has_the_model_loaded_anew():
    """Its blocks were not known while it was down."""
    async with serving_of(m=build_model()) as (serving, fleet):
        assert (await prepare(serving)).block_tokens == 64
        fleet.report(fleet.worker("w1"), Outcome.REFUSED)
        fleet.probed("w1", build_healthy("m", figures=WorkerFigures(block_tokens=128)), now=1.0)
        await prepare(serving)
        assert serving.describe()["m"]["block_tokens"] == 128


async def test_a_configured_tokenizer_that_cannot_be_read_stops_the_start(tmp_path):
    """Bytes in its place would cost hits for months before anybody noticed."""
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    async with serving_of(m=build_model(tokenizer=f"file:{path}")) as (serving, _):
        with pytest.raises(TokeniserError, match=r"tokenizer\.json"):
            await serving.load_all()


async def test_what_workers_report_teaches_the_scale():
    """Bytes are scaled to the worker's own count."""
    async with serving_of(m=build_model()) as (serving, _):
        prompt = await prepare(serving)
        for _ in range(20):
            serving.learn("m", prompt, prompt.tokens // 2)
        assert (await prepare(serving)).tokens < prompt.tokens


async def test_a_cache_is_counted_in_the_blocks_that_prompts_really_have():
    """Bytes stand in: 64 tokens by guess, one token a byte in truth, so a block holds four times as many."""
    async with serving_of(m=build_model()) as (serving, fleet):
        figures = WorkerFigures(block_tokens=16, cache_blocks=6400)
        fleet.probed("w1", build_healthy("m", figures=figures), now=1.0)
        prompt = await prepare(serving)
        assert fleet.view("m").workers[0].cache_blocks == 6400 * 16 // 64
        for _ in range(40):
            serving.learn("m", prompt, prompt.text_bytes)
        block_tokens = (await prepare(serving)).block_tokens
        assert block_tokens > 200
        assert fleet.view("m").workers[0].cache_blocks == 6400 * 16 // block_tokens


def test_a_policy_with_its_numbers_reaches_the_router():
    """Every field of `policy` is read by someone."""
    policy = PolicySettings(
        name="chwbl", ring_slack_seconds=0.2, ring_patience_seconds=0.7, decode_weight=0.3, chwbl_factor=1.5
    )
    assert router_settings(build_model(policy=policy)) == RouterSettings(
        policy="chwbl", ring_slack_seconds=0.2, ring_patience_seconds=0.7, decode_weight=0.3, chwbl_factor=1.5
    )


def test_defaults_are_the_routers_own():
    """One place for measured defaults: what is not said is what the router would do anyway."""
    assert router_settings(build_model()) == RouterSettings()
    assert router_settings(None) == RouterSettings()


def test_facts_follow_the_settings():
    """What the fleet's pictures carry."""
    model = build_model(
        max_in_flight=4, prefill_tokens_per_second=9.0, prefill_fixed_seconds=0.1, worker_block_tokens=32
    )
    (facts,) = serving_facts({"m": model}).values()
    assert (facts.max_in_flight, facts.prefill_tokens_per_second) == (4, 9.0)
    assert (facts.prefill_fixed_seconds, facts.worker_block_tokens) == (0.1, 32)


async def test_no_request_pays_for_laying_out_the_ring(monkeypatch):
    """Every worker's points are there when a model is loaded or a worker joins; only putting them together is left."""
    async with serving_of(m=build_model()) as (serving, fleet):
        await serving.load_all()
        fleet.add(build_backend("w2", port=9000))
        fleet.probed("w2", build_healthy("m"), now=0.0)
        monkeypatch.setattr(router.roster, "lay_out", None)
        prompt = await prepare(serving)
        assert serving.router("m").homes_of(prompt, fleet.view("m"), 0.0)
        assert serving.router("m").stats().ring_workers == 2
