"""What the worker's handlers share: settings, the engine, the model's text side, metrics and the requests in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from backends.api_errors import ServerClosingError, UnknownModelError
from backends.async_engine import AsyncEngine
from backends.events.service import NO_EVENTS, EventService
from backends.exchange.service import NO_EXCHANGE, Exchange
from backends.holdings import Holdings
from backends.metrics import WorkerMetrics
from backends.openai_wire import DEFAULT_LIMITS, WireLimits
from backends.prompt_ids import PromptReader
from backends.tiers.interface import NO_OFFLOAD, Offload
from backends.types import SamplingParams

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the worker presents itself. The first of `served_names` is what answers and metrics say.

    `root` is where the model was loaded from; a gateway finds the tokeniser there. `api_keys` guard /v1; none guard
    nothing. `mint_request_ids`: an answer gets an X-Request-Id also where the request had none. `seed`: answers
    to requests without one get it, then its successors; None leaves them unpredictable.
    """

    served_names: tuple[str, ...]
    root: str
    max_model_tokens: int
    block_tokens: int
    prefix_caching: bool
    version: str
    fingerprint: str
    prompt_tokens_details: bool = True
    api_keys: tuple[str, ...] = ()
    dev_routes: bool = False
    mint_request_ids: bool = False
    seed: int | None = None
    body_limit_bytes: int = 64 * MIB
    wire_limits: WireLimits = DEFAULT_LIMITS

    @property
    def cached_block_tokens(self) -> int | None:
        """The block size, None when nothing is cached."""
        return self.block_tokens if self.prefix_caching else None


class Worker:
    """One served model."""

    def __init__(
        self,
        settings: ServerSettings,
        engine: AsyncEngine,
        prompts: PromptReader,
        metrics: WorkerMetrics,
        holdings: Holdings,
        events: EventService = NO_EVENTS,
        exchange: Exchange = NO_EXCHANGE,
        offload: Offload = NO_OFFLOAD,
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.prompts = prompts
        self.metrics = metrics
        self.holdings = holdings
        self.events = events
        self.exchange = exchange
        self.offload = offload
        self.in_flight = 0
        self.draining = False
        self._next_seed = settings.seed or 0

    def with_seed(self, sampling: SamplingParams) -> SamplingParams:
        """`sampling` with a seed, if the worker gives seeds and it has none."""
        if self.settings.seed is None or sampling.seed is not None:
            return sampling
        seed = self._next_seed
        self._next_seed += sampling.n  # a request's answers have successive seeds, and the next request's are others
        return replace(sampling, seed=seed)

    def require_model(self, name: str | None) -> None:
        """UnknownModelError unless `name` is served; no name means whatever is."""
        names = self.settings.served_names
        if name and name not in names:
            aliases = ", ".join(names)
            raise UnknownModelError(f"The model `{name}` does not exist. Valid aliases: {aliases}.", param="model")

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Count a request while it is served; ServerClosingError when none are taken any more."""
        if self.draining:
            raise ServerClosingError("The worker is shutting down.")
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
