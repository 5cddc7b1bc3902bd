"""A router that goes by one worker's recorded events, without sockets: follower, decoder and knowledge put together."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from gateway.events.decode import STORED_FIELDS, Decoder
from gateway.events.follower import Follower
from router.core import FleetView, PromptSource, WorkerView
from router.knowledge import Knowledge
from router.normalise import fold_rules
from router.prompt import PromptBuilder
from router.router import Router
from router.tokenise import find_smollm2, load_tokeniser

RECORDED = Path(__file__).parents[2] / "data" / "fixtures" / "vllm-0.32"
MODEL = "smollm2"
WORKER = "w1"
BLOCK_TOKENS = 32
"""The recorded worker's block."""

Message = tuple[int, bytes]
Replay = Callable[[int], Sequence[Message]]


def recorded(name: str) -> list[Message]:
    """Numbers and payloads of a recorded stream, or of a replay without its end mark."""
    messages = []
    for line in (RECORDED / name).read_text().splitlines():
        *_, number, payload = map(base64.b64decode, json.loads(line)["frames_b64"])
        if payload:
            messages.append((int.from_bytes(number, "big"), payload))
    return messages


def as_arrays(payload: bytes) -> bytes:
    """The same batch as vLLM up to 0.23 would send it: events as arrays, which begin with their name."""
    timestamp, events, *rest = msgspec.msgpack.decode(payload)
    return msgspec.msgpack.encode([timestamp, [as_array(event) for event in events], *rest])


def as_array(event: dict) -> list:
    names = {"BlockStored": STORED_FIELDS, "BlockRemoved": ("block_hashes", "medium", "group_idx")}[event["type"]]
    return [event["type"], *(event.get(name) for name in names)]


@dataclass
class Sink:
    """What a follower tells: the knowledge of one cache."""

    knowledge: Knowledge
    decoder: Decoder = field(default_factory=Decoder)
    applied: list[bytes] = field(default_factory=list)
    cleared: int = 0

    def apply(self, payload: bytes) -> None:
        self.applied.append(payload)
        self.knowledge.apply(self.decoder.decode(payload).events)

    def clear(self) -> None:
        self.cleared += 1
        self.knowledge.clear()


class FollowedRouter:
    """One worker, the router of its model, and a replay socket that is a function; None where there is no such socket.

    `place` and `finish` are told as a gateway would tell them.
    """

    def __init__(self, replay: Replay | None = None) -> None:
        self.knowledge = Knowledge(MODEL, BLOCK_TOKENS)
        self.knowledge.trusted = True
        self.sink = Sink(self.knowledge)
        self.follower = Follower(self.sink, can_ask=replay is not None)
        self.router = Router()
        self.router.follow(WORKER, self.knowledge)
        self.asked: list[int] = []
        self._replay = replay
        self._fleet = FleetView((WorkerView(WORKER),))
        self._builder = PromptBuilder(smollm2(), BLOCK_TOKENS)
        self._now = 0.0

    def hear(self, messages: Iterable[Message]) -> None:
        """Batches as they are published, and every question they raise answered."""
        for number, payload in messages:
            self.follower.hear(number, payload)
            answer(self.follower, self._replay, self.asked)

    def catch_up(self) -> None:
        self.follower.catch_up()
        answer(self.follower, self._replay, self.asked)

    def predicted_cached_tokens(self, text: str, request_id: str) -> int:
        """Place a completion prompt and let it be answered."""
        source = PromptSource(prompt=text)
        prompt = self._builder.build(source, salt=None, model=MODEL, rules=fold_rules("default"))
        self.knowledge.expire(self._now)
        placement = self.router.place(prompt, self._fleet, self._now, request_id=request_id)
        assert placement.worker == WORKER
        assert placement.candidates[0].known
        self.router.first_token(request_id, self._now + 0.1)
        self.router.finished(request_id, self._now + 0.2)
        self._now += 10.0  # what was not shown by then is let go
        return placement.predicted_cached_tokens


def answer(follower: Follower, replay: Replay | None, asked: list[int]) -> None:
    """Ask and answer until nothing is asked for; whoever asks for ever is stopped."""
    for _ in range(50):
        if follower.asks is None:
            return
        assert replay is not None
        first, question = follower.asks, follower.questions
        asked.append(first)
        for number, payload in replay(first):
            follower.replayed(number, payload)
            if follower.questions != question:
                break
        else:
            follower.replay_ended(whole=True)
    raise AssertionError("the follower never stops asking")


def replay_of(messages: Sequence[Message]) -> Replay:
    """A replay socket that has these batches."""
    return lambda first: [message for message in messages if message[0] >= first]


@cache
def smollm2():
    path = find_smollm2()
    assert path is not None
    return load_tokeniser(path)
