"""What is remembered of bodies reads as if it were read anew, is one sender's alone, and is bounded."""

from __future__ import annotations

import json

import pytest

from gateway.errors import InvalidRequest
from gateway.read_bodies import CALL_BYTES, LARGEST_BYTES, ReadBodies
from gateway.wire import Call, Endpoint, parse_call
from router.core import Prompt
from router.normalise import DEFAULT
from router.prompt import PromptBuilder
from router.seen_prompts import source_digest
from router.tokenise import bytes_text


def build_body(text: str = "hello", **fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **fields}).encode()


def read_all(bodies: ReadBodies, *texts: str) -> list[Call]:
    return [bodies.read(b"acme", Endpoint.CHAT, build_body(text)) for text in texts]


def test_a_body_that_comes_again_is_the_same_call() -> None:
    """The second time nothing is parsed: the very same call comes out, equal to one that is read anew."""
    bodies = ReadBodies()
    first, second = read_all(bodies, "hello", "hello")
    assert first is second
    assert first == parse_call(Endpoint.CHAT, build_body())


@pytest.mark.parametrize("other", [build_body("hullo"), build_body() + b" ", build_body(stream=True)])
def test_a_body_that_differs_in_a_byte_is_read_by_itself(other: bytes) -> None:
    """Not even white space is passed over."""
    bodies = ReadBodies()
    bodies.read(b"acme", Endpoint.CHAT, build_body())
    assert bodies.read(b"acme", Endpoint.CHAT, other) == parse_call(Endpoint.CHAT, other)
    assert len(bodies) == 2


def test_a_digest_that_two_bodies_share_misleads_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """xxh3 is no cryptography: whoever finds two bodies of one digest gets each of them read, the later one kept."""
    monkeypatch.setattr("gateway.read_bodies.xxh3_64_intdigest", lambda _body: 1)
    bodies = ReadBodies()
    calls = read_all(bodies, "one", "two", "two", "one")
    assert [call.body for call in calls] == [build_body(text) for text in ("one", "two", "two", "one")]
    assert calls[1] is calls[2]
    assert calls[0] is not calls[3]
    bodies.check_integrity()


def test_no_sender_and_no_endpoint_finds_anothers() -> None:
    """A body that another key, or another endpoint, has had is read anew, and takes as long as any."""
    bodies = ReadBodies()
    mine = bodies.read(b"acme", Endpoint.CHAT, build_body())
    assert bodies.read(b"other", Endpoint.CHAT, build_body()) is not mine
    assert bodies.read(b"acme", Endpoint.TOKENIZE, build_body()).endpoint is Endpoint.TOKENIZE
    assert len(bodies) == 3


def test_what_cannot_be_read_is_refused_each_time_and_not_kept() -> None:
    """Errors are not remembered."""
    bodies = ReadBodies()
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            bodies.read(b"acme", Endpoint.CHAT, b'{"model": 1}')
    assert not len(bodies)


def test_the_least_recently_used_go_first() -> None:
    """Bounded in bytes: of three bodies with room for two, the one that was used again stays."""
    bodies = ReadBodies(bound_bytes=2 * (CALL_BYTES + 2 * len(build_body("a"))))
    first = read_all(bodies, "a", "b", "a", "c")[0]
    assert len(bodies) == 2
    bodies.check_integrity()
    assert read_all(bodies, "a")[0] is first


def test_a_body_over_the_bound_is_read_and_not_kept() -> None:
    """One giant must not drive out everybody else."""
    bodies = ReadBodies()
    call = bodies.read(b"acme", Endpoint.CHAT, build_body("x" * LARGEST_BYTES))
    assert call.source.messages is not None
    assert not len(bodies)


def test_what_is_made_of_a_call_leaves_it_as_it_was() -> None:
    """Folding, rendering and hashing change nothing of it: a second prompt of the same call is the same prompt."""
    bodies = ReadBodies()
    body = build_body(
        "a line  \n\n\n\nof 2026-11-30T10:00:00Z", tools=[{"type": "function", "function": {"name": "f"}}]
    )
    prompts: list[Prompt] = []
    for _ in range(2):
        call = bodies.read(b"acme", Endpoint.CHAT, body)
        builder = PromptBuilder(bytes_text("for a test"), 64)
        prompts.append(builder.build(call.source, salt="s", model="m", rules=DEFAULT))
        assert call == parse_call(Endpoint.CHAT, body)
        assert source_digest(call.source) == source_digest(parse_call(Endpoint.CHAT, body).source)
    assert prompts[0] == prompts[1]
