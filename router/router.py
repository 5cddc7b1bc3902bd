"""The router of one model: directory, virtual queues, ring and policy behind one `place`.

State without I/O: time is an argument, so replay and gateway run the same object. Every request that is placed ends
once, by `finished` or `cancelled`; what is never ended is given up by age. Ids that are not in flight are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from router.apart import load_factor
from router.belief import Report
from router.core import NEWS_ENDED, NEWS_FIRST_TOKEN, NEWS_PLACED, FleetView, News, Placement, Prompt
from router.decision import Ask, Decision, Traffic, decide, hot_share
from router.flights import Flights
from router.homes import Work
from router.knowledge import Knowledge
from router.menu import Menu
from router.policy import Policy
from router.roster import Members
from router.settings import RouterSettings
from router.statistics import PredictionError, RouterStatistics, Tally, worker_statistics
from router.warming import Warming
from router.worker_state import InFlight, heard_flight

_LEAST_TOKENS_FOR_A_GAP = 16
"""Shorter answers say little about the time between tokens."""

_ABSENT_CHECK_EVERY = 1024
"""Placements between two looks for workers that have left."""


class Router:
    """Places the requests of one model on its workers, and learns from how they went.

    `tell` is handed the news of every request that is placed here, for other replicas to hear: a placement, perhaps a
    first token, an end; what was placed again has ended before. `apart_from` is how many other replicas there are of
    which no news comes at the moment. Raises ValueError for an unknown policy in `settings`.
    """

    def __init__(self, settings: RouterSettings | None = None, tell: Callable[[News], None] | None = None) -> None:
        self.settings = settings or RouterSettings()
        self._tell = tell
        self.apart_from = 0
        self._menu = Menu(self.settings)
        self._members = Members(self.settings.points_per_worker, self.settings.ring_gather_seconds)
        self._flights = Flights(self._members, self.settings)
        self._traffic = Traffic(self.settings)
        self._tally = Tally()
        self._latest = 0.0
        self.warming = Warming(self._members, self._flights, self._traffic, tell)

    def place(
        self,
        prompt: Prompt,
        fleet: FleetView,
        now: float,
        *,
        request_id: str,
        tenant: str = "",
        policy: str | None = None,
        session: str | None = None,
        max_tokens: int | None = None,
        exclude: frozenset[str] = frozenset(),
        streams: bool = True,
        numbered: bool = True,
    ) -> Placement:
        """Choose a worker for `prompt` and take it as sent there.

        `request_id` is unique among the requests in flight: one that is there already is a retry, and its earlier
        placement is taken back, all but the blocks in that worker's directory. `exclude` names workers that must not
        get it. `streams` False says that the answer comes all at once, so that nobody sees its first token. `numbered`
        False leaves `candidates` empty where a home is chosen whatever the others are, and costs half as much. Raises
        ValueError for an unknown policy, or for two workers of one name.
        """
        ask = Ask(prompt, request_id, tenant, policy or self.settings.policy, session, max_tokens, exclude, numbered)
        chosen_by = self._menu.policy(ask.policy)
        retried = request_id in self._flights and self._withdraw(request_id, now)
        decision = self._decide(ask, chosen_by, fleet, now)
        placement = decision.placement
        self._tally.placed(placement)
        if placement.worker is not None:
            self._commit(decision, ask, now, streams=streams, counts=not retried)
        self._latest = max(self._latest, now)
        if self._tally.placements % _ABSENT_CHECK_EVERY == 0:
            self._forget_absent(now)
        return placement

    def peek(
        self,
        prompt: Prompt,
        fleet: FleetView,
        now: float,
        *,
        request_id: str = "",
        tenant: str = "",
        policy: str | None = None,
        session: str | None = None,
        max_tokens: int | None = None,
        exclude: frozenset[str] = frozenset(),
    ) -> Placement:
        """What `place` would answer now, without taking anything as sent."""
        ask = Ask(prompt, request_id, tenant, policy or self.settings.policy, session, max_tokens, exclude)
        return self._decide(ask, self._menu.policy(ask.policy), fleet, now).placement

    def first_token(self, request_id: str, now: float) -> None:
        """The first token of an answer came: its prefill is over, the worker's next one begins."""
        self._flights.started(request_id, now)
        self._tell_of(NEWS_FIRST_TOKEN, request_id)
        self._latest = max(self._latest, now)

    def finished(
        self,
        request_id: str,
        now: float,
        *,
        reported_cached_tokens: int | None = None,
        prompt_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> PredictionError | None:
        """An answer ended well; the figures are the worker's usage, None where it gave none.

        Returns how far the belief was off, if the worker told and the request was in flight. The worker's prompt
        tokens scale its cached tokens to the router's count, which differ where bytes stand in for a tokeniser.
        """
        if now > self._latest:
            self._latest = now
        flight = self._flights.leave(request_id, now, answered=True)
        self._tell_of(NEWS_ENDED, request_id)
        if flight is None or flight.remote or not flight.believes(prompt_tokens):
            return None
        if output_tokens is not None:
            self._traffic.outputs.observe(flight.tenant, output_tokens)
        scale = flight.prompt_tokens / prompt_tokens if prompt_tokens else 1.0
        cached = None if reported_cached_tokens is None else round(max(0, reported_cached_tokens) * scale)
        if self.settings.learn:
            self._learn(flight, now, cached, output_tokens or 0, scale)
        return None if cached is None else self._tally.compared(flight, cached)

    def cancelled(self, request_id: str, now: float) -> None:
        """A request ended without an answer worth learning from: failed, aborted, timed out."""
        self._flights.leave(request_id, now)
        self._tell_of(NEWS_ENDED, request_id)
        self._latest = max(self._latest, now)

    def heard(self, news: News, now: float | None = None) -> None:
        """Apply what another replica tells of a request; a placement's blocks are the whole exact chain.

        `now` None means the latest time that this router was told. News of a request that was placed here is ignored.
        """
        when = self._latest if now is None else now
        request_id = f"{news.worker}\n{news.request_id}"
        if news.kind == NEWS_FIRST_TOKEN:
            self._flights.started(request_id, when)
        elif news.kind == NEWS_ENDED:
            self._flights.leave(request_id, when)
        elif news.kind == NEWS_PLACED and not self._flights.holds(request_id, news.request_id):
            self._members.state(news.worker).expect(request_id, news.blocks, when)
            flight = heard_flight(news, when)
            self._flights.enter(request_id, flight, when)
            self._traffic.utilisation.add(news.prefill_seconds, when)

    def follow(self, worker: str, knowledge: Knowledge | None) -> None:
        """Go by what events tell of `worker`, as long as that is trusted; to be said again when trust comes or goes.

        None means that nobody follows its events. Whatever `forget` drops must be followed anew.
        """
        if knowledge is not None or worker in self._members.states:
            self._members.state(worker).follow(knowledge)

    def forget(self, worker: str) -> None:
        """A worker is gone or has restarted: nothing that was believed of it holds any more."""
        self._flights.forget_worker(worker, self._latest)
        self._members.forget(worker)

    def homes_of(
        self,
        prompt: Prompt,
        fleet: FleetView,
        now: float,
        *,
        tenant: str = "",
        policy: str | None = None,
        session: str | None = None,
    ) -> tuple[str, ...]:
        """The homes of `prompt` now, the first of them first, without a placement.

        Empty when nobody is on the ring, and for policies that do not go by it.
        """
        ask = Ask(prompt, "", tenant, policy or self.settings.policy, session, None, frozenset())
        return self.warming.homes_of(ask, self._menu.policy(ask.policy), fleet, now)

    def configure(self, settings: RouterSettings, named: Mapping[str, RouterSettings]) -> None:
        """Place by other numbers, and by `named` ones where they are asked for; bounds and what was learnt stay."""
        self._menu.configure(settings, named)
        self.settings = settings

    def expect(self, worker: str, weight: int) -> None:
        """A worker will join: prepare for it, so that its joining costs the next placement little."""
        self._members.expect(worker, weight)

    def stats(self, now: float | None = None) -> RouterStatistics:
        """A snapshot for metrics; `now` None means the latest time that this router was told."""
        when = self._latest if now is None else now
        roster = self._members.roster
        return RouterStatistics(
            workers=tuple([worker_statistics(state, when) for state in self._members.states.values()]),
            utilisation=self._traffic.utilisation.share(when, roster.serving, load_factor(self.apart_from)),
            price=self._traffic.utilisation.price(when, roster.serving, load_factor(self.apart_from)),
            expected_output_tokens=self._traffic.outputs.expect(),
            in_flight=len(self._flights),
            ring_workers=len(roster.ring),
            key_blocks_counted=len(self._traffic.heat),
            spread_keys=self._traffic.homes.spread_keys(when),
            placements=dict(self._tally.reasons),
            placed=self._tally.placements,
            placed_at_home=self._tally.at_home,
            predictions=self._tally.predictions,
            predicted_cached_tokens=self._tally.predicted_tokens,
            reported_cached_tokens=self._tally.reported_tokens,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError unless all parts are sound and agree with each other."""
        self._traffic.heat.check_integrity()
        self._traffic.homes.check_integrity()
        self._flights.check_integrity()
        self._members.roster.ring.check_integrity()
        for state in self._members.states.values():
            state.check_integrity()

    def _decide(self, ask: Ask, policy: Policy, fleet: FleetView, now: float) -> Decision:
        roster, settings = self._members.roster_of(fleet, now), self._menu.settings(ask.policy)
        return decide(ask, policy, roster, self._traffic, settings, now, self.apart_from)

    def _withdraw(self, request_id: str, now: float) -> bool:
        flight = self._flights.leave(request_id, now)
        if flight is not None:
            self._traffic.utilisation.take_back(flight.prefill_seconds, flight.placed_at, now)
            self._tell_of(NEWS_ENDED, request_id)
        return flight is not None

    def _learn(self, flight: InFlight, now: float, cached_tokens: int | None, output_tokens: int, scale: float) -> None:
        """Take in an answer; `scale` is the router's count of a prompt's tokens over the worker's."""
        state = self._members.state(flight.worker)
        if flight.silent:
            fitted = state.learn_whole(flight, now, cached_tokens, scale, output_tokens)
        else:
            fitted = state.learn_prefill(flight, cached_tokens, scale)
        if fitted:
            self._traffic.utilisation.rescale(self._members.settle_rates())
        if flight.first_token_at is not None and output_tokens >= _LEAST_TOKENS_FOR_A_GAP:
            context = (flight.decode_context_tokens + state.context_tokens + flight.prompt_tokens) / 2
            self._traffic.decode.observe(context, (now - flight.first_token_at) / (output_tokens - 1))
        if cached_tokens is not None and not flight.known:
            state.correct(Report(flight.predicted_cached_tokens, cached_tokens, flight.block_tokens))

    def _tell_of(self, kind: str, request_id: str) -> None:
        if self._tell is not None:
            self._tell(News(kind, request_id, "", (), 0.0))

    def _forget_absent(self, now: float) -> None:
        for worker in self._members.long_absent(now, self.settings.absent_worker_seconds):
            self.forget(worker)

    def _commit(self, decision: Decision, ask: Ask, now: float, *, streams: bool, counts: bool) -> None:
        """Take a placement as sent; a request that is moved does not count again in popularity."""
        placement, index, seconds, decode_seconds = decision
        roster, prompt, traffic = self._members.roster, ask.prompt, self._traffic
        state, blocks = roster.states[index], prompt.exact_blocks
        flight = InFlight(
            worker=state.name,
            tenant=ask.tenant,
            prompt_tokens=prompt.tokens,
            block_tokens=prompt.block_tokens,
            predicted_cached_tokens=placement.predicted_cached_tokens,
            prefill_seconds=seconds,
            predicted_seconds=placement.predicted_seconds,
            placed_at=now,
            counted=prompt.text_bytes is None,
            alone=not state.queue and not roster.views[index].waiting and (streams or not state.requests),
            silent=not streams,
            known=state.known,
        )
        state.expect(ask.request_id, blocks, now)
        self._flights.enter(ask.request_id, flight, now)
        if state.rates.start_trial():
            traffic.utilisation.rescale(self._members.settle_rates())
        if self._tell is not None:
            self._tell(News(NEWS_PLACED, ask.request_id, state.name, blocks, seconds, prompt.tokens, not streams))
        traffic.utilisation.add(seconds, now)
        traffic.turns[ask.policy] += 1
        traffic.crowding.look(roster.states, now)
        traffic.prefills.observe(seconds)
        if counts and prompt.key_blocks:
            work = Work(seconds, self.settings.decode_weight * decode_seconds)
            load = traffic.utilisation.seen_load(now)
            traffic.homes.add(placement.key, work, now, most=len(roster.ring), fleet_load=load)
            traffic.heat.count(prompt.key_blocks, hot_share(roster))
