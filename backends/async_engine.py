"""The engine in a thread of its own: requests in, deltas out, and nobody waits for a dead one.

    event loop                              engine thread
    answer() ── add ─────────────► inbox ──► engine.add()
       ▲                                     engine.step() ─┐
       └── queue ◄── call_soon_threadsafe ◄── deltas ◄──────┘
    client gone ── abort ────────► inbox ──► engine.abort()

Only the engine thread touches the engine; only the event loop touches the answers.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from backends.accounts import EngineStats
from backends.admission import Admission, WaitingRoom
from backends.api_errors import ApiError, BadRequestError, EngineDeadError, GenerationFailedError, ServerClosingError
from backends.types import Delta, GenerationRequest, RequestRefusedError, StepFailedError

logger = logging.getLogger("homing.worker")

Result = TypeVar("Result")


class Steps(Protocol):
    """What is needed of an engine; `backends.engine.Engine` has it."""

    @property
    def has_work(self) -> bool:
        """Whether step() would do anything."""

    def add(self, request: GenerationRequest) -> None:
        """Queue a request; RequestRefusedError when it can never run."""

    def abort(self, request_id: str) -> object:
        """Forget a request, if it is still there."""

    def step(self) -> Sequence[Delta]:
        """Run one step; StepFailedError when only the requests in it are lost."""

    def stats(self) -> EngineStats:
        """Gauges and counters."""

    def reset_prefix_cache(self, *, external: bool = False, preempt: bool = False) -> bool:
        """False while any block is in use."""


class OpenAnswer:
    """The answers to one call's requests, as they grow; iterate over it once. Event loop only.

    Iteration yields the deltas of a step at a time and ends when all `n` answers of all requests have ended; it
    raises ApiError when the engine lost them.
    """

    def __init__(self, requests: Sequence[GenerationRequest]) -> None:
        self.request_ids = tuple(request.request_id for request in requests)
        self.accepted = asyncio.get_running_loop().create_future()
        self._unfinished = sum(request.sampling.n for request in requests)
        self._news: asyncio.Queue[Sequence[Delta] | ApiError] = asyncio.Queue()

    @property
    def finished(self) -> bool:
        """Whether nothing more will come from the engine."""
        return self._unfinished == 0

    def heard(self, news: Sequence[Delta] | ApiError) -> None:
        """News from the engine."""
        if isinstance(news, ApiError):
            if not self.accepted.done():
                self.accepted.set_exception(news)
                return
        else:
            self._unfinished -= sum(delta.finish_reason is not None for delta in news)
        self._news.put_nowait(news)

    async def __aiter__(self) -> AsyncIterator[Sequence[Delta]]:
        """Deltas, one step's (of this call) at a time."""
        while not (self.finished and self._news.empty()):
            news = await self._news.get()
            if isinstance(news, ApiError):
                raise news
            yield news


class AsyncEngine:
    """Drives one engine; `watch` gets its stats after every change, in the engine's thread."""

    def __init__(
        self,
        engine: Steps,
        *,
        admission: Admission,
        watch: Callable[[EngineStats], None],
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._room = WaitingRoom(admission)
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: dict[str, OpenAnswer] = {}
        self._replies: set[asyncio.Future[Any]] = set()
        self._end: ApiError | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread; to be called in the event loop that will read the answers."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the engine runs and takes requests."""
        return self._end is None and self._thread.is_alive()

    async def stop(self) -> None:
        """End the thread after the step it is in; answers still open end with an error."""
        self._inbox.put(None)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        self._ended(ServerClosingError("The worker is shutting down."))

    @asynccontextmanager
    async def answer(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[OpenAnswer]:
        """The accepted requests' answers; leaving early aborts what is not finished. Raises ApiError."""
        self._require_alive()
        answer = OpenAnswer(requests)
        self._answers.update(dict.fromkeys(answer.request_ids, answer))
        self._inbox.put(partial(self._admit, requests))
        try:
            await answer.accepted
            yield answer
        finally:
            for request_id in answer.request_ids:
                self._answers.pop(request_id, None)
            if not answer.finished:
                self._inbox.put(partial(self._forget, answer.request_ids))

    async def call(self, command: Callable[[], Result]) -> Result:
        """Run `command` in the engine's thread, between two steps; its result, or what it raised."""
        self._require_alive()
        reply: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._replies.add(reply)
        self._inbox.put(partial(self._carry_out, command, reply))
        try:
            return await reply
        finally:
            self._replies.discard(reply)

    def order(self, command: Callable[[], None]) -> None:
        """Have `command`, which must not fail, run in the engine's thread between two steps. Any thread.

        Nobody hears of it, but the engine is watched after it; after the end it does not run at all.
        """
        self._inbox.put(command)

    async def reset_prefix_cache(self, *, external: bool = False, preempt: bool = False) -> bool:
        """Forget all cached blocks; see `Engine.reset_prefix_cache`."""
        return await self.call(partial(self._engine.reset_prefix_cache, external=external, preempt=preempt))

    def _require_alive(self) -> None:
        if self._end is not None:
            raise self._end
        if not self._thread.is_alive():
            raise EngineDeadError("The engine is not running.")

    # Engine thread from here on.

    def _run(self) -> None:
        try:
            self._watch(self._engine.stats())
            while self._obey():
                if self._engine.has_work:
                    self._step()
                else:
                    self._watch(self._engine.stats())
        except Exception:
            logger.exception("The engine died; restart this worker")
            self._post(self._ended, EngineDeadError("The engine died; restart this worker."))

    def _obey(self) -> bool:
        """Carry out what has come in, waiting for something when there is nothing to compute; False: stop."""
        with suppress(queue.Empty):
            while True:
                command = self._inbox.get(block=not self._engine.has_work)
                if command is None:
                    return False
                command()
                if self._inbox.empty():
                    break
        return True

    def _carry_out(self, command: Callable[[], Result], reply: asyncio.Future[Result]) -> None:
        """The figures, and whoever watches, are up to date before the answer, as after a step."""
        try:
            result = command()
            self._watch(self._engine.stats())
            self._post(_settle, reply, result)
        except Exception as error:  # noqa: BLE001 - whoever asked decides what it means
            self._post(_refuse, reply, error)

    def _step(self) -> None:
        """One step; the figures are up to date before anybody hears of it, so that nobody finds them behind."""
        try:
            deltas = self._engine.step()
        except StepFailedError as error:
            self._watch(self._engine.stats())
            logger.exception("A step failed; its requests are lost, the others go on")
            self._room.leave(error.request_ids)
            self._tell(error.request_ids, GenerationFailedError("The model failed on this request."))
            return
        self._watch(self._engine.stats())
        if deltas:
            self._room.leave(delta.request_id for delta in deltas)
            self._post(self._deliver, deltas)

    def _admit(self, requests: Sequence[GenerationRequest]) -> None:
        """Take all requests of a call, or none."""
        try:
            self._room.enter(requests, self._engine.stats().waiting)
            for request in requests:
                self._engine.add(request)
        except (ApiError, RequestRefusedError) as error:
            self._forget(request.request_id for request in requests)
            refusal = error if isinstance(error, ApiError) else BadRequestError(str(error), param=error.param)
            self._tell([requests[0].request_id], refusal)
        else:
            self._post(self._accepted, requests[0].request_id)

    def _forget(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self._room.leave([request_id])
            self._engine.abort(request_id)

    def _tell(self, request_ids: Sequence[str], error: ApiError) -> None:
        self._post(self._lost, request_ids, error)

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        """Have the event loop call `function`; it may be closed already when the process ends."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function, *arguments)

    # Event loop from here on.

    def _accepted(self, request_id: str) -> None:
        answer = self._answers.get(request_id)
        if answer is not None and not answer.accepted.done():
            answer.accepted.set_result(None)

    def _deliver(self, deltas: Sequence[Delta]) -> None:
        mine: dict[int, tuple[OpenAnswer, list[Delta]]] = {}
        for delta in deltas:
            answer = self._answers.get(delta.request_id)
            if answer is not None:
                mine.setdefault(id(answer), (answer, []))[1].append(delta)
        for answer, news in mine.values():
            answer.heard(news)

    def _lost(self, request_ids: Sequence[str], error: ApiError) -> None:
        for answer in {id(answer): answer for answer in map(self._answers.get, request_ids) if answer}.values():
            answer.heard(error)

    def _ended(self, error: ApiError) -> None:
        """The thread is over: everybody who waits hears it, and so does everybody who comes later."""
        self._end = self._end or error
        self._lost(tuple(self._answers), self._end)
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(self._end)


def _settle(reply: asyncio.Future[Result], value: Result) -> None:
    if not reply.done():
        reply.set_result(value)


def _refuse(reply: asyncio.Future[Result], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
