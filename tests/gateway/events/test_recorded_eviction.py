"""Must show: following a real worker's events predicts every cached token it reported, whatever happens to the frames.

24 prompts of the completions endpoint on a vLLM of 160 blocks, tokenised by the model's own tokeniser, placed by the
real router. A prompt that does not hit all of its whole blocks is followed by exactly one batch, others by none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import pytest

from tests.gateway.events.followed import RECORDED, FollowedRouter, Message, as_arrays, recorded, replay_of, smollm2

BATCHES = recorded("kv_events_eviction.jsonl")
REPLAYED = recorded("kv_replay_from_0.jsonl")
REQUESTS = [json.loads(line) for line in (RECORDED / "eviction_requests.jsonl").read_text().splitlines()]
REPORTED = [request["reported_cached_tokens"] for request in REQUESTS]

Arrival = Callable[[int, Message], Sequence[Message]]
"""What comes of the batch with an index in the recording: itself, nothing, or more."""


def predictions(followed: FollowedRouter, arrive: Arrival, *, catch_up: bool = False) -> list[int]:
    """Place the prompts in turn, each after the batches that came of those before it."""
    predicted, batches = [], iter(enumerate(BATCHES))
    for number, request in enumerate(REQUESTS):
        if catch_up:
            followed.catch_up()
        predicted.append(followed.predicted_cached_tokens(request["prompt"], f"request-{number}"))
        tokens = smollm2().tokeniser.token_count(request["prompt"])
        if request["reported_cached_tokens"] < tokens // 32 * 32:
            followed.hear(arrive(*next(batches)))
    followed.knowledge.check_integrity()
    followed.router.check_integrity()
    return predicted


class Published:
    """A replay socket that has what was published so far, from the recorded answer; a frame may be lost on its way."""

    def __init__(self, lost: Callable[[int], bool], keep: int = 10_000) -> None:
        self.count = 0
        self._lost = lost
        self._keep = keep

    def arrive(self, index: int, message: Message) -> Sequence[Message]:
        self.count = index + 1
        return () if self._lost(index) else (message,)

    def replay(self, first: int) -> Sequence[Message]:
        return [message for message in REPLAYED[max(0, self.count - self._keep) : self.count] if message[0] >= first]


def as_published(index: int, message: Message) -> Sequence[Message]:
    return (message,)


def test_every_reported_cached_token_is_predicted():
    """All 24, from the map encoding of vLLM 0.32 as it was recorded."""
    assert predictions(FollowedRouter(), as_published) == REPORTED


def test_the_older_array_encoding_says_the_same():
    """The same batches as vLLM up to 0.23 would have sent them."""
    old = predictions(FollowedRouter(), lambda index, message: ((message[0], as_arrays(message[1])),))
    assert old == REPORTED


@pytest.mark.parametrize("every", [2, 3, 5])
def test_lost_frames_are_replayed(every):
    """Every so many frames never come: the next one shows the gap, and the recorded replay fills it.

    A prompt right after a lost frame is placed before anybody can know of it, unless the replay is asked unprompted.
    """
    published = Published(lambda index: index % every == 1)
    followed = FollowedRouter(published.replay)
    assert predictions(followed, published.arrive, catch_up=True) == REPORTED
    assert followed.follower.counts.replayed >= len(BATCHES) // every
    assert followed.follower.counts.lost == 0


def test_a_gap_is_filled_when_the_next_frame_shows_it():
    """Without asking unprompted: in the end everything is known, with one question for each gap."""
    published = Published(lambda index: index in (1, 4, 5, 9))
    followed = FollowedRouter(published.replay)
    predictions(followed, published.arrive)
    counts = followed.follower.counts
    assert (counts.gaps, counts.lost, len(followed.asked)) == (3, 0, 3)
    assert followed.sink.applied == [payload for _, payload in BATCHES]


def test_repeated_frames_change_nothing():
    """Each frame comes again at once, and once more much later."""
    followed = FollowedRouter()

    def thrice(index: int, message: Message) -> Sequence[Message]:
        return (message, message, *BATCHES[max(0, index - 6) : index])

    assert predictions(followed, thrice) == REPORTED
    assert followed.follower.counts.lives == 0
    assert followed.follower.counts.repeated > 2 * len(BATCHES)


def test_reordered_frames_are_put_in_order():
    """Frames that arrive in one order or another between two prompts: each gap is filled, what comes late is known."""
    published, draw = Published(lambda index: False), random.Random(3)
    followed = FollowedRouter(published.replay)

    def late(index: int, message: Message) -> Sequence[Message]:
        published.count = index + 1
        window = list(BATCHES[max(0, index - 3) : index + 1])
        draw.shuffle(window)
        return window

    assert predictions(followed, late) == REPORTED
    assert followed.follower.counts.lives == 0


def test_what_nobody_repeats_any_more_costs_the_picture_and_not_more():
    """The replay keeps two batches and four are lost: the picture is dropped, and is never more than the truth."""
    published = Published(lambda index: 3 <= index < 7, keep=2)
    followed = FollowedRouter(published.replay)
    predicted = predictions(followed, published.arrive)
    assert followed.follower.counts.lost == 1
    assert not followed.follower.complete
    noticed = 11  # the prompt after the first batch that came again
    assert all(ours <= theirs for ours, theirs in zip(predicted[noticed:], REPORTED[noticed:], strict=True))
    assert predicted[-8:] == REPORTED[-8:]


def test_a_late_joiner_learns_all_from_the_replay():
    """Subscribed after the fourteenth batch, caught up from 0: as if it had been there."""
    late, early = FollowedRouter(replay_of(REPLAYED[:14])), FollowedRouter()
    late.catch_up()
    late.hear(BATCHES[14:])
    early.hear(BATCHES)
    assert late.follower.complete
    assert late.sink.applied == early.sink.applied
    assert len(late.knowledge) == len(early.knowledge) == 158
