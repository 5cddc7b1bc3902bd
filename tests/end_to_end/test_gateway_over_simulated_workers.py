"""A gateway process, three worker processes with a timing model, and the official client."""

from __future__ import annotations

import json
import re
import urllib.request

import openai
import pytest

from tests.end_to_end.fleet import HEAD, KEYS, MODEL, ask, build_config, cached, chat, client
from tests.end_to_end.processes import gateway, get, simulated_worker, wait_for

NAMES = ("w0", "w1", "w2")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """The gateway, over three workers."""
    directory = tmp_path_factory.mktemp("fleet")
    with simulated_worker(directory) as a, simulated_worker(directory) as b, simulated_worker(directory) as c:
        config = build_config(directory, dict(zip(NAMES, (a.url, b.url, c.url))))
        with gateway(directory, config) as process:
            yield process


@pytest.fixture
def alpha(running):
    return client(running.url)


def metric(process, pattern: str) -> float:
    """The sum of the samples whose line matches."""
    text = get(f"{process.admin}/metrics")[1]
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))


def post(url: str, body: bytes, **headers: str) -> tuple[int, dict]:
    """A raw request; status and JSON."""
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_same_prompt_again_is_answered_from_the_cache_of_its_worker(alpha):
    """Second time: the same worker, cached tokens reported, the same words."""
    messages = chat("Again. " + HEAD, "What now?")
    first, home = ask(alpha, messages)
    second, again = ask(alpha, messages)
    assert again == home
    assert cached(first) < 64  # the template's own opening is everybody's
    assert cached(second) > 0.8 * second.usage.prompt_tokens
    assert second.choices[0].message.content == first.choices[0].message.content


def test_another_tenant_finds_nothing_of_it(alpha, running):
    """Positive control first, then the other tenant's miss: isolation, not a cache that is off."""
    messages = chat("Secret of alpha. " + HEAD, "What now?")
    ask(alpha, messages)
    assert cached(ask(alpha, messages)[0]) > 0
    assert cached(ask(client(running.url, "beta"), messages)[0]) == 0


def test_the_turns_of_a_conversation_stay_at_one_worker_and_conversations_spread(alpha):
    """Nine conversations of four turns: each has one home. Of forty, every worker is home to some.

    The salt is new in each run, so homes are drawn anew: nine alone would miss a worker in one run of thirteen.
    """
    homes = set()
    for number in range(9):
        turns, workers = ["Hello, this is the first thing I say."], set()
        for _ in range(4):
            answer, worker = ask(alpha, chat(f"Conversation {number}. {HEAD}", *turns))
            workers.add(worker)
            turns += [answer.choices[0].message.content, "And then? " * 20]
        assert len(workers) == 1
        homes |= workers
    homes |= {ask(alpha, chat(f"Conversation {number}. {HEAD}", "Hello."), max_tokens=1)[1] for number in range(9, 40)}
    assert homes == set(NAMES)


def test_a_clock_on_the_first_line_does_not_move_the_conversation(alpha):
    """Five requests, a second apart on their clock: one worker, although no cached token is possible."""
    workers = {ask(alpha, chat(f"Current time: 14:05:{second:02d}\n{HEAD}", "Hi"))[1] for second in range(5)}
    assert len(workers) == 1


def test_streams_arrive_piece_by_piece_and_end_with_the_usage_that_was_asked_for(alpha):
    """Role, text, finish, usage; the text equals the answer without streaming."""
    messages = chat(HEAD, "Stream this.")
    options = {"include_usage": True}
    events = list(
        alpha.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=8, temperature=0, stream=True, stream_options=options
        )
    )
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == ask(alpha, messages)[0].choices[0].message.content
    assert events[-1].choices == []
    assert events[-1].usage.completion_tokens == 8
    assert len(events) > 4


def test_a_caller_who_did_not_ask_for_usage_sees_no_chunk_without_choices(alpha, running):
    """The gateway asks the worker for usage for its own account and keeps it to itself."""
    before = metric(running, r"homing_completion_tokens_total\{.*alpha")
    events = list(alpha.chat.completions.create(model=MODEL, messages=chat(HEAD, "Count."), max_tokens=5, stream=True))
    assert all(event.choices and event.usage is None for event in events)
    wait_for(
        lambda: metric(running, r"homing_completion_tokens_total\{.*alpha") >= before + 5, seconds=5, what="the account"
    )


@pytest.mark.parametrize(
    ("prompt", "choices"), [("Once upon a time", 1), ([72, 101, 108, 108, 111], 1), (["Hello", "World"], 2)]
)
def test_completions_take_text_token_ids_and_batches(alpha, prompt, choices):
    """The three shapes of `prompt`."""
    answer = alpha.completions.create(model=MODEL, prompt=prompt, max_tokens=3)
    assert len(answer.choices) == choices
    assert all(choice.text for choice in answer.choices)


def test_text_in_parts_has_the_home_and_the_cache_of_the_same_string(alpha):
    """A parts array is another way to write the same prompt."""
    plain = chat("Parts. " + HEAD, "Hi there")
    _, home = ask(alpha, plain)
    parts = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in plain]
    answer, worker = ask(alpha, parts)
    assert worker == home
    assert cached(answer) > 0


def test_models_are_listed_once(alpha):
    """Three workers, one model."""
    assert [model.id for model in alpha.models.list()] == [MODEL]


def test_a_wrong_key_is_refused_without_a_retry_hint(running):
    """401 in OpenAI's shape, and nothing of the key in it."""
    with pytest.raises(openai.AuthenticationError) as refused:
        ask(client(running.url, "sk-CANARY-91"), chat(HEAD, "Hi"))
    assert refused.value.code == "invalid_api_key"
    assert "CANARY" not in str(refused.value)
    assert refused.value.response.headers["x-should-retry"] == "false"


def test_no_key_is_refused_too(running):
    """An Authorization header is not optional for tenants with keys."""
    status, body = post(f"{running.url}/v1/chat/completions", b'{"model":"smollm2","messages":[]}')
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


def test_an_unknown_model_is_404(alpha):
    """The same answer as for a model of somebody else."""
    with pytest.raises(openai.NotFoundError) as refused:
        ask(alpha, chat(HEAD, "Hi"), model="gpt-9")
    assert refused.value.code == "model_not_found"


def test_a_prompt_longer_than_the_model_takes_is_refused_with_both_numbers(alpha):
    """context_length_exceeded, 400, from whoever notices first."""
    with pytest.raises(openai.BadRequestError) as refused:
        ask(alpha, chat(HEAD, "x" * 20_000))
    assert "16384" in str(refused.value).replace(",", "")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b'{"model":"smollm2"}', b'{"model":"smollm2","messages":null}',
     b'{"model":"smollm2","messages":[1]}', b'{"model":"smollm2","messages":"hello"}', b"\xff\xfe{}",
     b'{"model":"smollm2","messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
     b'{"model":"smollm2","model":"b","messages":[]}', b'{"model":5,"messages":[]}'],
)  # fmt: skip
def test_malformed_bodies_are_400_in_openais_shape(running, body):
    """Never a traceback, never a 500, never a hang."""
    status, answer = post(f"{running.url}/v1/chat/completions", body, authorization=f"Bearer {KEYS['alpha']}")
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert "Traceback" not in json.dumps(answer)


def test_only_known_paths_reach_a_worker(running):
    """The worker's own control routes are not the callers'."""
    for path in ("/reset_prefix_cache", "/v1/load_lora_adapter", "/metrics", "/v1/../metrics", "/server_info"):
        status, _ = post(f"{running.url}{path}", b"{}", authorization=f"Bearer {KEYS['alpha']}")
        assert status in (404, 405)


def test_a_caller_who_leaves_stops_the_work(alpha, running):
    """A stream is dropped after two events: soon nothing is in flight, and the code counted is 499."""
    stream = alpha.chat.completions.create(model=MODEL, messages=chat(HEAD, "Talk."), max_tokens=4000, stream=True)
    next(iter(stream))
    wait_for(lambda: metric(running, r"homing_backend_in_flight") == 1, seconds=5, what="this stream alone")
    stream.close()
    wait_for(lambda: metric(running, r"homing_backend_in_flight") == 0, seconds=5, what="the lease to be given back")
    wait_for(lambda: metric(running, r'homing_requests_total\{.*code="499"') >= 1, seconds=5, what="the count")


def test_explain_on_the_admin_port_says_who_would_get_a_request_and_why(running, alpha):
    """Candidates with their numbers; the winner is the worker that then answers."""
    messages = chat("Explain. " + HEAD, "Hi")
    _, home = ask(alpha, messages)
    body = json.dumps({"model": MODEL, "messages": messages}).encode()
    status, said = post(f"{running.admin}/explain?tenant=alpha", body)
    assert status == 200
    assert said["placement"]["worker"] == home
    assert len(said["placement"]["candidates"]) == 3
    assert said["text_forwarded_unchanged"] is True


def test_the_metrics_tell_affinity_and_cache_apart(running, alpha):
    """Both families exist, with the tenant that asked."""
    for _ in range(2):  # the second one finds the first one's blocks
        ask(alpha, chat(HEAD, "Count me."))
    for family in ("affinity_placements_total", "cached_tokens_total", "prompt_tokens_total", "placements_total"):
        pattern = rf"homing_{family}\{{"
        wait_for(lambda pattern=pattern: metric(running, pattern) > 0, seconds=5, what=family)
    assert metric(running, r"homing_backend_up") == 3


def test_neither_keys_nor_prompts_are_in_log_or_metrics(running, alpha):
    """A canary in every place where a caller can put text."""
    canary = "CANARY-7f3a"
    ask(alpha, chat(f"{canary} {HEAD}", f"{canary}?"), user=canary)
    with pytest.raises(openai.AuthenticationError):
        ask(client(running.url, f"sk-{canary}"), chat(canary, canary))
    with pytest.raises(openai.NotFoundError):
        ask(alpha, chat(canary, "hi"), model=canary)
    everything = running.log.read_text() + get(f"{running.admin}/metrics")[1]
    assert canary not in everything
    assert KEYS["alpha"] not in everything
