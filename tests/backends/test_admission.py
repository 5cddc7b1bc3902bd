"""The waiting room counts what is in it."""

from __future__ import annotations

import pytest

from backends.admission import Admission, WaitingRoom
from backends.api_errors import QueuedTokensOverflowError, QueueOverflowError
from backends.types import GenerationRequest


def build_request(name: str, tokens: int) -> GenerationRequest:
    return GenerationRequest(name, [1] * tokens)


def test_without_bounds_everybody_may_wait():
    """vLLM's default."""
    room = WaitingRoom(Admission())
    for number in range(100):
        room.enter([build_request(str(number), 1000)], waiting_requests=number)
    room.check_integrity()


def test_a_full_room_names_both_numbers():
    """503 with how many wait and how many may."""
    room = WaitingRoom(Admission(max_queued_requests=2))
    room.enter([build_request("a", 1)], waiting_requests=1)
    with pytest.raises(QueueOverflowError, match="2 requests wait already; the bound is 2") as caught:
        room.enter([build_request("b", 1)], waiting_requests=2)
    assert (caught.value.status, caught.value.type) == (503, "QueueOverflowError")
    assert caught.value.retry_after_seconds == 1


def test_tokens_are_counted_until_their_owner_leaves():
    """Leaving twice, or without having come, changes nothing."""
    room = WaitingRoom(Admission(max_queued_tokens=100))
    room.enter([build_request("a", 60)], 0)
    with pytest.raises(QueuedTokensOverflowError) as caught:
        room.enter([build_request("b", 60)], 0)
    assert (caught.value.status, caught.value.type) == (503, "MaxQueuedTokensError")
    room.leave(["a", "a", "never"])
    room.enter([build_request("b", 60)], 0)
    room.check_integrity()


def test_a_prompt_over_the_bound_may_wait_alone():
    """Else it could never be served."""
    WaitingRoom(Admission(max_queued_tokens=100)).enter([build_request("a", 5000)], 0)


def test_the_prompts_of_a_call_come_in_together():
    """A batch over both bounds is no crowd where nobody waits; where somebody does, it is."""
    room = WaitingRoom(Admission(max_queued_requests=2, max_queued_tokens=100))
    batch = [build_request(str(number), 60) for number in range(4)]
    room.enter(batch, waiting_requests=0)
    with pytest.raises(QueueOverflowError):
        room.enter([build_request("a", 1)], waiting_requests=4)
    with pytest.raises(QueuedTokensOverflowError, match="240 prompt tokens wait already and 120 are asked"):
        room.enter([build_request("a", 60), build_request("b", 60)], waiting_requests=0)
    room.leave(request.request_id for request in batch)
    room.check_integrity()
    room.enter([build_request("a", 60), build_request("b", 60)], waiting_requests=0)
