"""Processes that replay side by side, and end with the command however it ends."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import NamedTuple

from gateway.replay.desk import Desk, Job, Result, Setup


class ReplayFailed(Exception):
    """A replay could not be ended; the message says which and why."""


class _Worker(NamedTuple):
    process: SpawnProcess
    pipe: Connection


class Processes:
    """`with Processes(setup, count)`: up to `count` processes, started as they are needed, ended at the exit."""

    def __init__(self, setup: Setup, count: int) -> None:
        self._setup = setup
        self._count = count
        self._workers: list[_Worker] = []
        self._busy: dict[int, Job] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.process.terminate()
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join()

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        """The results, each as soon as it is there. ReplayFailed when a replay raised or its process died."""
        waiting = deque(jobs)
        while waiting or self._busy:
            while waiting and len(self._busy) < self._count:
                self._give(waiting.popleft())
            pipes = [self._workers[number].pipe for number in self._busy]
            for pipe in connection.wait(pipes):
                number = next(place for place, worker in enumerate(self._workers) if worker.pipe is pipe)
                yield self._busy[number], self._take(number)

    def _give(self, job: Job) -> None:
        free = next((number for number in range(len(self._workers)) if number not in self._busy), None)
        if free is None:
            free = len(self._workers)
            self._workers.append(_start(self._setup))
        self._busy[free] = job
        try:
            self._workers[free].pipe.send(job)
        except OSError:
            raise self._died(free) from None

    def _take(self, number: int) -> Result:
        job = self._busy[number]
        try:
            answer = self._workers[number].pipe.recv()
        except (EOFError, OSError):
            raise self._died(number) from None
        del self._busy[number]
        if isinstance(answer, Result):
            return answer
        raise ReplayFailed(f"replaying {job} failed: {answer}")

    def _died(self, number: int) -> ReplayFailed:
        process = self._workers[number].process
        process.join()
        code = process.exitcode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        hint = "; perhaps memory was short: try --processes 1" if code == -signal.SIGKILL else ""
        return ReplayFailed(f"the process that replayed {self._busy[number]} {how}{hint}")


def _start(setup: Setup) -> _Worker:
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=work, args=(theirs, setup), name="homing-replay", daemon=True)
    # Ctrl-C goes to every process of a terminal. This one ends the others, which inherit that they do not hear of it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    process.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # With our copy closed, the pipe ends when the process does.
    theirs.close()
    return _Worker(process, ours)


def work(pipe: Connection, setup: Setup) -> None:
    """A process's life: answer jobs until the command has gone."""
    desk: Desk | None = None
    try:
        while True:
            job = pipe.recv()
            try:
                desk = desk or Desk(setup)
                answer: Result | str = desk.answer(job)
            except Exception as error:  # noqa: BLE001 - told to the command, which says it and ends
                answer = f"{type(error).__name__}: {error}"
            pipe.send(answer)
    except (EOFError, OSError):
        return
