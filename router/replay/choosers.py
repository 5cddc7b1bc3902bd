"""The policies of the product under replay: one gateway's router, or several that hear of each other late."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle

from xxhash import xxh3_64_intdigest

from router.core import NEWS_ENDED, NEWS_FIRST_TOKEN, NEWS_PLACED, FleetView, News, WorkerView
from router.policy import POLICIES
from router.replay.core import Chooser, EngineSettings, TraceRequest, Truth
from router.replay.oracle import AllSeeing, LeastRequests, LeastWork, Oracle
from router.router import Router
from router.settings import RouterSettings

ALL_SEEING: Mapping[str, type[AllSeeing]] = {"oracle": Oracle, "ideal": LeastWork, "least_loaded": LeastRequests}
"""Choosers that need no router; `ideal` is to be replayed with a shared cache."""


def build_chooser(name: str, settings: EngineSettings, *, learn: bool = True, seed: int = 1) -> Chooser:
    """A chooser by name: a policy of the router, `oracle`, or `ideal`; ValueError for another name."""
    if name in ALL_SEEING:
        return ALL_SEEING[name](seed=seed)
    return router_chooser(name, settings, learn=learn, seed=seed)


def router_chooser(
    policy_name: str,
    settings: EngineSettings,
    *,
    learn: bool = True,
    gateways: int = 1,
    news_delay_seconds: float | None = 0.0,
    seed: int = 1,
    worker_prefix: str = "worker",
    probe_seconds: float | None = None,
) -> Chooser:
    """A policy of the product, in so many gateways; each request goes to one of them, by the seed.

    News reaches the others after `news_delay_seconds`; None means that nothing is shared. Workers are told to have the
    rates and the cache that they have; `learn` False keeps to that. The ring is laid by the workers' names, which
    begin with `worker_prefix`. With `probe_seconds`, every gateway asks every worker so often how many requests wait
    there, each gateway at its own time.
    """
    if policy_name not in POLICIES:
        raise ValueError(f"no chooser is called {policy_name!r}; there are {', '.join([*POLICIES, *ALL_SEEING])}")
    router_settings = RouterSettings(policy=policy_name, learn=learn, seed=seed)
    routers = [Router(router_settings) for _ in range(gateways)]
    if probe_seconds is None:
        return RouterChooser(routers, settings, news_delay_seconds, seed, worker_prefix)
    return ProbingChooser(routers, settings, news_delay_seconds, seed, worker_prefix, probe_seconds=probe_seconds)


class _Gateway:
    """A router, what it sees of the fleet, and the news that is on its way to it."""

    __slots__ = ("fleet", "inbox", "router")

    def __init__(self, router: Router, fleet: FleetView) -> None:
        self.router = router
        self.fleet = fleet
        self.inbox: deque[tuple[float, News]] = deque()

    def at(self, now: float) -> Router:
        """The router as it is at `now`, all news heard that has come by then."""
        inbox = self.inbox
        while inbox and inbox[0][0] <= now:
            due, news = inbox.popleft()
            self.router.heard(news, due)
        return self.router


class RouterChooser:
    """Gateways with a router each; the answer to a request comes back to the gateway that placed it."""

    def __init__(
        self,
        routers: list[Router],
        settings: EngineSettings,
        news_delay_seconds: float | None = 0.0,
        seed: int = 1,
        worker_prefix: str = "worker",
    ) -> None:
        self._delay = news_delay_seconds if len(routers) > 1 else None
        self._seed = seed
        self._settings, self._prefix = settings, worker_prefix
        self._numbers: dict[str, int] = {}
        self._sent: dict[int, str] = {}
        fleet = FleetView(tuple([self._view(number) for number in range(settings.workers)]))
        self._gateways = [_Gateway(router, fleet) for router in routers]

    def choose(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """Where the router of the request's gateway places it."""
        gateway = self._gateway_of(request)
        placement = gateway.at(now).place(
            request.prompt, gateway.fleet, now, request_id=str(request.number), session=str(request.session)
        )
        if placement.worker is None:
            raise ValueError(f"request {request.number} was given to nobody: {placement.reason}")
        if self._delay is not None:
            self._sent[request.number] = placement.worker
            winner = next(one for one in placement.candidates if one.worker == placement.worker)
            self._tell(NEWS_PLACED, request, now, winner.own_seconds)
        return self._numbers[placement.worker]

    def first_token(self, request: TraceRequest, now: float) -> None:
        """The request's gateway sees it, and tells."""
        self._gateway_of(request).at(now).first_token(str(request.number), now)
        self._tell(NEWS_FIRST_TOKEN, request, now)

    def finished(self, request: TraceRequest, now: float, cached_tokens: int) -> None:
        """The request's gateway learns from the usage, and tells that it ended."""
        self._gateway_of(request).at(now).finished(
            str(request.number),
            now,
            reported_cached_tokens=cached_tokens,
            prompt_tokens=request.prompt.tokens,
            output_tokens=request.output_tokens,
        )
        self._tell(NEWS_ENDED, request, now)
        self._sent.pop(request.number, None)

    def joined(self, worker: int, now: float) -> None:  # noqa: ARG002
        """All gateways see it at once, and know that it is empty, even where one of its name was there before."""
        view = self._view(worker)
        for gateway in self._gateways:
            gateway.router.forget(view.name)
            gateway.fleet = FleetView((*gateway.fleet.workers, view))

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """All gateways see it at once."""
        name = self._view(worker).name
        for gateway in self._gateways:
            gateway.fleet = FleetView(tuple([view for view in gateway.fleet.workers if view.name != name]))

    def _view(self, number: int) -> WorkerView:
        settings, name = self._settings, f"{self._prefix}-{number}"
        self._numbers[name] = number
        return WorkerView(
            name,
            cache_blocks=settings.cache_blocks,
            prefill_tokens_per_second=settings.prefill_tokens_per_second,
            prefill_fixed_seconds=settings.prefill_fixed_seconds,
        )

    def _gateway_of(self, request: TraceRequest) -> _Gateway:
        if len(self._gateways) == 1:
            return self._gateways[0]
        return self._gateways[xxh3_64_intdigest(request.number.to_bytes(8, "little"), self._seed) % len(self._gateways)]

    def _tell(self, kind: str, request: TraceRequest, now: float, seconds: float = 0.0) -> None:
        """Send news to the other gateways, if news is shared."""
        if self._delay is None:
            return
        prompt, teller = request.prompt, self._gateway_of(request)
        blocks = prompt.exact_blocks if kind == NEWS_PLACED else ()
        news = News(kind, str(request.number), self._sent[request.number], blocks, seconds, prompt.tokens)
        for gateway in self._gateways:
            if gateway is not teller:
                gateway.inbox.append((now + self._delay, news))


class ProbingChooser(RouterChooser):
    """Gateways that also ask the workers how many requests wait there, each gateway every `probe_seconds`.

    Where nothing is shared, each knows that the others are there.
    """

    def __init__(
        self,
        routers: list[Router],
        settings: EngineSettings,
        news_delay_seconds: float | None = None,
        seed: int = 1,
        worker_prefix: str = "worker",
        *,
        probe_seconds: float = 1.0,
    ) -> None:
        super().__init__(routers, settings, news_delay_seconds, seed, worker_prefix)
        if news_delay_seconds is None:
            for router in routers:
                router.apart_from = len(routers) - 1
        self.probe_seconds = probe_seconds / len(routers)
        self._turns = cycle(self._gateways)

    def probed(self, now: float, truth: Truth) -> None:  # noqa: ARG002
        """It is one gateway's turn to look."""
        gateway = next(self._turns)
        views = gateway.fleet.workers
        gateway.fleet = FleetView(
            tuple([replace(view, waiting=truth.waiting(self._numbers[view.name])) for view in views])
        )
