"""Every endpoint through real sockets: what the worker gets, what comes back, what is counted, and in whose dialect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.gateway.dialect_worker import (
    EMBEDDINGS,
    as_vllm,
    message_events,
    named_event,
    path_of,
    recorded,
    response_events,
    send_events,
    without_endpoint,
)
from tests.gateway.running_gateway import Answer, Running, running_gateway
from tests.gateway.scripted_worker import Exchange, Script, refused_port, scripted_worker, until

SYSTEM = "Name the source of whatever you say, and keep it short. " * 40
USER = [{"role": "user", "content": "Who is there?"}]
ASKS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "Who is there?", "instructions": SYSTEM},
    "/v1/messages": {"messages": USER, "system": SYSTEM, "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": USER},
    "/v1/embeddings": {"input": ["Who", "is there?"]},
    "/tokenize": {"messages": USER},
    "/detokenize": {"tokens": [28120, 905]},
}
ANSWERS = {
    "/v1/responses": recorded("responses"),
    "/v1/messages": recorded("messages"),
    "/v1/messages/count_tokens": b'{"input_tokens":18}',
    "/v1/embeddings": EMBEDDINGS,
    "/tokenize": recorded("tokenize"),
    "/detokenize": recorded("detokenize"),
}
PATHS = list(ASKS)
SALTED = ("/v1/responses", "/v1/messages", "/v1/embeddings")
ANTHROPIC = ("/v1/messages", "/v1/messages/count_tokens")
STREAMS = {"/v1/responses": response_events("one", "北京🙂"), "/v1/messages": message_events("one", "北京🙂")}


@asynccontextmanager
async def workers(count: int = 1, script: Script = as_vllm, **options: Any) -> AsyncIterator[Any]:
    """A gateway before some workers that answer as vLLM does."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(scripted_worker(script)) for _ in range(count)]
        yield await stack.enter_async_context(running_gateway(*running, **options)), running


async def ask(running: Running, path: str, key: str = "acme-key", **more: Any) -> Answer:
    """The path's own request; `more` are fields of it."""
    body = json.dumps({"model": "m", **ASKS[path], **more}).encode()
    return await running.ask(path=path, body=body, key=key)


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


@pytest.mark.parametrize("path", PATHS)
async def test_errors_of_the_gateway_come_in_the_callers_dialect(path: str) -> None:
    """No key, an unknown model, a bad body, the wrong method."""
    async with workers() as (running, _):
        answers = [
            await ask(running, path, key="nobody"),
            await ask(running, path, model="other"),
            await running.ask(path=path, body=b"{"),
            await running.ask(path=path, method="GET"),
        ]
        assert [answer.status for answer in answers] == [401, 404, 400, 405]
        for answer in answers:
            assert ("request_id" in answer.json) is (path in ANTHROPIC)
            assert answer.error["message"]
        kinds = [answer.error["type"] for answer in answers]
        if path in ANTHROPIC:
            bad = "invalid_request_error"
            assert kinds == ["authentication_error", "not_found_error", bad, bad]
            assert answers[1].json["request_id"] == answers[1].fields["request-id"]
        else:
            assert set(kinds) == {"invalid_request_error"}


@pytest.mark.parametrize("path", PATHS)
async def test_no_worker_at_all_is_503_or_anthropics_529(path: str) -> None:
    """With the hint to come back."""
    async with running_gateway(refused_port(), probe_seconds=0.1) as running:
        answer = await ask(running, path)
        assert answer.status == (529 if path in ANTHROPIC else 503)
        assert answer.fields["retry-after"] == "1"


@pytest.mark.parametrize("path", PATHS)
async def test_a_worker_without_the_endpoint_is_told_of_clearly_and_stays(path: str) -> None:
    """404 in the caller's dialect; the worker goes on answering what it can."""
    async with workers(script=without_endpoint) as (running, (worker,)):
        answer = await ask(running, path)
        assert answer.status == 404
        assert "do not serve this endpoint" in answer.error["message"]
        assert answer.json.get("type") == ("error" if path in ANTHROPIC else None)
        worker.script = as_vllm
        assert (await ask(running, path)).status == 200
        assert running.count("backend_ejections_total", reason="broke") == 0
        assert running.count("requests_total", tenant="acme", model="m", code="404") == 1


async def test_a_workers_refusal_passes_as_it_is_or_in_anthropics_shape() -> None:
    """Case C-09, on the other endpoints: the status, a JSON type, and the worker's words."""
    said = b'{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}'

    async def refuses(exchange: Exchange) -> None:
        await exchange.send_json(said, status="400 Bad Request")

    async with workers(script=refuses) as (running, _):
        answer = await ask(running, "/v1/responses", stream=True)
        assert (answer.status, answer.body) == (400, said)
        answer = await ask(running, "/v1/messages", stream=True)
        assert (answer.status, answer.fields["content-type"]) == (400, "application/json")
        assert answer.error == {"type": "invalid_request_error", "message": "too long"}
        assert answer.json["request_id"] == answer.fields["request-id"]


@pytest.mark.parametrize("path", list(STREAMS))
async def test_a_cut_stream_ends_in_an_error_event_and_no_completion(path: str) -> None:
    """Case C-06 in both dialects: what came passes, then one error event, and nothing that looks like an end."""
    whole = STREAMS[path]

    async def cut(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for each in whole[:3]:
            await exchange.chunk(each)
        await exchange.chunk(whole[3][:20])
        exchange.reset()

    async with workers(script=cut) as (running, _):
        answer = await ask(running, path, stream=True)
        came, _, last = answer.body.rpartition(b"event: ")
        assert came == b"".join(whole[:3])
        assert last.startswith(b"error\ndata: ")
        told = json.loads(last.partition(b"data: ")[2])
        assert told["error"]["type"] == ("api_error" if path in ANTHROPIC else "server_error")
        assert b"completed" not in answer.body
        assert b"message_stop" not in answer.body
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1


@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("/v1/responses", named_event("error", code="x", message="m", param=None, sequence_number=0)),
        ("/v1/messages", named_event("error", error={"type": "overloaded_error", "message": "m"})),
    ],
)
async def test_an_error_event_of_the_worker_passes_and_counts_as_one(path: str, event: bytes) -> None:
    """Case C-08 in both dialects: not tried again, and the worker is not at fault."""

    async def failing(exchange: Exchange) -> None:
        await send_events(exchange, b": ping\n\n", event)

    async with workers(2, script=failing) as (running, fleet):
        answer = await ask(running, path, stream=True)
        assert (answer.status, answer.body) == (200, b": ping\n\n" + event)
        assert sum(len(worker.exchanges) for worker in fleet) == 1
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1
        assert running.count("backend_ejections_total", reason="broke") == 0


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
        assert (await running.ask(path=path)).status == 404
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
