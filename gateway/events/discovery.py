"""Asking a worker where it publishes its KV events: vLLM's page, then SGLang's. Our worker has both."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import aiohttp
import msgspec

from gateway.events.sources import Source, SourceError, sglang_sources, vllm_sources
from gateway.worker_state import Worker

VLLM_PAGE = "/kv_event_sources"
SGLANG_PAGE = "/server_info"
PAGE_BYTES = 1024 * 1024


class NotAsked(Exception):
    """The worker did not answer; it may be asked again."""


class SourceFinder:
    """Holds the connections; `async with`."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> SourceFinder:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout_seconds))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def find(self, worker: Worker) -> Sequence[Source]:
        """The worker's streams; none where it publishes nothing. `NotAsked`, or `SourceError` for unusable ones."""
        try:
            answer = await self._page(worker, VLLM_PAGE)
            found = [] if answer is None else vllm_sources(answer, worker.backend.address.host)
            if not found:
                found = sglang_sources(await self._page(worker, SGLANG_PAGE), worker.backend.address.host)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise NotAsked(type(error).__name__) from None
        return found

    async def _page(self, worker: Worker, path: str) -> Any:
        """The page's JSON; None where there is no such page."""
        if self._session is None:
            raise RuntimeError("a SourceFinder works inside `async with`")
        headers = {"authorization": f"Bearer {worker.api_key}"} if worker.api_key else {}
        url = worker.backend.address.url + path
        async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
            if answer.status >= 500:
                raise aiohttp.ClientError
            if answer.status != 200:
                return None
            body = b""
            while piece := await answer.content.read(PAGE_BYTES + 1 - len(body)):
                body += piece
        try:
            if len(body) > PAGE_BYTES:
                raise SourceError(f"{path} is longer than any such page")
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise SourceError(f"{path} is not JSON") from None
