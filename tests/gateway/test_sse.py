"""Events come out as they went in, wherever the bytes are cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway.sse
from gateway.sse import EventTooLong, SseScanner, event_data
from gateway.wire import Usage
from tests.gateway.builders import FIXTURES

DONE = b"data: [DONE]\n\n"
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,'
    b'"prompt_tokens_details":{"cached_tokens":8}}}\n\n'
)


def build_event(content: str = "hi", **choice: Any) -> bytes:
    """One chat chunk, as vLLM writes it."""
    body = {"id": "1", "choices": [{"index": 0, "delta": {"content": content}, **choice}]}
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def build_role_event() -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'


def scan(*pieces: bytes, strip: bool = False) -> tuple[SseScanner, bytes]:
    """Feed pieces; the scanner afterwards and everything that came out of it."""
    scanner = SseScanner(strip_usage=strip)
    out = b"".join([scanner.feed(piece) for piece in pieces])
    return scanner, out + scanner.finish()


STREAM = build_role_event() + build_event("北京🙂") + build_event("two") + USAGE + DONE


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_one_byte_at_a_time_gives_the_same_bytes(line_end: bytes) -> None:
    """Case C-03, for every line end that the standard allows."""
    stream = STREAM.replace(b"\n", line_end)
    scanner, out = scan(*[bytes([byte]) for byte in stream])
    assert out == stream
    assert (scanner.usage, scanner.done, scanner.has_content) == (Usage(9, 3, 8), True, True)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans())
def test_the_cuts_make_no_difference(cuts: list[int], line_end: bytes, strip: bool) -> None:
    """What is noticed and what comes out depends on the bytes only."""
    stream = STREAM.replace(b"\n", line_end)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    scanner, out = scan(*[stream[a:b] for a, b in itertools.pairwise(edges)], strip=strip)
    usage = USAGE.replace(b"\n", line_end)
    assert out.replace(b"\r\n", b"\n") == (stream.replace(usage, b"") if strip else stream).replace(b"\r\n", b"\n")
    assert (scanner.events, scanner.usage, scanner.done, scanner.failed) == (3, Usage(9, 3, 8), True, False)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_what_comes_out_ends_between_events(cuts: list[int]) -> None:
    """So that an error event can follow at any time, and no character is halved (case C-04)."""
    scanner = SseScanner(strip_usage=False)
    edges = [0, *sorted(cuts), len(STREAM)]
    for a, b in itertools.pairwise(edges):
        out = scanner.feed(STREAM[a:b])
        assert out == b"" or out.endswith(b"\n\n")
        out.decode()


def test_the_usage_event_is_left_out_when_asked() -> None:
    """Case C-11: nobody who did not ask for it sees a chunk without choices."""
    scanner, out = scan(build_event(), USAGE + DONE, strip=True)
    assert out == build_event() + DONE
    assert scanner.usage == Usage(9, 3, 8)


def test_usage_beside_a_choice_stays() -> None:
    """Some workers put it into the last chunk with a choice: that one is the caller's."""
    choice = b'{"index":0,"delta":{},"finish_reason":"stop"}'
    last = b'data: {"choices":[' + choice + b'],"usage":{"prompt_tokens":4,"completion_tokens":2}}\n\n'
    scanner, out = scan(build_event(), last, DONE, strip=True)
    assert out == build_event() + last + DONE
    assert scanner.usage == Usage(4, 2, None)


def test_a_chunk_without_choices_and_without_usage_stays() -> None:
    """Only what we asked for is ours to take."""
    odd = b'data: {"choices":[],"prompt_filter_results":[]}\n\n'
    _, out = scan(odd, build_event(), DONE, strip=True)
    assert out == odd + build_event() + DONE


def test_the_first_content_is_the_first_output_not_the_role() -> None:
    """Time to first token must not count a chunk that only names the speaker."""
    scanner = SseScanner(strip_usage=False)
    scanner.feed(build_role_event())
    assert not scanner.has_content
    scanner.feed(build_event("x"))
    assert scanner.has_content


@pytest.mark.parametrize(
    "choice",
    [
        {"delta": {"reasoning_content": "hm"}},
        {"delta": {"reasoning": "hm"}},
        {"delta": {"tool_calls": [{"index": 0}]}},
        {"text": "x"},
        {"delta": {}, "finish_reason": "length"},
    ],
)
def test_every_kind_of_output_counts(choice: dict[str, Any]) -> None:
    """Reasoning, tool calls, completions, and an answer that ends at once."""
    scanner, _ = scan(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
    assert scanner.has_content


@pytest.mark.parametrize(
    "event", [b'data: {"error":{"code":400,"message":"no"}}\n\n', b'data: {"object":"error","message":"no"}\n\n']
)
def test_an_error_event_is_noticed_and_passed_on(event: bytes) -> None:
    """Case C-08, at the start and later."""
    for pieces in ([b": ping\n\n", event], [build_event(), event]):
        scanner, out = scan(*pieces)
        assert scanner.failed
        assert out == b"".join(pieces)


def test_generated_text_about_errors_is_no_error() -> None:
    """Text is quoted inside JSON: its quotes are escaped."""
    text = 'data: {"error": "choices":[] [DONE] "usage":{'
    scanner, out = scan(build_event("a"), build_event(text), build_event(text), DONE)
    assert (scanner.failed, scanner.events, scanner.usage) == (False, 3, None)
    assert text.encode() in out.replace(b'\\"', b'"')


def test_comments_and_heartbeats_pass_and_are_no_events() -> None:
    """They keep proxies awake; they are not tokens."""
    stream = b": ping\n\n" + build_event() + b": ping\n\n" + build_event() + DONE
    scanner, out = scan(*[stream[i : i + 7] for i in range(0, len(stream), 7)])
    assert out == stream
    assert scanner.events == 2


def test_what_is_no_json_passes_all_the_same() -> None:
    """The gateway does not judge; it relays."""
    scanner, out = scan(b"data: hello\n\n", b"event: x\ndata: {\n\n", b"garbage")
    assert out == b"data: hello\n\nevent: x\ndata: {\n\ngarbage"
    assert not scanner.failed


def test_many_events_in_one_read_are_all_counted() -> None:
    """A fast worker's events arrive in bunches."""
    scanner, _ = scan(build_event() * 5, build_event() * 40)
    assert scanner.events == 45


def test_an_event_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for one event is bounded."""
    monkeypatch.setattr(gateway.sse, "EVENT_LIMIT_BYTES", 1000)
    scanner = SseScanner(strip_usage=False)
    scanner.feed(b"data: " + b"x" * 900)
    with pytest.raises(EventTooLong):
        scanner.feed(b"x" * 200)


def test_data_of_several_lines_is_joined() -> None:
    """WHATWG: each `data:` line is one line of the data; one space after the colon is not part of it."""
    assert event_data(b"event: x\ndata: a\ndata:  b\n\n") == b"a\n b"
    assert event_data(b": comment\n\n") is None


def recorded_streams() -> list[dict[str, Any]]:
    """Streams of chat and completions as real workers sent them."""
    paths = ("/v1/chat/completions", "/v1/completions")
    return [
        exchange
        for engine in ("vllm-0.32", "llama.cpp")
        for exchange in json.loads((FIXTURES / engine / "exchanges.json").read_text())
        if exchange.get("path") in paths and exchange["status"] == 200 and (exchange.get("request") or {}).get("stream")
    ]


def test_recorded_streams_of_real_workers_are_understood() -> None:
    """vLLM and llama.cpp, byte for byte and with their usage where it was asked for."""
    streams = recorded_streams()
    assert len(streams) >= 2
    for exchange in streams:
        body = exchange["body"].encode()
        scanner, out = scan(*[body[i : i + 50] for i in range(0, len(body), 50)])
        asked = (exchange["request"].get("stream_options") or {}).get("include_usage")
        assert (out, scanner.done, scanner.has_content) == (body, True, True)
        assert not asked or scanner.usage is not None
