"""Pinned prompts: looked after all the time, and sent to whoever should hold one and is not believed to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from xxhash import xxh3_64_intdigest

from gateway.errors import GatewayError
from gateway.fleet import UnknownWorker
from gateway.prewarm.pin_files import PinError, read_pin
from gateway.prewarm.sender import How, SendError
from gateway.prewarm.store import KeptPrompt
from gateway.prewarm.undertaking import Tools
from gateway.rewrites.apply import rewrite_call_soon
from gateway.tenant_settings import PinnedPrompt, TenantSettings
from gateway.tenants import Tenant
from gateway.wire import forward_body
from gateway.worker_state import Worker
from router.core import Prompt, PromptSource
from router.normalise import FoldRules

ROUND_SECONDS: Final = 5.0

log: Final = logging.getLogger("homing.pins")


class PreparesPrompts(Protocol):
    """What pins need of `gateway.serving.Serving`."""

    async def prepare(self, model: str, source: PromptSource, *, salt: str | None, rules: FoldRules) -> Prompt:
        """Both chains of a prompt."""
        ...


class Pin(NamedTuple):
    """A pinned prompt as it is sent, and how many workers are to hold it."""

    name: str
    kept: KeptPrompt
    replicas: int


class Pins:
    """Belongs to one event loop. `tenant` finds a tenant by its name."""

    def __init__(self, tools: Tools, prompts: PreparesPrompts, tenant: Callable[[str], Tenant | None]) -> None:
        self._tools = tools
        self._prompts = prompts
        self._tenant = tenant
        self._settings: Mapping[str, TenantSettings] = {}
        self._pins: dict[tuple[str, str], Pin] = {}
        self._calls = 0

    def become(self, settings: Mapping[str, TenantSettings]) -> None:
        """Look after what these tenants pin from the next round on; files are read anew."""
        self._settings = settings
        self._pins = {}  # another one: what is being made ready goes by what was before

    async def keep(self) -> None:
        """One round after the other, until cancelled."""
        while True:
            try:
                await self.round()
            except Exception as error:  # noqa: BLE001 - what failed must not end the looking after; it may quote a prompt
                log.error("looking after pinned prompts failed", extra={"fields": {"error": type(error).__name__}})  # noqa: TRY400
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Look at every pin at every worker that is to hold it, and send it where it is lacking."""
        current = self._settings
        for name, settings in tuple(current.items()):
            if not settings.pinned:
                continue
            pins = await self._of(name, settings)
            if self._settings is not current:
                return
            held = [await self._hold(pin, worker) for pin in pins for worker in self._holders(pin)]
            ratio = sum(held) / len(held) if held else 0.0
            self._tools.metrics.pinned_prompts_held_ratio.labels(name).set(ratio)

    # Reading

    async def _of(self, name: str, settings: TenantSettings) -> list[Pin]:
        """A tenant's pins; one that cannot be made ready is said in the log and tried again in the next round."""
        pins: list[Pin] = []
        ready = self._pins
        for pinned in settings.pinned:
            key = name, pinned.name
            try:
                pin = ready.get(key) or await self._ready(name, pinned)
            except (PinError, GatewayError, ValueError, KeyError) as error:
                fields = {"tenant": name, "prompt": pinned.name, "error": type(error).__name__}
                log.warning("a pinned prompt cannot be made ready", extra={"fields": fields})
                continue
            if pin is not None:
                ready[key] = pin
                pins.append(pin)
        return pins

    async def _ready(self, name: str, pinned: PinnedPrompt) -> Pin | None:
        """As a request of the tenant would go: rewritten, salted, with its share of the cache."""
        tenant = self._tenant(name)
        if tenant is None:
            return None
        call = await asyncio.to_thread(read_pin, Path(pinned.file))
        call, _ = await rewrite_call_soon(call, tenant.rewrites)
        salt = tenant.salt(call.model, client_salt=call.cache_salt, user=call.user)
        prompt = await self._prompts.prepare(call.model, call.source, salt=salt, rules=tenant.fold)
        kept = KeptPrompt(
            model=call.model,
            endpoint=call.endpoint,
            body=forward_body(call, salt=salt, ask_usage=False),
            prompt=prompt,
            tenant=name,
            policy=tenant.policy,
            session=call.session,
            wishes=tenant.wishes,
            at=self._tools.clock(),
        )
        return Pin(pinned.name, kept, pinned.replicas)

    # Holding

    def _holders(self, pin: Pin) -> Iterator[Worker]:
        """Its homes on the ring, then others in an order of its own that every replica of the gateway agrees on."""
        kept, tools = pin.kept, self._tools
        homes = tools.routers(kept.model).homes_of(
            kept.prompt, tools.fleet.view(kept.model), tools.clock(), tenant=kept.tenant, policy=kept.policy
        )
        able = {worker.name: worker for worker in tools.fleet.workers if worker.up and worker.serves(kept.model)}
        end = kept.prompt.key_blocks[-1]
        others = sorted(able, key=lambda name: xxh3_64_intdigest(end + name.encode()))
        ordered = [*(name for name in homes if name in able), *(name for name in others if name not in homes)]
        return (able[name] for name in ordered[: pin.replicas])

    async def _hold(self, pin: Pin, worker: Worker) -> bool:
        """Whether the worker holds it, or does now. Real requests come first: where some wait, the next round sends."""
        warming = self._tools.routers(pin.kept.model).warming
        if warming.held_tokens(pin.kept.prompt, worker.name) >= pin.kept.tokens:
            return True
        if not worker.up or warming.waiting(worker.name) or (worker.figures is not None and worker.figures.waiting):
            return False
        try:
            # One that hangs must not keep other workers from what they are to hold.
            async with asyncio.timeout(self._tools.settings.deadline_seconds):
                await self._send(pin.kept, worker)
        except (SendError, UnknownWorker, TimeoutError) as error:
            fields = {"tenant": pin.kept.tenant, "prompt": pin.name, "worker": worker.name, "error": str(error)}
            log.warning("a pinned prompt was not taken", extra={"fields": fields})
            return False
        return True

    async def _send(self, kept: KeptPrompt, worker: Worker) -> None:
        tools, warming = self._tools, self._tools.routers(kept.model).warming
        self._calls += 1
        request_id = f"pin-{id(self):x}-{self._calls}"
        lacking = kept.tokens - warming.held_tokens(kept.prompt, worker.name)
        async with tools.fleet.lease(worker.name):
            tools.metrics.prewarm_seconds_total.labels().inc(
                warming.begin(request_id, kept.prompt, worker.name, tools.clock())
            )
            try:
                await tools.sender.compute(kept, worker)
            finally:
                warming.end(request_id, tools.clock())
        warming.believe(request_id + "-held", kept.prompt, worker.name, tools.clock())
        tools.metrics.prewarmed_prompts_total.labels(How.COMPUTED.value).inc()
        tools.metrics.prewarmed_tokens_total.labels(How.COMPUTED.value).inc(lacking)
