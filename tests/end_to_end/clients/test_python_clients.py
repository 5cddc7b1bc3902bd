"""openai, anthropic and langchain-openai from PyPI: chat, streams, tools, usage, errors, retries, leaving."""

from __future__ import annotations

import time
from typing import Any

import anthropic
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from tests.end_to_end.clients.conftest import KEY, Running
from tests.end_to_end.clients.model_server import MODEL, WORDS
from tests.end_to_end.processes import wait_for

SIMULATED = "smollm2"
TEXT = "".join(WORDS)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}
CITY = {"city": "Oslo"}


def said(text: str = "How is the weather?") -> list[Any]:
    return [{"role": "user", "content": text}]


@pytest.fixture
def api(running: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key=KEY, timeout=20)


@pytest.fixture
def claude(running: Running) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=running.url, api_key=KEY, timeout=20)


@pytest.fixture
def chain(running: Running) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{running.url}/v1", api_key=KEY, model=MODEL, timeout=20)


def test_openai_chats_and_streams_over_a_simulated_worker(api: openai.OpenAI) -> None:
    """The streamed text is the whole answer's; usage is there when asked for, with cached tokens the second time."""
    asked: dict[str, Any] = {"model": SIMULATED, "messages": said("Tell it. " * 60), "max_tokens": 8, "temperature": 0}
    whole = api.chat.completions.create(**asked)
    chunks = list(api.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens
    assert usage.completion_tokens == 8
    assert [model.id for model in api.models.list()] == [SIMULATED, MODEL]
    assert api.models.retrieve(SIMULATED).id == SIMULATED


@pytest.mark.parametrize("stream", [False, True])
def test_openai_calls_tools(api: openai.OpenAI, stream: bool) -> None:
    """The call, its arguments, and the answer after its result."""
    if stream:
        with api.chat.completions.stream(model=MODEL, messages=said(), tools=[CHAT_TOOL]) as events:
            message = events.get_final_completion().choices[0].message
    else:
        message = api.chat.completions.create(model=MODEL, messages=said(), tools=[CHAT_TOOL]).choices[0].message
    call: Any = (message.tool_calls or [])[0]
    assert (call.id, call.function.name, call.function.arguments) == ("c1", "weather", '{"city": "Oslo"}')
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    turns = [*said(), message.model_dump(exclude_none=True), result]
    assert (
        api.chat.completions.create(model=MODEL, messages=turns, tools=[CHAT_TOOL]).choices[0].message.content == TEXT
    )


def test_openai_responses_whole_and_streamed(api: openai.OpenAI, running: Running) -> None:
    """Instructions, usage with cached tokens, the events in order."""
    whole = api.responses.create(model=MODEL, input="Hi", instructions="Be brief.")
    assert whole.output_text == TEXT
    assert whole.usage is not None
    assert whole.usage.input_tokens_details.cached_tokens == 32
    assert running.server.bodies["/v1/responses"]["cache_salt"]
    with api.responses.stream(model=MODEL, input="Hi") as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == TEXT
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") == len(WORDS)


def test_openai_responses_call_tools(api: openai.OpenAI) -> None:
    """Streamed; the result goes back as an item."""
    tool: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
    with api.responses.stream(model=MODEL, input="Hi", tools=[tool]) as stream:
        for _ in stream:
            pass
        call: Any = stream.get_final_response().output[0]
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"city": "Oslo"}')
    items: Any = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
    ]
    assert api.responses.create(model=MODEL, input=items, tools=[tool]).output_text == TEXT


def test_openai_embeds(api: openai.OpenAI) -> None:
    """A batch, in the client's own encoding."""
    answer = api.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="float")
    assert answer.data[0].embedding == [0.25, -0.5]
    assert answer.usage.prompt_tokens == 9


def test_openai_raises_its_own_errors(api: openai.OpenAI, running: Running) -> None:
    """401, 404 and 400 at the first try, with their codes."""
    with pytest.raises(openai.AuthenticationError) as wrong:
        api.with_options(api_key="nobody").chat.completions.create(model=MODEL, messages=said())
    assert wrong.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError) as unknown:
        api.responses.create(model="gpt-9", input="x")
    assert unknown.value.code == "model_not_found"
    assert unknown.value.request_id
    before = running.server.asked["/v1/responses"]
    with pytest.raises(openai.BadRequestError) as bad:
        api.responses.create(model=MODEL, input="x", previous_response_id="resp_1")
    assert bad.value.param == "previous_response_id"
    assert running.server.asked["/v1/responses"] == before


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_openai_tries_again_when_told_when(api: openai.OpenAI, running: Running, path: str) -> None:
    """Two 503s with `retry-after-ms`, then the answer; the hint passes, so it takes no half seconds."""
    before, began = running.server.asked[path], time.monotonic()
    if path == "/v1/responses":
        assert api.responses.create(model=MODEL, input="refuse twice, for responses").output_text == TEXT
    else:
        asked = said("refuse twice, for openai")
        assert api.chat.completions.create(model=MODEL, messages=asked).choices[0].message.content == TEXT
    assert running.server.asked[path] == before + 3
    assert time.monotonic() - began < 5


def test_openai_hears_of_a_broken_stream(api: openai.OpenAI) -> None:
    """Case C-06 as a caller sees it: an error, after what had come, from both APIs."""
    came: list[Any] = []
    with pytest.raises(openai.APIError, match="broke off"):
        came.extend(api.chat.completions.create(model=MODEL, messages=said("break"), stream=True))
    assert came
    came.clear()
    with pytest.raises(openai.APIError, match="broke off"):
        came.extend(api.responses.create(model=MODEL, input="break", stream=True))
    assert "response.completed" not in {event.type for event in came}


def test_openai_reads_a_stream_that_begins_with_heartbeats(api: openai.OpenAI) -> None:
    """Case C-14 with the official client."""
    chunks = list(api.chat.completions.create(model=MODEL, messages=said("slow"), stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert api.responses.create(model=MODEL, input="slow", stream=True).__next__().type == "response.created"


def test_openai_leaving_a_stream_stops_the_worker(api: openai.OpenAI, running: Running) -> None:
    """The worker sees its connection close."""
    before = running.server.left
    stream = api.chat.completions.create(model=MODEL, messages=said("endless"), stream=True)
    next(iter(stream))
    stream.close()
    wait_for(lambda: running.server.left > before, seconds=5, what="the worker to see it")
    running.wait_until_idle()


def test_anthropic_messages_whole_and_streamed(claude: anthropic.Anthropic, running: Running) -> None:
    """System text with a cache breakpoint, usage with cached tokens, the events in order."""
    system: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": said(), "system": system}
    whole = claude.messages.create(**asked)
    assert (whole.content[0].text, whole.usage.cache_read_input_tokens) == (TEXT, 32)
    assert whole._request_id
    sent = running.server.bodies["/v1/messages"]
    assert sent["system"] == system
    assert sent["cache_salt"]
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == TEXT
        final = stream.get_final_message()
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("end_turn", 8, 2)
    assert claude.messages.count_tokens(model=MODEL, messages=said()).input_tokens == 18


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_calls_tools(claude: anthropic.Anthropic, stream: bool) -> None:
    """The call, and the answer after its result."""
    tools: Any = [{"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}]
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "tools": tools}
    if stream:
        with claude.messages.stream(**asked, messages=said()) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(**asked, messages=said())
    assert message.stop_reason == "tool_use"
    call: Any = message.content[0]
    assert (call.type, call.name, call.input) == ("tool_use", "weather", CITY)
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}
    turns: Any = [*said(), {"role": "assistant", "content": [call.model_dump(exclude_none=True)]}, result]
    assert claude.messages.create(**asked, messages=turns).content[0].text == TEXT


def test_anthropic_raises_its_own_errors(claude: anthropic.Anthropic) -> None:
    """By status and type, with the request's id."""
    with pytest.raises(anthropic.AuthenticationError) as wrong:
        claude.with_options(api_key="nobody").messages.create(model=MODEL, max_tokens=9, messages=said())
    assert wrong.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    with pytest.raises(anthropic.NotFoundError) as unknown:
        claude.messages.create(model="claude-9", max_tokens=9, messages=said())
    assert unknown.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    assert unknown.value.request_id == unknown.value.body["request_id"]  # type: ignore[index]


def test_anthropic_tries_again_when_told_when(claude: anthropic.Anthropic, running: Running) -> None:
    """The worker's 503 is 529 here, and its hint passes."""
    before = running.server.asked["/v1/messages"]
    answer = claude.messages.create(model=MODEL, max_tokens=9, messages=said("refuse twice, for anthropic"))
    assert answer.content[0].text == TEXT
    assert running.server.asked["/v1/messages"] == before + 3


def test_anthropic_hears_of_a_broken_stream_and_passes_over_pings(claude: anthropic.Anthropic) -> None:
    """`event: error` raises; pings before the first event are none of the caller's business."""
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 9}
    with pytest.raises(anthropic.APIStatusError, match="broke off"):
        with claude.messages.stream(**asked, messages=said("break")) as stream:
            stream.get_final_message()
    with claude.messages.stream(**asked, messages=said("slow")) as stream:
        assert stream.get_final_text() == TEXT


def test_anthropic_leaving_a_stream_stops_the_worker(claude: anthropic.Anthropic, running: Running) -> None:
    """The worker sees its connection close."""
    before = running.server.left
    with claude.messages.create(model=MODEL, max_tokens=9, messages=said("endless"), stream=True) as stream:
        next(iter(stream))
    wait_for(lambda: running.server.left > before, seconds=5, what="the worker to see it")
    running.wait_until_idle()


def test_langchain_chats_streams_and_counts(chain: ChatOpenAI) -> None:
    """Usage with cached tokens, streamed too."""
    whole = chain.invoke("Hi")
    assert whole.content == TEXT
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["input_token_details"]["cache_read"] == 32
    total = None
    for chunk in chain.stream("Hi", stream_usage=True):
        total = chunk if total is None else total + chunk
    assert total is not None
    assert total.content == TEXT
    assert total.usage_metadata is not None
    assert total.usage_metadata["output_tokens"] == 4


def test_langchain_calls_tools(chain: ChatOpenAI) -> None:
    """Bound tools, the call, the answer after its result."""
    bound = chain.bind_tools([CHAT_TOOL])
    question = HumanMessage("How is the weather?")
    answer = bound.invoke([question])
    call = answer.tool_calls[0]
    assert (call["name"], call["args"]) == ("weather", CITY)
    assert bound.invoke([question, answer, ToolMessage("rain", tool_call_id=call["id"])]).content == TEXT


def test_langchain_speaks_the_responses_api_and_embeds(running: Running) -> None:
    """Both by the gateway's own paths."""
    url = f"{running.url}/v1"
    answer = ChatOpenAI(base_url=url, api_key=KEY, model=MODEL, use_responses_api=True).invoke("Hi")
    assert answer.content[0]["text"] == TEXT
    embedder = OpenAIEmbeddings(base_url=url, api_key=KEY, model=MODEL, check_embedding_ctx_length=False)
    assert embedder.embed_query("a") == [0.25, -0.5]


def test_langchain_raises_and_tries_again(chain: ChatOpenAI, running: Running) -> None:
    """As the client below it."""
    before = running.server.asked["/v1/chat/completions"]
    assert chain.invoke("refuse twice, for langchain").content == TEXT
    assert running.server.asked["/v1/chat/completions"] == before + 3
    with pytest.raises(openai.NotFoundError):
        ChatOpenAI(base_url=f"{running.url}/v1", api_key=KEY, model="gpt-9").invoke("Hi")
