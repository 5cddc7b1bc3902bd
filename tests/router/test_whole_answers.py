"""Answers that come all at once teach prefill rates too: robustly, boundedly, and only where they can."""

from __future__ import annotations

import random

import pytest

from router.router import Router
from router.whole_answers import WholeAnswer, WholeAnswers
from tests.router.placement_builders import build_fleet, build_prompt, build_router, fresh_id

PER_TOKEN = 0.02


class OneAtATime:
    """Workers that each serve one request at a time, and clients that do not stream."""

    def __init__(self, told_rate: float, true_rate: float, workers: int = 2, seed: int = 3) -> None:
        self.router: Router = build_router()
        self.fleet = build_fleet(workers, prefill_tokens_per_second=told_rate)
        self.true_rate, self.chance, self.now = true_rate, random.Random(seed), 0.0

    def ask(self, blocks: int, output_tokens: int, streams: bool = False, noise: float = 0.0) -> str:
        """One request from its placement to its end; returns the worker."""
        prompt, request_id = build_prompt((fresh_id("p"), blocks)), fresh_id()
        placed = self.router.place(prompt, self.fleet, self.now, request_id=request_id, streams=streams)
        prefill = (0.03 + prompt.tokens / self.true_rate) * (1 + noise * self.chance.random())
        if streams:
            self.router.first_token(request_id, self.now + prefill)
        self.now += prefill + PER_TOKEN * (output_tokens - 1)
        tokens = {"prompt_tokens": prompt.tokens, "output_tokens": output_tokens}
        self.router.finished(request_id, self.now, reported_cached_tokens=0, **tokens)
        self.now += 1.0
        return placed.worker or ""

    def ask_many(self, requests: int, most_outputs: int = 120, **arguments: float) -> None:
        for _ in range(requests):
            self.ask(self.chance.randrange(5, 200), self.chance.randrange(1, most_outputs), **arguments)

    @property
    def rates(self) -> list[float]:
        return [worker.prefill_tokens_per_second for worker in self.router.stats().workers]


@pytest.mark.parametrize("told_rate", [2700.0, 8000.0, 24_000.0])
def test_a_fleet_that_nobody_streams_from_learns_its_rate(told_rate: float) -> None:
    """Told a third, the truth or the triple: within a tenth after 300 answers."""
    run = OneAtATime(told_rate, true_rate=8000.0)
    run.ask_many(300)
    assert run.rates == pytest.approx([8000.0] * 2, rel=0.1)


def test_a_noisy_fleet_learns_it_roughly() -> None:
    """Prefills that take up to a third as long again: the middle is taken for the truth, give or take a third."""
    run = OneAtATime(3000.0, true_rate=8000.0)
    run.ask_many(400, noise=0.3)
    assert run.rates == pytest.approx([8000.0 / 1.15] * 2, rel=0.33)


def test_long_answers_alone_say_nothing_and_change_nothing() -> None:
    """Two seconds of decoding behind a tenth of prefill: the configuration stands."""
    run = OneAtATime(8000.0, true_rate=4000.0)
    for _ in range(100):
        run.ask(3, run.chance.randrange(400, 900))
    assert run.rates == [8000.0, 8000.0]


def test_answers_of_a_token_are_all_prefill() -> None:
    """Classifiers and rerankers: nothing to take off."""
    run = OneAtATime(8000.0, true_rate=2000.0)
    for _ in range(60):
        run.ask(run.chance.randrange(5, 200), 1)
    assert run.rates == pytest.approx([2000.0] * 2, rel=0.05)


def test_where_others_stream_their_first_tokens_are_believed() -> None:
    """Half the clients stream: the others' answers, here disturbed by what the router cannot see, are left out."""
    run = OneAtATime(3000.0, true_rate=8000.0)
    for _ in range(200):
        run.ask(run.chance.randrange(5, 200), 30, streams=True)
        run.ask(run.chance.randrange(5, 200), 30, noise=3.0)
    assert run.rates == pytest.approx([8000.0] * 2, rel=0.03)


def test_a_request_that_shared_its_worker_teaches_nothing() -> None:
    """What came before its end, or was there before it, took part of the time."""
    run, fleet = OneAtATime(8000.0, true_rate=8000.0, workers=1), build_fleet(1, prefill_tokens_per_second=8000.0)
    for number in range(200):
        now = 100.0 * number
        for part in range(2):
            prompt = build_prompt((f"p-{number}-{part}", 20))
            run.router.place(prompt, fleet, now + part, request_id=f"{number}-{part}", streams=False)
        for part in range(2):
            run.router.finished(f"{number}-{part}", now + 50.0 + part, reported_cached_tokens=0, output_tokens=5)
    assert run.rates == [8000.0]
    assert run.router.stats().workers[0].observations == 0


@pytest.mark.parametrize("prefill_per_token", [1e-5, 1e-4, 1e-3])
def test_the_time_of_a_token_is_told_from_that_of_a_prompt(prefill_per_token: float) -> None:
    """Both vary, neither is known: exact answers give it exactly, whatever the share of either."""
    whole, chance = WholeAnswers(), random.Random(1)
    for _ in range(100):
        uncached, later = chance.randrange(100, 10_000), chance.randrange(200)
        total = 0.03 + prefill_per_token * uncached + PER_TOKEN * later
        whole.prefill_seconds(WholeAnswer(total, uncached, later))
    assert whole.seconds_per_token == pytest.approx(PER_TOKEN, rel=0.02)


def test_answers_of_one_length_cannot_be_told_apart() -> None:
    """Every answer has 50 tokens: what they took is unknown, and nothing is learned."""
    whole, chance = WholeAnswers(), random.Random(1)
    for _ in range(100):
        assert whole.prefill_seconds(WholeAnswer(chance.uniform(1.0, 3.0), 1000.0 * chance.random(), 49)) is None


def test_nonsense_is_bounded() -> None:
    """Zero seconds, a million tokens: None or a time, never a crash, and the time per token keeps its bounds."""
    whole = WholeAnswers()
    for number in range(100):
        seconds = whole.prefill_seconds(WholeAnswer(0.0 if number % 2 else 1e6, 5.0 * number, 10 ** (number % 7) - 1))
        assert seconds is None or seconds >= 0
        assert whole.seconds_per_token is None or 0 <= whole.seconds_per_token <= 1.0
