"""How much may wait in front of the engine before new requests are refused with 503."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backends.api_errors import QueuedTokensOverflowError, QueueOverflowError
from backends.types import GenerationRequest


@dataclass(frozen=True, slots=True)
class Admission:
    """Bounds on the queue; None is no bound.

    `max_queued_requests` counts what the scheduler holds back, `max_queued_tokens` the prompt tokens of requests
    whose first token has not come yet. The prompts of a call come in together: a call of more prompts or tokens than
    that is taken while the queue has room, or nothing waits; else no trying again would help it.
    """

    max_queued_requests: int | None = None
    max_queued_tokens: int | None = None


class WaitingRoom:
    """Counts prompt tokens that wait for their first token."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._tokens: dict[str, int] = {}
        self._total_tokens = 0

    def enter(self, requests: Sequence[GenerationRequest], waiting_requests: int) -> None:
        """Count a call's requests in; QueueOverflowError or QueuedTokensOverflowError when there is no room for them.

        `waiting_requests` wait before them.
        """
        tokens = {request.request_id: len(request.prompt_ids) for request in requests}
        asked, bound = sum(tokens.values()), self._admission.max_queued_requests
        if bound is not None and waiting_requests >= bound:
            raise QueueOverflowError(f"{waiting_requests} requests wait already; the bound is {bound}.")
        bound = self._admission.max_queued_tokens
        if bound is not None and self._total_tokens and self._total_tokens + asked > bound:
            raise QueuedTokensOverflowError(
                f"{self._total_tokens} prompt tokens wait already and {asked} are asked; the bound is {bound}."
            )
        self._tokens |= tokens
        self._total_tokens += asked

    def leave(self, request_ids: Iterable[str]) -> None:
        """These wait no longer: their first token came, or they are gone."""
        for request_id in request_ids:
            self._total_tokens -= self._tokens.pop(request_id, 0)

    def check_integrity(self) -> None:
        """AssertionError when the total is not the sum."""
        if self._total_tokens != sum(self._tokens.values()):
            raise AssertionError("waiting tokens do not add up")
