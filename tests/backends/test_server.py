"""The worker over HTTP, simulated: what a gateway sees of it, beside what it saw of a real vLLM."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from backends.conversation import Conversation
from backends.types import SamplingParams
from tests.backends.server_builders import (
    CHAT,
    COMPLETIONS,
    RunningWorker,
    events,
    recorded,
    running_worker,
    shape,
    until,
)

LIKE_VLLM = ["--max-model-len", "4096", "--block-size", "32"]
ANSWERED = [
    *("chat", "chat_again_cached", "chat_salt_a", "completions_token_ids", "completions_batch"),
    *("tokenize", "detokenize", "models", "version", "load"),
]
REFUSED = ["error_unknown_model", "error_bad_salt", "error_n_zero", "server_info", "not_found"]


async def until_in_flight(running: RunningWorker, count: int) -> None:
    """Wait until so many requests at least are at the engine."""

    async def there() -> bool:
        return running.worker.in_flight >= count

    await until(there, f"{count} requests never came")


def without_our_own(answer):
    """An answer without what model cards say to gateways beyond vLLM."""
    for card in answer["data"] if isinstance(answer, dict) and answer.get("object") == "list" else ():
        card.pop("cache_fields", None)
    return answer


@pytest.mark.parametrize("name", ANSWERED)
async def test_a_recorded_request_gets_an_answer_of_the_recorded_shape(name: str):
    """Status, content type, every key in its place and every value of its kind."""
    exchange = recorded(name)
    async with (
        running_worker(*LIKE_VLLM) as running,
        running.client.request(exchange["method"], exchange["path"], json=exchange.get("request")) as response,
    ):
        assert response.status == exchange["status"]
        assert response.content_type == exchange["headers"]["content-type"]
        assert shape(without_our_own(await response.json())) == shape(json.loads(exchange["body"]))


@pytest.mark.parametrize("name", REFUSED)
async def test_a_recorded_refusal_is_given_byte_for_byte(name: str):
    """The same words, type, parameter and code."""
    exchange = recorded(name)
    async with (
        running_worker(*LIKE_VLLM) as running,
        running.client.request(exchange["method"], exchange["path"], json=exchange.get("request")) as response,
    ):
        assert (response.status, await response.text()) == (exchange["status"], exchange["body"])


async def test_too_long_a_prompt_is_refused_in_vllms_words():
    """With the exact count where vLLM says "at least"."""
    exchange = recorded("error_too_long")
    async with running_worker(*LIKE_VLLM) as running:
        status, answer = await running.post(exchange["path"], exchange["request"])
    expected = json.loads(exchange["body"])["error"]
    tokens = len(exchange["request"]["prompt"])
    message = expected["message"].replace("at least 4097", str(tokens)).replace("value=4097", f"value={tokens}")
    assert (status, answer["error"]) == (400, {**expected, "message": message})


@pytest.mark.parametrize("name", ["chat_stream_usage", "completions_stream"])
async def test_a_recorded_stream_has_the_recorded_events(name: str):
    """The same headers, the same number of events, the same keys in each."""
    exchange = recorded(name)
    async with (
        running_worker(*LIKE_VLLM) as running,
        running.client.post(exchange["path"], json=exchange["request"]) as response,
    ):
        assert response.headers["Content-Type"] == exchange["headers"]["content-type"]
        assert response.headers["Transfer-Encoding"] == "chunked"
        seen = events(await response.read())
    wanted = events(exchange["body"])
    assert [event if event == "[DONE]" else shape(event) for event in seen] == [
        event if event == "[DONE]" else shape(event) for event in wanted
    ]


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b'"x"', b"{", b"", b'{"messages":null}', b'{"messages":[1]}', b"\xff\xfe", b"[" * 5000]
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize", "/detokenize"])
async def test_a_malformed_body_is_a_400_in_openais_shape(path: str, body: bytes):
    """D-15: never a 500, never a traceback."""
    async with (
        running_worker() as running,
        running.client.post(path, data=body, headers={"Content-Type": "application/json"}) as response,
    ):
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (400, 400)
        assert set(error) == {"message", "type", "param", "code"}
        assert "Traceback" not in error["message"]


async def test_a_body_that_says_it_is_a_form_is_refused():
    """As vLLM; curl says so when told nothing."""
    async with running_worker() as running, running.client.post(CHAT, data=b'{"messages":[]}') as response:
        assert response.status == 400
        assert "Only 'application/json' is allowed" in (await response.json())["error"]["message"]


async def test_a_body_over_the_limit_is_a_413():
    """Before it fills the memory."""
    async with running_worker("--max-body-bytes", "1000") as running:
        status, answer = await running.post(COMPLETIONS, {"prompt": "x" * 2000})
        assert (status, answer["error"]["code"]) == (413, 413)
        assert "1000 bytes" in answer["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_frees_its_blocks(stream: bool):
    """Whether it was reading a stream or waiting for a whole answer."""
    async with running_worker() as running:
        running.gate.shut()
        body = {"prompt": "x" * 100, "max_tokens": 5000, "stream": stream}
        request = asyncio.create_task(running.post(COMPLETIONS, body))
        await running.gate.holds_a_step()
        request.cancel()
        await asyncio.wait({request})
        running.gate.open()
        await running.until_metric("request_success_total", lambda ended: ended == 1)
        assert await running.metric("num_requests_running") == 0
        assert await running.metric("kv_cache_usage_perc") == 0
        assert (await running.client.get("/load")).status == 200
        assert running.worker.in_flight == 0


async def test_a_failed_step_is_a_500_and_the_next_request_is_served():
    """In vLLM's shape; inside a stream as an event."""
    async with running_worker() as running:
        running.runner.failures = 1
        status, answer = await running.post(COMPLETIONS, {"prompt": "x"})
        assert (status, answer["error"]["type"]) == (500, "InternalServerError")
        running.runner.failures = 1
        async with running.client.post(COMPLETIONS, json={"prompt": "x", "stream": True}) as response:
            assert response.status == 200
            error, done = events(await response.read())
        assert (error["error"]["code"], done) == (500, "[DONE]")
        assert (await running.complete("x"))["usage"]["completion_tokens"] == 16
        assert (await running.client.get("/health")).status == 200


async def test_a_fault_in_the_middle_of_a_stream_ends_it_as_an_event(monkeypatch, caplog):
    """No second head in the body, no end mark, no words of the fault anywhere; the next one is served."""
    taken, words = [], "what a prompt says"
    take = Conversation.take

    def fail_at_the_third(self, delta):
        taken.append(delta)
        if len(taken) == 3:
            raise KeyError(words)
        return take(self, delta)

    monkeypatch.setattr(Conversation, "take", fail_at_the_third)
    async with running_worker() as running:
        async with running.client.post(COMPLETIONS, json={"prompt": "x", "stream": True}) as response:
            assert response.status == 200
            *chunks, error = events(await response.read())
        assert [len(chunk["choices"]) for chunk in chunks] == [1, 1]
        assert (error["error"]["code"], error["error"]["type"]) == (500, "InternalServerError")
        assert "KeyError in /v1/completions" in caplog.text
        assert words not in caplog.text + error["error"]["message"]
        assert (await running.complete("x"))["usage"]["completion_tokens"] == 16
        assert await running.metric("num_requests_running") == 0


async def test_too_many_waiting_requests_get_a_503_and_are_counted():
    """vLLM answers 503 here, not 429."""
    async with running_worker("--max-num-seqs", "1", "--max-num-queued-reqs", "1") as running:
        running.gate.shut()
        body = {"prompt": "x", "max_tokens": 3}
        first = asyncio.create_task(running.post(COMPLETIONS, body))
        await running.gate.holds_a_step()
        others = [asyncio.create_task(running.post(COMPLETIONS, body)) for _ in range(3)]
        await until_in_flight(running, 4)
        running.gate.open()
        results = await asyncio.gather(first, *others)
        refused = [answer["error"] for status, answer in results if status == 503]
        assert all(error["type"] == "QueueOverflowError" for error in refused)
        assert await running.metric("admission_rejections_total") == len(refused) == 2
        assert results[0][0] == 200


async def test_an_overloaded_worker_says_when_to_come_back():
    """Retry-After on every 503, whether it is full or leaving."""

    async def refusal(running: RunningWorker) -> tuple[int, str | None]:
        async with running.client.post(COMPLETIONS, json={"prompt": "x" * 9, "max_tokens": 1}) as response:
            return response.status, response.headers.get("Retry-After")

    async with running_worker("--max-num-queued-tokens", "10") as running:
        running.gate.shut()
        requests = [asyncio.create_task(refusal(running)) for _ in range(3)]
        await running.gate.holds_a_step()
        requests += [asyncio.create_task(refusal(running)) for _ in range(3)]
        await until_in_flight(running, 4)
        running.gate.open()
        answers = set(await asyncio.gather(*requests))
        assert answers == {(200, None), (503, "1")}
        running.worker.draining = True
        assert await refusal(running) == (503, "1")


async def test_the_request_id_comes_back_and_names_the_answer():
    """As vLLM: in the header, and in the answer's id."""
    async with running_worker() as running:
        headers = {"X-Request-Id": "trace-7"}
        async with running.client.post(COMPLETIONS, json={"prompt": "x"}, headers=headers) as response:
            assert response.headers["X-Request-Id"] == "trace-7"
            assert (await response.json())["id"] == "cmpl-trace-7"
        async with running.client.get("/health") as response:
            assert "X-Request-Id" not in response.headers
            assert response.headers["Server"] == "homing"
        assert re.fullmatch(r"cmpl-[0-9a-f]{16}", (await running.complete("x"))["id"])


async def test_equal_request_ids_do_not_meet_in_the_engine():
    """A gateway may send one id twice at once."""
    async with running_worker() as running:
        body = {"prompt": "x", "max_tokens": 20}
        headers = {"X-Request-Id": "same"}
        results = await asyncio.gather(*(running.post(COMPLETIONS, body, **headers) for _ in range(5)))
        assert [status for status, _ in results] == [200] * 5


async def test_request_ids_are_minted_when_asked_for():
    """--enable-request-id-headers."""
    async with running_worker("--enable-request-id-headers") as running, running.client.get("/health") as response:
        assert re.fullmatch(r"[0-9a-f]{32}", response.headers["X-Request-Id"])


async def test_a_key_guards_v1_and_nothing_else():
    """As vLLM: probes and metrics need none."""
    async with running_worker("--api-key", "one", "two") as running:
        for key, expected in (("one", 200), ("two", 200), ("three", 401), ("", 401)):
            status, _ = await running.post(COMPLETIONS, {"prompt": "x"}, Authorization=f"Bearer {key}")
            assert status == expected
        assert (await running.post(COMPLETIONS, {"prompt": "x"})) == (401, {"error": "Unauthorized"})
        assert (await running.client.get("/v1/models")).status == 401
        assert (await running.client.get("/health")).status == 200
        assert (await running.client.get("/metrics")).status == 200


async def test_a_seeded_worker_gives_seeds_to_those_who_have_none():
    """--seed N: N, N+1, … to the answers, so that no request repeats another's; a request's own seed stays."""
    async with running_worker("--seed", "40") as running:
        asked = [SamplingParams(n=3), SamplingParams(seed=7), SamplingParams()]
        assert [running.worker.with_seed(sampling).seed for sampling in asked] == [40, 7, 43]
