"""Filling a worker's cache ahead of its traffic: whose home a prompt has, who holds how much of it, what was sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

from router.core import NEWS_ENDED, NEWS_PLACED, FleetView, News, Prompt
from router.decision import Ask, Traffic, ring_key
from router.flights import Flights
from router.policy import Policy
from router.roster import Members
from router.worker_state import InFlight, WorkerState


class Warming:
    """A router's side of prewarming; part of `Router`, with whom it shares all state.

    What is sent to warm a cache is believed and waits in its worker's queue like a request that was placed, and other
    replicas hear of it; it counts in no placement, no popularity and no utilisation, and nothing is learned from it.
    """

    def __init__(
        self, members: Members, flights: Flights, traffic: Traffic, tell: Callable[[News], None] | None
    ) -> None:
        self._members = members
        self._flights = flights
        self._traffic = traffic
        self._tell = tell

    def homes_of(self, ask: Ask, policy: Policy, fleet: FleetView, now: float) -> tuple[str, ...]:
        """The workers that the ring names for a prompt now; nobody is numbered, so it costs a few µs.

        None for a policy that does not go by them: what is brought home would be asked elsewhere.
        """
        roster = self._members.roster_of(fleet, now)
        if not policy.has_homes:
            return ()
        key = ring_key(ask, policy, roster, self._traffic)
        count = self._traffic.homes.count(key, now) if policy.several_homes else 1
        return tuple(islice(roster.ring.walk(key), count))

    def holdings(self, prompt: Prompt) -> Mapping[str, int]:
        """How many tokens of a prompt each worker is believed to hold, of those who hold any."""
        exact, block_tokens = prompt.exact_blocks, prompt.block_tokens
        held = ((name, state.holds.match(exact)) for name, state in self._members.states.items())
        return {name: min(blocks * block_tokens, prompt.tokens) for name, blocks in held if blocks}

    def held_tokens(self, prompt: Prompt, worker: str) -> int:
        """How many tokens of a prompt one worker is believed to hold."""
        state = self._members.states.get(worker)
        blocks = state.holds.match(prompt.exact_blocks) if state is not None else 0
        return min(blocks * prompt.block_tokens, prompt.tokens)

    def waiting(self, worker: str, besides: Collection[str] = ()) -> int:
        """Requests at `worker` that have not produced a first token, those sent to warm it included.

        `besides` are the ids of requests that do not count; one whose time is up by its estimate may have left already.
        """
        state = self._members.states.get(worker)
        return sum([one not in besides for one in state.queue.request_ids()]) if state is not None else 0

    def seconds(self, prompt: Prompt, worker: str) -> float:
        """How long `worker` would need to prefill what it lacks of a prompt."""
        return _prefill_seconds(self._members.state(worker), prompt)

    def begin(self, request_id: str, prompt: Prompt, worker: str, now: float) -> float:
        """`worker` is being sent a prompt for its cache's sake; returns the prefill seconds that it queues for.

        Each one ends once, by `end`; `request_id` is in flight nowhere. What it brings is believed when it is there.
        """
        state = self._members.state(worker)
        seconds = _prefill_seconds(state, prompt)
        flight = InFlight(
            worker=worker,
            tenant="",
            prompt_tokens=prompt.tokens,
            block_tokens=prompt.block_tokens,
            predicted_cached_tokens=0,
            prefill_seconds=seconds,
            predicted_seconds=seconds,
            placed_at=now,
            alone=False,
            silent=True,
        )
        self._flights.enter(request_id, flight, now)
        self._tell_of(NEWS_PLACED, request_id, worker, (), seconds, prompt.tokens)
        return seconds

    def end(self, request_id: str, now: float) -> None:
        """What was begun has ended, however."""
        self._flights.leave(request_id, now)
        self._tell_of(NEWS_ENDED, request_id)

    def believe(self, request_id: str, prompt: Prompt, worker: str, now: float) -> None:
        """`worker` holds all of a prompt now, by whatever way; `request_id` is new to the other replicas."""
        self._members.state(worker).directory.insert(prompt.exact_blocks, now)
        self._tell_of(NEWS_PLACED, request_id, worker, prompt.exact_blocks, 0.0, prompt.tokens)
        self._tell_of(NEWS_ENDED, request_id)

    def _tell_of(
        self,
        kind: str,
        request_id: str,
        worker: str = "",
        blocks: Sequence[bytes] = (),
        seconds: float = 0.0,
        tokens: int = 0,
    ) -> None:
        if self._tell is not None:
            self._tell(News(kind, request_id, worker, blocks, seconds, tokens, silent=True))


def _prefill_seconds(state: WorkerState, prompt: Prompt) -> float:
    missing = prompt.tokens - state.holds.match(prompt.exact_blocks) * prompt.block_tokens
    return state.rates.fixed_seconds + max(1, missing) * state.rates.seconds_per_token
