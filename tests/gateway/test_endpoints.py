"""Every endpoint through real sockets: what the worker gets, what comes back, what is counted."""

from __future__ import annotations

import json

import pytest

from tests.gateway.dialect_worker import path_of
from tests.gateway.endpoint_builders import ANSWERS, ASKS, PATHS, SALTED, STREAMS, SYSTEM, USER, ask, workers
from tests.gateway.scripted_worker import Exchange, until


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_comes_back_as_the_worker_gave_it(path: str) -> None:
    """Asked at the same path, with the same fields, and salted where a cache is behind it (cases D-03, D-05, D-06)."""
    async with workers() as (running, (worker,)):
        answer = await ask(running, path, x_new={"a": [1]})
        assert (answer.status, answer.body) == (200, ANSWERS[path])
        exchange = worker.exchanges[0]
        assert path_of(exchange) == path
        got = exchange.asked
        assert ("cache_salt" in got) is (path in SALTED)
        got.pop("cache_salt", None)
        assert got == {"model": "m", **ASKS[path], "x_new": {"a": [1]}}
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="200") == 1


@pytest.mark.parametrize("path", SALTED)
async def test_the_salt_is_the_tenants_and_a_shared_tenants_own_passes(path: str) -> None:
    """Case D-03, on every endpoint with a cache behind it."""
    async with workers() as (running, (worker,)):
        await ask(running, path, cache_salt="mine")
        await ask(running, path, key="shared-key", cache_salt="mine")
        first, second = (exchange.asked["cache_salt"] for exchange in worker.exchanges)
        assert len(first) > 40
        assert second == "mine"


async def test_messages_are_refused_to_isolated_tenants_where_workers_pass_over_the_salt() -> None:
    """As vLLM's Messages API does: closed, never open. Who shares a cache anyway may ask, and who chats may too."""
    async with workers(salts_messages=False) as (running, (worker,)):
        refused = await ask(running, "/v1/messages")
        assert (refused.status, refused.error["type"]) == (529, "overloaded_error")
        assert refused.fields["x-should-retry"] == "false"
        assert not worker.exchanges
        assert (await ask(running, "/v1/messages", key="shared-key")).status == 200
        assert (await ask(running, "/v1/messages", key="shared-key", cache_salt="mine")).status == 529
        assert (await ask(running, "/v1/responses")).status == 200
        assert (await ask(running, "/v1/messages/count_tokens")).status == 200


async def test_a_prompt_cache_key_gives_affinity_and_never_a_common_cache() -> None:
    """Case D-04: one worker for each tenant's key, whatever is asked by whichever API; the salt is another matter."""
    async with workers(4, policy="session") as (running, fleet):
        for key in ("acme-key", "curious-key"):
            for text in ("first", "second", "third"):
                said = [{"role": "user", "content": text}]
                await ask(running, "/v1/responses", key=key, prompt_cache_key="k1", input=text)
                await ask(running, "/v1/messages", key=key, prompt_cache_key="k1", messages=said)
        places = {
            (exchange.asked["cache_salt"], index) for index, worker in enumerate(fleet) for exchange in worker.exchanges
        }
        assert len(places) == len({salt for salt, _ in places}) == 2
        await ask(running, "/v1/responses", prompt_cache_key="k1", input="first", cache_salt="narrower")
        salts = {exchange.asked["cache_salt"] for worker in fleet for exchange in worker.exchanges}
        assert len(salts) == 3


async def test_usage_without_details_passes_as_null() -> None:
    """Case D-12: what the worker does not know is not made up."""
    said = b'{"choices":[{"index":0}],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":null}}'

    async def tells_nothing(exchange: Exchange) -> None:
        await exchange.send_json(said)

    async with workers(script=tells_nothing) as (running, _):
        assert (await running.ask()).body == said
        await until(running.settled)
        assert running.count("prompt_tokens_total", tenant="acme", model="m") == 9
        assert running.count("cached_tokens_total", tenant="acme", model="m") == 0


@pytest.mark.parametrize(("path", "prompt"), [("/v1/responses", 33), ("/v1/messages", 20), ("/v1/embeddings", 9)])
async def test_usage_is_counted_in_each_dialect(path: str, prompt: int) -> None:
    """Whole answers."""
    async with workers() as (running, _):
        await ask(running, path)
        await until(running.settled)
        assert running.count("prompt_tokens_total", tenant="acme", model="m") == prompt


@pytest.mark.parametrize("path", list(STREAMS))
async def test_a_stream_comes_back_byte_for_byte_and_its_usage_is_counted(path: str) -> None:
    """Cached tokens of the Responses and of the Messages API; nothing is asked for in `stream_options`."""
    async with workers() as (running, (worker,)):
        answer = await ask(running, path, stream=True)
        assert (answer.status, answer.body, answer.whole) == (200, b"".join(STREAMS[path]), True)
        assert "stream_options" not in worker.exchanges[0].asked
        await until(running.settled)
        assert running.count("prompt_tokens_total", tenant="acme", model="m") == 40
        assert running.count("cached_tokens_total", tenant="acme", model="m") == 32
        assert running.count("completion_tokens_total", tenant="acme", model="m") == 2


async def test_the_same_words_by_three_apis_go_to_one_worker_and_the_next_turn_too() -> None:
    """Case D-05: four workers; chat, responses and messages with the same system text and question."""
    async with workers(4) as (running, fleet):
        turns = [*USER, {"role": "assistant", "content": "Me."}, {"role": "user", "content": "Who?"}]
        for said in (USER, turns):
            chat = [{"role": "system", "content": SYSTEM}, *said]
            body = json.dumps({"model": "m", "messages": chat}).encode()
            assert (await running.ask(body=body)).status == 200
            assert (await ask(running, "/v1/responses", input=said)).status == 200
            assert (await ask(running, "/v1/messages", messages=said)).status == 200
        assert sorted(len(worker.exchanges) for worker in fleet) == [0, 0, 0, 6]
        salts = {exchange.asked["cache_salt"] for worker in fleet for exchange in worker.exchanges}
        assert len(salts) == 1


async def test_what_touches_no_cache_is_spread_and_teaches_the_directory_nothing() -> None:
    """Case D-06: counting a prompt does not make its worker its home, nor a believed holder."""
    async with workers(2) as (running, fleet):
        for number in range(8):
            text = [{"role": "user", "content": f"{number} {SYSTEM}"}]
            assert (await ask(running, "/tokenize", messages=text)).status == 200
        await until(running.settled)
        assert running.count("predicted_cached_tokens_total", tenant="acme", model="m") == 0
        running.gateway.metrics.refresh()
        assert running.count("directory_blocks", model="m") == 0
        assert all(worker.exchanges for worker in fleet)


async def test_one_model_is_shown_by_its_name() -> None:
    """SDKs ask for it; another tenant's model is not there."""
    async with workers() as (running, _):
        found = await running.ask(path="/v1/models/m", method="GET")
        assert (found.status, found.json["id"], found.json["object"]) == (200, "m", "model")
        assert (await running.ask(path="/v1/models/%6d", method="GET")).status == 200
        for path, key, status in (
            ("/v1/models/other", "acme-key", 404),
            ("/v1/models/m", "foreign-key", 404),
            ("/v1/models/m", "nobody", 401),
            ("/v1/models/", "acme-key", 404),
        ):
            assert (await running.ask(path=path, method="GET", key=key)).status == status
        assert (await running.ask(path="/v1/models/m")).status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/v1/load_lora_adapter",
        "/v1/responses/resp_1",
        "/v1/messages/batches",
        "/tokenize/",
        "/render",
        "/v1/../tokenize",
    ],
)
async def test_nothing_else_reaches_a_worker(path: str) -> None:
    """An allow-list of exact paths."""
    async with workers() as (running, (worker,)):
        answer = await running.ask(path=path)
        code = None if path.startswith("/v1/messages") else "unknown_url"  # Anthropic's errors have none
        assert (answer.status, answer.error.get("code")) == (404, code)
        assert not worker.exchanges


async def test_the_head_tells_how_long_each_stage_took() -> None:
    """In milliseconds, on streams too; which worker and how many blocks only to those who may know."""
    async with workers() as (running, _):
        for stream in (False, True):
            answer = await ask(running, "/v1/responses", stream=stream)
            stages = dict(each.split(";dur=") for each in answer.fields["server-timing"].split(", "))
            assert list(stages) == ["parse", "tokenise", "place", "upstream"]
            spent = [float(duration) for duration in stages.values()]
            assert all(duration >= 0 for duration in spent)
            assert 0 <= int(answer.fields["openai-processing-ms"]) + 1 >= sum(spent)
            assert "x-homing-blocks" not in answer.fields


async def test_those_who_may_know_see_how_many_blocks_their_worker_is_believed_to_hold() -> None:
    """`x-homing-blocks: 0/40`, then all but the last."""
    async with workers() as (running, _):
        body = json.dumps({"model": "m", **ASKS["/v1/messages"]}).encode()
        seen = []
        for _ in range(2):
            answer = await running.ask(
                path="/v1/messages", body=body, key="curious-key", headers={"x-homing-debug": "1"}
            )
            assert answer.fields["x-homing-backend"] == "w1"
            seen.append([int(part) for part in answer.fields["x-homing-blocks"].split("/")])
            await until(running.settled)
        (before, blocks), (after, same) = seen
        assert blocks == same > 5
        assert (before, after) == (0, blocks)


async def test_only_chats_and_completions_are_kept_for_prewarming() -> None:
    """What is kept is sent again to these two."""
    async with workers() as (running, _):
        for path in SALTED:
            await ask(running, path)
        await until(running.settled)
        assert len(running.gateway.prewarmer.store) == 0
