"""The requests in flight: each enters once, and leaves once, however it ends or if nobody ever says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from router.roster import Members
from router.settings import RouterSettings
from router.worker_state import InFlight

_LEAST_PRUNE_INTERVAL = 256


class Flights:
    """Requests by id, kept in step with the counts and queues of their workers; bounded in number and in age."""

    def __init__(self, members: Members, settings: RouterSettings) -> None:
        self._members = members
        self._settings = settings
        self._flights: dict[str, InFlight] = {}
        self._since_prune = 0

    def __len__(self) -> int:
        """How many requests are in flight."""
        return len(self._flights)

    def __contains__(self, request_id: str) -> bool:
        """Whether the request is in flight."""
        return request_id in self._flights

    def holds(self, *request_ids: str) -> bool:
        """Whether any of the requests is in flight."""
        return any(request_id in self._flights for request_id in request_ids)

    def enter(self, request_id: str, flight: InFlight, now: float) -> None:
        """A request (whose id is not in flight) was sent to a worker."""
        flights = self._flights
        flights[request_id] = flight
        self._members.state(flight.worker).enter(request_id, flight, now)
        self._since_prune += 1
        # Scanning as seldom as the table is long makes pruning cost the same per request at any size.
        if self._since_prune > _LEAST_PRUNE_INTERVAL and self._since_prune > len(flights):
            self.prune(now)
        if len(flights) > self._settings.in_flight_bound:
            self.leave(next(iter(flights)), now)

    def started(self, request_id: str, now: float) -> None:
        """A first token came; only the first time counts, and nothing does of an answer that comes all at once."""
        flight = self._flights.get(request_id)
        if flight is not None and flight.first_token_at is None and not flight.silent:
            state = self._members.state(flight.worker)
            flight.first_token_at = now
            flight.decode_context_tokens = state.context_tokens
            state.queue.started(request_id, now)

    def leave(self, request_id: str, now: float, *, answered: bool = False) -> InFlight | None:
        """A request ended; None if it was not in flight.

        With `answered` it ended well: its blocks were computed, whether or not a first token was seen.
        """
        flight = self._flights.pop(request_id, None)
        if flight is not None:
            flight.answered = answered
            self._members.state(flight.worker).leave(request_id, flight, now)
        return flight

    def forget_worker(self, worker: str, now: float) -> None:
        """Whatever was in flight at `worker` is lost."""
        for request_id in [key for key, flight in self._flights.items() if flight.worker == worker]:
            self.leave(request_id, now)

    def prune(self, now: float) -> None:
        """Give up what is too old, and stop waiting for first tokens that nobody told of."""
        self._since_prune = 0
        too_old, waited = now - self._settings.in_flight_age_seconds, now - self._settings.waiting_age_seconds
        for request_id in [key for key, flight in self._flights.items() if flight.placed_at < too_old]:
            self.leave(request_id, now)
        for request_id, flight in self._flights.items():
            if flight.first_token_at is None and flight.placed_at < waited:
                self._members.state(flight.worker).queue.remove(request_id, now)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every worker counts exactly its own requests, and queues hold no others."""
        flights = self._flights
        requests = Counter([flight.worker for flight in flights.values()])
        context = Counter[str]()
        for flight in flights.values():
            context[flight.worker] += flight.prompt_tokens
        for name, state in self._members.states.items():
            if state.requests != requests[name] or state.context_tokens != context[name]:
                raise AssertionError(f"worker {name!r} counts other requests than those in flight")
            _check_queue(state.queue.request_ids(), flights)


def _check_queue(request_ids: Sequence[str], flights: dict[str, InFlight]) -> None:
    for request_id in request_ids:
        if request_id not in flights or flights[request_id].first_token_at is not None:
            raise AssertionError("a request waits that has started or ended")
