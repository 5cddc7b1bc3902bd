"""Workers on their way out and back: who is ejected, spared or growing, and who is asked nevertheless."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from gateway.ejection import Choice, EjectionRules, choose, slow_start_bound
from gateway.fault_settings import Faults
from gateway.worker_state import State, Worker
from router.core import WorkerView


class Recovery:
    """Holds the workers that something speaks against for a while; costs nothing while there is none.

    `clock` gives monotonic seconds.
    """

    def __init__(self, settings: Faults, clock: Callable[[], float]) -> None:
        self.rules = EjectionRules(settings.ejection_seconds, settings.most_ejection_seconds, settings.ejected_share)
        self._slow_start_seconds = settings.slow_start_seconds
        self._clock = clock
        self.limited: set[Worker] = set()

    def spare(self, worker: Worker, seconds: float) -> None:
        """The worker has too much to do: it is passed over for so long, while there are others."""
        worker.standing.busy(self._clock(), seconds)
        worker.changed()
        self.limited.add(worker)

    def is_out(self, worker: Worker) -> None:
        """The worker was ejected or went down. What is down needs no looking after: only its probes bring it back."""
        worker.slow_start = None
        if worker.state is State.EJECTED:
            self.limited.add(worker)
        else:
            self.limited.discard(worker)

    def is_back(self, worker: Worker, others: Sequence[Worker]) -> None:
        """The worker is ready again. It starts slowly where most `others` can carry what it does not take yet."""
        now = self._clock()
        worker.standing.returns(now)
        steady = sum(other.state is State.READY and other.slow_start is None for other in others)
        if worker.joined and self._slow_start_seconds and others and steady * 4 >= 3 * len(others):
            worker.slow_start = partial(self._grown, now)
        self.limited.add(worker)

    def refresh(self) -> None:
        """Let go of what time has ended."""
        now = self._clock()
        for worker in tuple(self.limited):
            standing = worker.standing
            if standing.rested(now):
                worker.changed()
            if worker.slow_start is not None:
                worker.changed()
                if now - (standing.returned_at or 0.0) >= self._slow_start_seconds:
                    worker.slow_start = None
            if worker.state is not State.EJECTED and standing.busy_until is None and worker.slow_start is None:
                self.limited.discard(worker)

    def forget(self, worker: Worker) -> None:
        """The worker has left."""
        self.limited.discard(worker)

    def choice(self, serving: Sequence[Worker]) -> Choice:
        """Whom of a model's workers to ask nevertheless; those that are leaving count for nothing."""
        staying = [index for index, worker in enumerate(serving) if not worker.draining]
        chosen = choose([serving[index].fitness for index in staying], self.rules.most_share)
        return Choice(frozenset(staying[index] for index in chosen.nevertheless), chosen.panic)

    def reconsider(self, model: str, serving: Sequence[Worker], views: list[WorkerView]) -> list[WorkerView]:
        """The pictures of a model's workers, with those ready that are asked nevertheless."""
        for index in self.choice(serving).nevertheless:
            if serving[index].serves(model):
                views[index] = replace(views[index], ready=True)
        return views

    def _grown(self, returned_at: float, bound: int) -> int:
        return slow_start_bound(bound, returned_at, self._clock(), self._slow_start_seconds)
