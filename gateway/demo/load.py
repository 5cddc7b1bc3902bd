"""The demonstration's load as plain data: who says what, turn by turn, and how many cache blocks it needs.

Three tenants with four conversations each (one tenant has a clock on its first line, which moves with every second
turn) and one agent loop whose history grows by tool results. Answers have a fixed length, so both policies do the same
work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.demo import texts

Message = dict[str, Any]
TENANTS = ("shop", "lease", "travel")
ANSWER_TOKENS = 16
BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Conversation:
    """One caller: `opening(turn)` is its system text at that turn, `turns` what it adds before each answer."""

    name: str
    tenant: str
    opening: Callable[[int], str]
    turns: tuple[Message, ...]

    def messages(self, answers: Sequence[str]) -> list[Message]:
        """The request of the next turn, after `answers` to the earlier ones."""
        turn = len(answers)
        messages: list[Message] = [{"role": "system", "content": self.opening(turn)}]
        for said, answer in zip(self.turns, answers, strict=False):
            messages += [said, {"role": "assistant", "content": answer}]
        return [*messages, self.turns[turn]]


def conversations(turns: int = 4, per_tenant: int = 4) -> list[Conversation]:
    """The whole load; with the defaults 12 conversations of 4 turns and one agent of 8 steps."""
    talks = [_conversation(tenant, number, turns) for number in range(per_tenant) for tenant in TENANTS]
    return [*talks, _agent(2 * turns)]


def distinct_blocks(load: Sequence[Conversation], chain_of: Callable[[str, list[Message]], Sequence[bytes]]) -> int:
    """How many different cache blocks the load fills, with stand-in answers of the real length.

    `chain_of(tenant, messages)` returns the block hashes of a request, BLOCK_TOKENS tokens each.
    """
    blocks: set[bytes] = set()
    for conversation in load:
        for messages in _requests(conversation):
            blocks.update(chain_of(conversation.tenant, messages))
    return len(blocks)


def _requests(conversation: Conversation) -> Iterator[list[Message]]:
    stand_in = " ".join(f"w{conversation.name[-1]}" for _ in range(ANSWER_TOKENS // 3))
    for turn in range(len(conversation.turns)):
        yield conversation.messages([stand_in] * turn)


def _conversation(tenant: str, number: int, turns: int) -> Conversation:
    openings: dict[str, Callable[[int], str]] = {
        "shop": lambda _turn: texts.shop_system_prompt(),
        "lease": lambda _turn: texts.lease_system_prompt(),
        "travel": texts.travel_system_prompt,
    }
    said = tuple({"role": "user", "content": texts.question(tenant, number, turn)} for turn in range(turns))
    return Conversation(f"{tenant}-{number}", tenant, openings[tenant], said)


def _agent(steps: int) -> Conversation:
    first: Message = {"role": "user", "content": "Build the project stage by stage."}
    results = tuple(
        {"role": "tool", "tool_call_id": f"call_{step}", "content": texts.tool_result(step)} for step in range(1, steps)
    )
    return Conversation("agent-0", "shop", lambda _turn: texts.agent_system_prompt(), (first, *results))
