"""One slot at one worker, held for as long as a request is there."""

from __future__ import annotations

from types import TracebackType

from gateway.worker_state import Worker


class Lease:
    """One slot at one worker: counted from `async with` on, given back whatever happens."""

    __slots__ = ("_held", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._held = False

    async def __aenter__(self) -> Lease:
        if self._held:
            raise RuntimeError(f"the lease at {self.worker.name} is already taken")
        self._held = True
        self.worker.count(1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = False
        self.worker.count(-1)
