"""The router as a whole: places once, learns from ends, tells what it knows, and stays in step with itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.core import NEWS_ENDED, NEWS_FIRST_TOKEN, NEWS_PLACED, FleetView, News, Prompt, WorkerView
from router.policy import POLICIES
from router.router import Router
from tests.router.placement_builders import build_chain, build_fleet, build_prompt, build_router, send, serve


def finish(router: Router, request_id: str, now: float, cached: int | None = None, **usage: int) -> None:
    router.first_token(request_id, now - 0.1)
    router.finished(request_id, now, reported_cached_tokens=cached, **usage)


def worker_of(router: Router, name: str):
    return next(worker for worker in router.stats().workers if worker.worker == name)


def test_a_prompt_that_was_served_is_believed_to_be_held() -> None:
    """At most all but the last token: that one is always computed."""
    router, fleet = build_router(), build_fleet(3)
    prompt = build_prompt(("p", 20), tail_tokens=0)
    first = serve(router, prompt, fleet)
    again = send(router, prompt, fleet, now=100.0)
    assert (first.predicted_cached_tokens, again.predicted_cached_tokens) == (0, 20 * 64 - 1)
    assert again.worker == first.worker


def test_a_prompt_without_full_blocks_is_placed_too() -> None:
    """Shorter than one block: nothing can be believed of it, and it has its home."""
    router = build_router()
    placement = send(router, build_prompt(tail_tokens=7), build_fleet(3))
    assert (placement.reason, placement.predicted_cached_tokens) == ("home", 0)


def test_every_candidate_carries_the_numbers_of_the_score() -> None:
    """`explain` can show its sums: wait + α · own + γ · decode."""
    router, fleet = build_router(learn=False), build_fleet(2)
    for number in range(30):
        serve(router, build_prompt((f"warm-{number}", 100)), fleet, now=float(number))
    placement = send(router, build_prompt(("p", 50)), fleet, now=30.0)
    price, gamma = router.stats(30.0).price, router.settings.decode_weight
    assert price == pytest.approx(1 / (1 - router.stats(30.0).utilisation), rel=0.01)
    for candidate in router.peek(build_prompt(("q", 50)), fleet, 30.0).candidates:
        total = candidate.wait_seconds + price * candidate.own_seconds + gamma * candidate.decode_seconds
        assert candidate.score == pytest.approx(total)
    winner = next(one for one in placement.candidates if one.worker == placement.worker)
    assert placement.predicted_seconds == winner.wait_seconds + winner.own_seconds


def test_requests_in_decode_slow_a_newcomer_down() -> None:
    """With answers of known length, a worker that is decoding much costs more, waiting or not."""
    router, fleet = build_router(learn=False), build_fleet(2)
    for number in range(20):
        serve(router, build_prompt((f"w{number}", 5)), fleet, now=float(number))
    busy = send(router, build_prompt(("talker", 500)), fleet, now=50.0)
    router.first_token(busy.request_id, 55.0)
    seen = {one.worker: one for one in router.peek(build_prompt(("p", 50)), fleet, 55.0).candidates}
    idle = next(name for name in seen if name != busy.worker)
    assert seen[busy.worker].wait_seconds == seen[idle].wait_seconds == 0.0
    assert seen[busy.worker].decode_seconds > seen[idle].decode_seconds == 0.0
    bounded = router.peek(build_prompt(("p", 50)), fleet, 55.0, max_tokens=1).candidates
    assert {one.worker: one for one in bounded}[busy.worker].decode_seconds < seen[busy.worker].decode_seconds


def test_peek_changes_nothing_and_foretells_place() -> None:
    """`explain` may ask about everything, under every policy, and the next request goes where it said."""
    router, fleet = build_router(), build_fleet(4)
    serve(router, build_prompt(("p", 30)), fleet)
    for policy in POLICIES:
        before = router.stats(5.0)
        told = router.peek(build_prompt(("p", 30), ("q", 9)), fleet, 5.0, request_id="one", policy=policy)
        again = router.peek(build_prompt(("p", 30), ("q", 9)), fleet, 5.0, request_id="one", policy=policy)
        assert told == again
        assert router.stats(5.0) == before
        placed = router.place(build_prompt(("p", 30), ("q", 9)), fleet, 5.0, request_id="one", policy=policy)
        assert placed == told
        router.cancelled("one", 5.0)


def test_a_retry_replaces_the_earlier_placement() -> None:
    """Elsewhere, counted once, and the directory of the second worker knows it."""
    router, fleet, prompt = build_router(), build_fleet(3), build_prompt(("p", 100))
    first = router.place(prompt, fleet, 0.0, request_id="r")
    once = router.stats(0.0).utilisation
    second = router.place(prompt, fleet, 0.0, request_id="r", exclude=frozenset({first.worker}))
    assert second.worker != first.worker
    assert second.reason == "left_home:unavailable"
    stats = router.stats(0.0)
    assert stats.in_flight == 1
    assert stats.utilisation == pytest.approx(once)
    assert worker_of(router, first.worker).requests_in_flight == 0
    assert worker_of(router, second.worker).requests_in_flight == 1
    assert worker_of(router, second.worker).directory_blocks == 100
    router.check_integrity()


def test_ends_that_are_told_twice_or_never_began_are_ignored() -> None:
    """The gateway may be late, and a worker may be gone."""
    router, fleet = build_router(), build_fleet(2)
    for end in (lambda: finish(router, "nobody", 5.0), lambda: router.cancelled("nobody", 5.0)):
        end()
    placement = serve(router, build_prompt(("p", 3)), fleet)
    assert router.finished(placement.request_id, 9.0, reported_cached_tokens=1) is None
    router.cancelled(placement.request_id, 9.0)
    router.first_token(placement.request_id, 9.0)
    assert router.stats().in_flight == 0
    router.check_integrity()


def test_a_cancelled_request_leaves_no_trace_in_the_queue() -> None:
    """B-05: aborted before or after the first token, counts come back to zero."""
    router, fleet = build_router(), build_fleet(2)
    waiting = [send(router, build_prompt((f"p{number}", 9)), fleet) for number in range(500)]
    talking = [send(router, build_prompt((f"q{number}", 9)), fleet) for number in range(500)]
    for placement in talking:
        router.first_token(placement.request_id, 1.0)
    for placement in (*waiting, *talking):
        router.cancelled(placement.request_id, 2.0)
    assert [(w.requests_in_flight, w.context_tokens, w.wait_seconds) for w in router.stats().workers] == [
        (0, 0, 0.0)
    ] * 2
    router.check_integrity()


def test_the_workers_word_is_compared_with_the_belief() -> None:
    """In tokens of the router, in blocks, and summed up; a worker that counts other tokens is scaled."""
    router, fleet, prompt = build_router(), build_fleet(2), build_prompt(("p", 20), tail_tokens=0)
    serve(router, prompt, fleet)
    placement = send(router, prompt, fleet, now=50.0)
    error = router.finished(placement.request_id, 51.0, reported_cached_tokens=160, prompt_tokens=320, output_tokens=5)
    assert (error.worker, error.predicted_cached_tokens, error.reported_cached_tokens) == (placement.worker, 1279, 640)
    assert error.error_blocks == pytest.approx(10, abs=0.1)
    stats = router.stats()
    assert (stats.predictions, stats.predicted_cached_tokens, stats.reported_cached_tokens) == (2, 1279, 640)


def test_a_worker_that_says_nothing_is_not_compared() -> None:
    """No usage, no error."""
    router = build_router()
    placement = send(router, build_prompt(("p", 20)), build_fleet(2))
    assert router.finished(placement.request_id, 1.0) is None


def test_a_worker_that_holds_less_than_told_gets_a_smaller_directory() -> None:
    """Its reports shrink the bound, and the directory with it."""
    router, fleet = build_router(), build_fleet(1, cache_blocks=1000)
    for number in range(60):
        serve(router, build_prompt((f"p{number}", 30)), fleet, now=float(number))
    assert worker_of(router, "worker-0").directory_blocks == 1000
    for number in range(59, 30, -1):
        placement = send(router, build_prompt((f"p{number}", 30)), fleet, now=100.0 + number)
        finish(router, placement.request_id, 101.0 + number, cached=128, prompt_tokens=30 * 64 + 10)
    assert worker_of(router, "worker-0").directory_bound_blocks < 500
    assert worker_of(router, "worker-0").directory_blocks <= worker_of(router, "worker-0").directory_bound_blocks


def test_a_restart_that_nobody_told_of_is_noticed() -> None:
    """Answers without any of what was believed: the directory is cleared."""
    router, fleet = build_router(), build_fleet(1)
    for number in range(20):
        serve(router, build_prompt((f"p{number}", 30)), fleet, now=float(number))
    for number in range(6):
        placement = send(router, build_prompt((f"p{number}", 30)), fleet, now=100.0 + number)
        finish(router, placement.request_id, 101.0 + number, cached=0, prompt_tokens=30 * 64 + 10)
    assert worker_of(router, "worker-0").directory_blocks == 0


def test_a_worker_that_is_told_to_be_gone_is_forgotten_at_once() -> None:
    """I2: beliefs, queue and requests in flight; a later end of such a request is ignored."""
    router, fleet, prompt = build_router(), build_fleet(3), build_prompt(("p", 100))
    served, waiting = serve(router, prompt, fleet), send(router, prompt, fleet, now=50.0)
    router.forget(served.worker)
    after = send(router, prompt, fleet, now=50.0)
    assert after.predicted_cached_tokens == 0
    assert all(candidate.wait_seconds == 0 for candidate in after.candidates)
    finish(router, waiting.request_id, 60.0)
    router.forget("never-seen")
    router.check_integrity()


def test_learned_rates_reach_the_score_of_every_worker() -> None:
    """A fleet four times slower than configured is predicted so after a few answers, also where none came from."""
    router, fleet = build_router(), build_fleet(4)
    for number in range(40):
        placement = send(router, build_prompt((f"p{number}", 5 + 3 * number)), fleet, now=100.0 * number)
        tokens = (5 + 3 * number) * 64 + 10
        router.first_token(placement.request_id, 100.0 * number + 0.05 + tokens / 2000)
        router.finished(placement.request_id, 100.0 * number + 20, reported_cached_tokens=0, output_tokens=20)
    for worker in router.stats().workers:
        assert worker.prefill_tokens_per_second == pytest.approx(2000, rel=0.1)
    assert send(router, build_prompt(("new", 100)), fleet, now=1e5).predicted_seconds == pytest.approx(3.25, rel=0.1)


def test_without_learning_the_configuration_stands() -> None:
    """For replays with given rates and sizes."""
    router, fleet = build_router(learn=False), build_fleet(1, prefill_tokens_per_second=500.0, cache_blocks=50)
    for number in range(40):
        placement = send(router, build_prompt((f"p{number}", 20)), fleet, now=100.0 * number)
        finish(router, placement.request_id, 100.0 * number + 1, cached=0)
    worker = worker_of(router, "worker-0")
    assert (worker.prefill_tokens_per_second, worker.directory_bound_blocks) == (500.0, 50)


def test_an_answer_that_comes_at_once_teaches_no_first_token() -> None:
    """Not streaming: its time is that of the whole answer, and the queue moves on by estimate."""
    router, fleet = build_router(), build_fleet(1)
    for number in range(30):
        sent = send(router, build_prompt((f"p{number}", 20)), fleet, now=100.0 * number, streams=False)
        assert router.peek(build_prompt(("q", 1)), fleet, 100.0 * number + 50).candidates[0].wait_seconds == 0.0
        finish(router, sent.request_id, 100.0 * number + 60)
    assert worker_of(router, "worker-0").observations == 0


def test_requests_that_nobody_ends_are_given_up_by_age() -> None:
    """Lost ends cost no memory and no load for ever: first the waiting, then the request."""
    router, fleet = build_router(in_flight_age_seconds=100.0, waiting_age_seconds=10.0), build_fleet(1)
    for number in range(50):
        send(router, build_prompt((f"lost-{number}", 50)), fleet)
    for number in range(300):
        serve(router, build_prompt((f"p{number}", 1)), fleet, now=50.0)
    assert (worker_of(router, "worker-0").waiting_requests, router.stats().in_flight) == (0, 50)
    for number in range(300):
        serve(router, build_prompt((f"p{number}", 1)), fleet, now=200.0)
    assert router.stats().in_flight == 0
    router.check_integrity()


def test_the_table_of_requests_is_bounded() -> None:
    """The oldest make way."""
    router, fleet = build_router(in_flight_bound=20), build_fleet(2)
    for number in range(100):
        send(router, build_prompt((f"p{number}", 1)), fleet)
    assert router.stats().in_flight == 20
    router.check_integrity()


def test_a_worker_that_left_long_ago_is_forgotten() -> None:
    """And one that is back in time is remembered."""
    router, fleet = build_router(absent_worker_seconds=900.0), build_fleet(2)
    serve(router, build_prompt(("p", 9)), fleet)
    rest = FleetView(fleet.workers[:1])
    for number in range(1100):
        serve(router, build_prompt((f"p{number}", 1)), rest, now=10.0)
    assert len(router.stats().workers) == 2
    for number in range(1100):
        serve(router, build_prompt((f"p{number}", 1)), rest, now=2000.0)
    assert [worker.worker for worker in router.stats().workers] == ["worker-0"]


def test_changed_configuration_of_a_worker_is_taken_over() -> None:
    """A worker that says how much it holds, later than at first sight; and a new rate from the operator."""
    router, silent = build_router(), build_fleet(1)
    serve(router, build_prompt(("p", 300)), silent)
    serve(router, build_prompt(("p", 300)), build_fleet(1, cache_blocks=200), now=50.0)
    assert worker_of(router, "worker-0").directory_bound_blocks == 200
    told = build_fleet(1, cache_blocks=200, prefill_tokens_per_second=100.0)
    assert send(router, build_prompt(("new", 10)), told, now=99.0).predicted_seconds > 5


def test_news_of_another_replica_counts_as_if_placed_here() -> None:
    """Its blocks are believed, its prefill is waited for, its end frees the worker; our own echo is ignored."""
    router, fleet, chain = build_router(), build_fleet(3), build_chain(("p", 50))
    placed = News(NEWS_PLACED, "theirs", "worker-1", chain, 2.0)
    router.heard(placed, 0.0)
    router.heard(placed, 0.0)
    seen = router.peek(build_prompt(("p", 50)), fleet, 0.5).candidates[1]
    assert (seen.cached_tokens, seen.wait_seconds) == (3200, 1.5)
    router.heard(News("weather", "theirs", "worker-1", (), 0.0), 0.6)
    router.heard(News(NEWS_FIRST_TOKEN, "theirs", "worker-1", (), 0.0), 1.0)
    assert router.peek(build_prompt(("p", 50)), fleet, 1.0).candidates[1].wait_seconds == 0.0
    assert worker_of(router, "worker-1").requests_in_flight == 1
    router.heard(News(NEWS_ENDED, "theirs", "worker-1", (), 0.0))
    assert worker_of(router, "worker-1").requests_in_flight == 0
    ours = send(router, build_prompt(("q", 5)), fleet, now=2.0)
    router.heard(News(NEWS_PLACED, ours.request_id, ours.worker, chain, 9.0), 2.0)
    assert router.stats().in_flight == 1
    router.check_integrity()


def test_statistics_tell_what_metrics_show() -> None:
    """Placements by reason, share at home, directory, ring, outputs."""
    router, fleet = build_router(), build_fleet(2, cache_blocks=60)
    assert router.stats().share_at_home == 1.0
    placements = [serve(router, build_prompt((f"p{number}", 25)), fleet, now=9.0 * number) for number in range(20)]
    send(router, build_prompt(("nobody", 1)), FleetView(()))
    stats = router.stats()
    assert (stats.placed, sum(stats.placements.values()), stats.placements["no_worker"]) == (20, 21, 1)
    assert stats.share_at_home == sum(placement.at_home for placement in placements) / 20
    assert sum(worker.directory_blocks + worker.directory_evicted_blocks for worker in stats.workers) == 500
    assert stats.expected_output_tokens == pytest.approx(30)
    assert stats.key_blocks_counted > 0


class RouterMachine(RuleBasedStateMachine):
    """Any order of placements, retries, tokens, ends, news, restarts and changing fleets leaves a sound router."""

    ids = st.integers(0, 12).map(str)

    def __init__(self) -> None:
        super().__init__()
        self.router = build_router(in_flight_bound=8, heat_bound_blocks=60)
        self.fleet, self.now = build_fleet(3, cache_blocks=20), 0.0

    @rule(request=ids, talk=st.integers(0, 4), blocks=st.integers(0, 9), policy=st.sampled_from([*POLICIES]))
    def place(self, request: str, talk: int, blocks: int, policy: str) -> None:
        prompt = build_prompt(("system", 2), (f"talk-{talk}", blocks))
        told, again = [
            self.router.peek(prompt, self.fleet, self.now, request_id=request, policy=policy, session=request)
            for _ in range(2)
        ]
        retried = self.router._flights.holds(request)
        placement = self.router.place(prompt, self.fleet, self.now, request_id=request, policy=policy, session=request)
        assert told == again
        assert retried or told == placement
        admissible = {view.name for view in self.fleet.workers if view.admissible}
        assert placement.worker in admissible or (placement.worker is None and not admissible)
        assert 0 <= placement.predicted_cached_tokens < prompt.tokens
        assert len(told.candidates) == len(self.fleet.workers)

    @rule(request=ids)
    def first_token(self, request: str) -> None:
        self.router.first_token(request, self.now)

    @rule(request=ids, cached=st.none() | st.integers(0, 900), output=st.none() | st.integers(0, 50))
    def finished(self, request: str, cached: int | None, output: int | None) -> None:
        self.router.finished(request, self.now, reported_cached_tokens=cached, prompt_tokens=700, output_tokens=output)

    @rule(request=ids)
    def cancelled(self, request: str) -> None:
        self.router.cancelled(request, self.now)

    @rule(kind=st.sampled_from([NEWS_PLACED, NEWS_FIRST_TOKEN, NEWS_ENDED]), request=ids, worker=st.integers(0, 3))
    def heard(self, kind: str, request: str, worker: int) -> None:
        self.router.heard(News(kind, request, f"worker-{worker}", build_chain((f"far-{request}", 5)), 0.3), self.now)

    @rule(worker=st.integers(0, 3))
    def forget(self, worker: int) -> None:
        self.router.forget(f"worker-{worker}")

    @rule(workers=st.lists(st.integers(0, 3), unique=True, max_size=4), weight=st.integers(0, 2), ready=st.booleans())
    def change_fleet(self, workers: list[int], weight: int, ready: bool) -> None:
        views = [WorkerView(f"worker-{number}", cache_blocks=20, weight=weight) for number in workers]
        if views:
            views[0] = replace(views[0], ready=ready)
        self.fleet = FleetView(tuple(views))

    @rule(seconds=st.floats(0.0, 4000.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def sound(self) -> None:
        self.router.check_integrity()
        assert self.router.stats(self.now).in_flight <= 8


TestRouterMachine = RouterMachine.TestCase
TestRouterMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_damage_between_the_parts_is_noticed() -> None:
    """Counts of workers and requests in flight are held against each other."""
    for damage in ("requests", "queue"):
        router, fleet = build_router(), build_fleet(1)
        placement = send(router, build_prompt(("p", 3)), fleet)
        state = router._members.state("worker-0")
        if damage == "requests":
            state.requests += 1
        else:
            router._flights._flights[placement.request_id].first_token_at = 1.0
        with pytest.raises(AssertionError):
            router.check_integrity()


def test_a_prompt_that_could_not_be_read_has_no_fixed_home() -> None:
    """B-23: no key blocks at all: such requests spread by their ids."""
    router, fleet = build_router(), build_fleet(4)
    unread = Prompt(tokens=100, block_tokens=64, exact_blocks=(), key_blocks=())
    placements = [serve(router, unread, fleet, now=9.0 * number) for number in range(100)]
    assert {placement.worker for placement in placements} == {f"worker-{number}" for number in range(4)}
