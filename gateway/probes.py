"""Looking after workers: one loop each, asking for health, models and metrics, and telling the fleet."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from gateway.fleet import Change, ChangeKind, Fleet
from gateway.model_cards import ModelCard, parse_cards
from gateway.settings import Probes as ProbeSettings
from gateway.supervise import Supervisor, end
from gateway.trials import Trials
from gateway.worker_metrics import WorkerFigures, parse_figures
from gateway.worker_state import ProbeResult, State, Worker

CARDS_EVERY_ROUNDS = 5
"""Models change rarely: a ready worker's list is asked for every so many rounds, a worker in trouble's every time."""

JITTER = 0.1
"""Share of the interval by which rounds come sooner or later, so that many gateways do not march in step."""

PAGE_BYTES = 8 * 1024 * 1024
"""A page longer than this is no page of a worker."""

REDIRECTS = (301, 302, 307, 308)

log = logging.getLogger("homing.probes")


class Page(NamedTuple):
    """An answer to a probe."""

    status: int
    location: str
    body: bytes


class Prober:
    """Asks one worker at a time; holds the connections."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Prober:
        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
        # trust_env stays off: a proxy of the environment is not where workers are.
        # No bound of connections: workers that hang would keep the probes of those that are well waiting.
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def look(self, worker: Worker, *, cards: bool) -> ProbeResult | None:
        """One round at a worker: /health, then /metrics and, when `cards`, /v1/models. Never raises for its faults.

        None when we have no descriptor to look with, which says nothing of the worker.
        """
        try:
            health = await self._get(worker, "/health")
            if health.status != 200:
                return ProbeResult(trouble=f"answers {health.status} to /health")
            figures = await self._figures(worker)
            listed = await self._cards(worker, wanted=cards)
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno in (errno.EMFILE, errno.ENFILE):
                return None
            return ProbeResult(trouble=f"no connection: {_os_words(error.os_error)}", refused=True)
        except TimeoutError:
            return ProbeResult(trouble=f"no answer within {self._timeout_seconds:g} s", silent=True)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return ProbeResult(trouble=f"no proper answer ({type(error).__name__})")
        if isinstance(listed, str):
            return ProbeResult(trouble=listed, figures=figures)
        return ProbeResult(cards=listed, figures=figures)

    async def _get(self, worker: Worker, path: str) -> Page:
        if self._session is None:
            raise RuntimeError("a Prober works inside `async with`")
        headers = {"authorization": f"Bearer {worker.api_key}"} if worker.api_key else {}
        url = worker.backend.address.url + path
        async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
            body = await answer.content.read(PAGE_BYTES)
            while not answer.content.at_eof() and len(body) < PAGE_BYTES:
                body += await answer.content.read(PAGE_BYTES - len(body))
            return Page(answer.status, answer.headers.get("location", ""), body)

    async def _figures(self, worker: Worker) -> WorkerFigures | None:
        page = await self._get(worker, "/metrics")
        if page.status in REDIRECTS:
            path = _same_worker_path(worker, page.location)
            page = await self._get(worker, path) if path else page
        return parse_figures(page.body.decode(errors="replace")) if page.status == 200 else None

    async def _cards(self, worker: Worker, *, wanted: bool) -> tuple[ModelCard, ...] | str | None:
        """The cards, or what is wrong with the list; None when nobody asked."""
        if not wanted:
            return None
        page = await self._get(worker, "/v1/models")
        if page.status in (401, 403):
            return f"answers {page.status} to /v1/models: give its key as api_key"
        if page.status != 200:
            return f"answers {page.status} to /v1/models"
        try:
            return parse_cards(page.body)
        except (msgspec.DecodeError, RecursionError):
            return "answers /v1/models with something else than a list of models"


def _os_words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _same_worker_path(worker: Worker, location: str) -> str | None:
    """Where a redirect leads on the same worker, below its base path; None for anywhere else."""
    address = worker.backend.address
    target = urlsplit(urljoin(address.url + "/metrics", location))
    home = urlsplit(address.url)
    if (target.scheme, target.netloc) != (home.scheme, home.netloc):
        return None
    path = target.path.removeprefix(address.base_path)
    return path if path.rstrip("/") == "/metrics" else None


class Probes:
    """The loops: one task for each worker in the fleet, started and ended as workers come and go."""

    def __init__(
        self,
        fleet: Fleet,
        settings: ProbeSettings,
        clock: Callable[[], float] = time.monotonic,
        trials: Trials | None = None,
        tasks: Supervisor | None = None,
    ) -> None:
        """Without `trials` an ejected worker's probes are all that it is judged by."""
        self._trials = trials
        self._supervisor = tasks or Supervisor(clock=clock)
        self._fleet = fleet
        self._settings = settings
        self._clock = clock
        self._prober = Prober(settings.timeout_seconds)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looked_at: dict[str, asyncio.Event] = {}
        fleet.on_change(self._fleet_changed)

    async def __aenter__(self) -> Probes:
        await self._prober.__aenter__()
        self._running = True
        for worker in self._fleet.workers:
            self._watch(worker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running = False
        await end(*self._tasks.values())
        await self._prober.__aexit__(kind, error, trace)

    _running = False

    async def first_round(self) -> bool:
        """Wait until every worker was looked at once, at most `start_seconds`; whether that came about."""
        waits = [event.wait() for event in self._looked_at.values()]
        try:
            async with asyncio.timeout(self._settings.start_seconds):
                await asyncio.gather(*waits)
        except TimeoutError:
            return False
        return True

    @property
    def not_looked_at(self) -> tuple[str, ...]:
        """Workers that no probe has come back from yet."""
        return tuple(name for name, event in self._looked_at.items() if not event.is_set())

    def _fleet_changed(self, change: Change) -> None:
        if change.kind is ChangeKind.JOINED and self._running:
            self._watch(change.worker)
        elif change.kind is ChangeKind.LEFT:
            self._looked_at.pop(change.worker.name, None)
            task = self._tasks.pop(change.worker.name, None)
            if task is not None:
                task.cancel()

    def _watch(self, worker: Worker) -> None:
        self._looked_at[worker.name] = asyncio.Event()
        self._tasks[worker.name] = self._supervisor.start(
            "probe", partial(self._loop, worker), name=f"probe {worker.name}"
        )

    async def _loop(self, worker: Worker) -> None:
        looked_at = self._looked_at[worker.name]
        rounds = 0
        while True:
            in_trouble = worker.state is not State.READY or worker.cards is None
            result = await self._prober.look(worker, cards=in_trouble or rounds % CARDS_EVERY_ROUNDS == 0)
            if result is not None:
                self._fleet.probed(worker.name, await self._tried(worker, result), self._clock())
                looked_at.set()
                rounds += 1
            # Not cryptography: only so that probes spread out.
            await asyncio.sleep(self._settings.interval_seconds * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311

    async def _tried(self, worker: Worker, result: ProbeResult) -> ProbeResult:
        """The reading, with what the data plane says to it."""
        trials = self._trials
        if trials is None:
            return replace(result, trial=True)
        if result.silent:
            return replace(result, hung=trials.hangs(worker))
        if result.figures is not None and result.figures.asleep:
            return result  # an engine that sleeps may have let go of its weights: it must not be asked anything
        if result.trouble is None and worker.standing.trial_due(self._clock()):
            return replace(result, trial=await trials.good(worker))
        if result.trouble is None and trials.suspect(worker):
            return replace(result, hung=not await trials.good(worker))
        return result
