"""One prompt to one worker's cache: its blocks pulled from a worker that has them, or computed with one token."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from gateway.cache_wishes import with_wishes
from gateway.prewarm.bodies import PULL_PATH, compute_path, one_token_body, pull_body, request_head
from gateway.prewarm.store import KeptPrompt
from gateway.upstream import Upstream
from gateway.upstream_connection import Connection, UpstreamFault
from gateway.worker_state import Worker

ANSWER_BYTES: Final = 1 << 20
"""A longer answer to a request for one token is none."""

ENOUGH_SHARE: Final = 0.5
"""A pull that left the worker with less of the prompt than this share is made good by computing."""


_NO_ROUTE: Final = frozenset((404, 405))
"""What any engine but the bundled worker answers to a pull; that one answers 400 for a peer it was not told of."""


class How(Enum):
    """The ways blocks get to a worker: the values of a metric's label."""

    PULLED = "pulled"
    COMPUTED = "computed"


class Answer(NamedTuple):
    """A worker's answer: its status, and the body where that is whole."""

    status: int
    body: bytes


class SendError(Exception):
    """The worker did not take the prompt; `refused` when it will not take it another time either."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


class _Pulled(msgspec.Struct):
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Sender:
    """Sends on the gateway's own connections; remembers which workers have no way to pull."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._cannot_pull: set[tuple[str, str]] = set()

    def may_pull(self, worker: Worker, source: Worker | None) -> bool:
        """Whether `worker` has not said yet that it takes no blocks from `source`."""
        return source is not None and not self._cannot_pull & {(worker.name, source.name), (worker.name, "")}

    def forget(self, worker: str) -> None:
        """A worker left or is another process: what it can do is open again."""
        self._cannot_pull = {pair for pair in self._cannot_pull if worker not in pair}

    async def pull(self, kept: KeptPrompt, worker: Worker, source: Worker) -> bool:
        """Let `worker` bring the prompt's blocks from `source`; whether it then had most of them."""
        body = pull_body(_body(kept, worker), source.backend.address.url)
        answer = await self._ask(worker, worker.backend.address.base_path + PULL_PATH, body)
        if answer.status != 200:
            if answer.status in _NO_ROUTE:
                self._cannot_pull.add((worker.name, ""))
            elif answer.status < 500:
                self._cannot_pull.add((worker.name, source.name))
            return False
        try:
            pulled = msgspec.json.decode(answer.body, type=_Pulled)
        except msgspec.DecodeError:
            return False
        return pulled.cached_tokens >= ENOUGH_SHARE * pulled.prompt_tokens > 0

    async def compute(self, kept: KeptPrompt, worker: Worker) -> None:
        """Let `worker` prefill the prompt; raises `SendError` when it did not."""
        answer = await self._ask(
            worker, compute_path(worker.backend.address.base_path, kept.endpoint), one_token_body(_body(kept, worker))
        )
        if answer.status != 200:
            raise SendError(f"it answers {answer.status}", refused=answer.status < 500 and answer.status != 429)

    async def _ask(self, worker: Worker, path: str, body: bytes) -> Answer:
        head = request_head(worker.backend.address.netloc, path, worker.api_key, len(body))
        try:
            connection = await self._upstream.attempt(worker.backend.address, head, body, streams=False)
        except UpstreamFault as fault:
            raise SendError(f"no answer ({fault.cause.value})", refused=False) from None
        try:
            return await _whole(connection)
        finally:
            self._upstream.release(connection)


def _body(kept: KeptPrompt, worker: Worker) -> bytes:
    return kept.body if kept.wishes is None else with_wishes(kept.body, kept.wishes, worker.cache_fields)


async def _whole(connection: Connection) -> Answer:
    """The answer to its end. A cancellation drops the connection, and with it the worker's work."""
    taken: list[bytes] = []
    length = 0

    def take(payload: bytes) -> None:
        nonlocal length
        length += len(payload)
        if length <= ANSWER_BYTES:
            taken.append(payload)

    connection.attach(take)
    while not (connection.complete or connection.fault):
        await connection.wait()
    if connection.fault is not None or length > ANSWER_BYTES:
        raise SendError("its answer broke off", refused=False)
    return Answer(connection.answered_head.status, b"".join(taken))
