"""A configuration that changes while requests come: read aside, checked, then taken whole or not at all."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path as FilePath
from types import TracebackType
from typing import Final, NamedTuple

from gateway.config_checks import Secrets
from gateway.config_files import Rest, Stamp, merged, referenced_files, stamp_of
from gateway.config_source import ConfigError, Path
from gateway.config_view import config_digest, ending_keys, moment
from gateway.keys import read_revoked, readable_revoked
from gateway.logs import tell_fault
from gateway.metrics import Metrics
from gateway.reload_rules import needs_restart, secrets_need_restart
from gateway.secrets import SecretError, fingerprint
from gateway.settings import Config
from gateway.supervise import Supervisor, end

LOOK_SECONDS: Final = 0.25
"""Between two looks at the files: a change is read after it has rested for one."""

RETRY_SECONDS: Final = 10.0
"""A configuration that was refused is read again this often: what it lacked may be there now."""

SOON_SECONDS: Final = 14 * 86_400.0
"""Keys that end within it are told of in the log, at start and with each configuration."""

APPLIED, REFUSED, UNCHANGED = "applied", "refused", "unchanged"

log: Final = logging.getLogger("homing.reload")

Check = Callable[[Config, Secrets], Awaitable[None]]
Apply = Callable[[Config, Secrets], None]


class Source(NamedTuple):
    """Where the configuration comes from: its file, and how it is read anew. `load` runs in a thread and raises
    `ConfigError`.
    """

    path: FilePath
    load: Callable[[], tuple[Config, Secrets]]


class Refusal(NamedTuple):
    """Why the latest configuration was not taken, and since when (Unix seconds)."""

    at: float
    reasons: tuple[str, ...]


class Reloader:
    """The configuration in use, and its successor. Belongs to one event loop.

    Whoever holds settings registers with `on_reload`; what nobody registered for is refused by `gateway.reload_rules`
    with the words that it needs a restart. `revoke` is told of the list of revoked keys, which is read on its own: a
    key is revoked even while the configuration has a mistake.
    """

    def __init__(
        self,
        config: Config,
        secrets: Secrets,
        source: Source | None,
        metrics: Metrics,
        revoke: Callable[[frozenset[bytes]], None],
        clock: Callable[[], float] = time.time,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`source` None is a configuration that never changes; `clock` gives Unix seconds."""
        self._supervisor = supervisor or Supervisor(metrics)
        self.config, self.secrets, self.source = config, secrets, source
        self.loaded_at = clock()
        self.refusal: Refusal | None = None
        self.counts = {APPLIED: 0, REFUSED: 0, UNCHANGED: 0}
        self._metrics = metrics
        self._revoke = revoke
        self._clock = clock
        self._appliers: list[tuple[Check | None, Apply]] = []
        self._asked = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._revoking: asyncio.Task[None] | None = None
        self._retry_at = 0.0
        self._rest = Rest(self._look())
        self._revoked_rest = Rest(self._look_at_revoked())
        self._succeeded()

    def on_reload(self, apply: Apply, check: Check | None = None) -> None:
        """Call `apply` with each new configuration, in the order of registration, all of them in one go.

        `check` may look at it before, take its time, and raise `ConfigError`: then nobody applies it. `apply` does not
        wait and should not raise; when it does, those that have applied are called with the configuration before.
        """
        self._appliers.append((check, apply))

    def ask(self) -> None:
        """Read the configuration now, changed or not (SIGHUP)."""
        self._asked.set()

    async def __aenter__(self) -> Reloader:
        self._say_which_keys_end()
        if self.source is not None:
            self._task = self._supervisor.start("reload", self._watch)
            self._revoking = self._supervisor.start("revocations", self._watch_revoked)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self._task)
        await end(self._revoking)

    async def reload(self, *, again: bool = False) -> str:
        """Read the configuration and take it, or say why not: `applied`, `refused` or `unchanged`. Never raises.

        `again` says that nothing has changed: then a refusal for the same reasons is not worth a word.
        """
        async with self._one_at_a_time:
            return UNCHANGED if self.source is None else await self._reload(self.source, again=again)

    async def look(self) -> None:
        """One look at the files, and what follows from it."""
        async with self._one_at_a_time:
            stamp = await asyncio.to_thread(self._look)
            retry = self.refusal is not None and self._clock() >= self._retry_at
            asked = self._asked.is_set()
            self._asked.clear()
            changed = self._rest.to_be_read(stamp) or asked
            if self.source is not None and (changed or retry):
                await self._reload(self.source, again=not changed)

    async def look_at_revoked(self) -> None:
        """One look at the list of revoked keys. It waits for no configuration: to try one may take seconds."""
        if self._revoked_rest.to_be_read(await asyncio.to_thread(self._look_at_revoked)):
            await self._read_revoked()

    async def _reload(self, source: Source, *, again: bool) -> str:
        before = await asyncio.to_thread(self._look)
        try:
            config, secrets = await asyncio.to_thread(source.load)
            result = await self._take(config, secrets)
        except ConfigError as error:
            result = self._refuse(tuple(str(each) for each in (error, *error.others)), again=again)
        except Exception as error:  # noqa: BLE001 - nothing in a file may end the process; its text must not show
            tell_fault(log, error, "while taking a configuration")
            result = self._refuse((f"{source.path}: cannot be used ({type(error).__name__})",), again=again)
        self._rest.was_read(merged(before, await asyncio.to_thread(self._look)))
        self._retry_at = self._clock() + RETRY_SECONDS
        return result

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - a look that fails must not be the last one
                log.warning("cannot look at the configuration", extra={"fields": {"because": type(error).__name__}})
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._asked.wait()

    async def _watch_revoked(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look_at_revoked()
            except Exception as error:  # noqa: BLE001 - a look that fails must not be the last one
                log.warning("cannot look at revoked keys", extra={"fields": {"because": type(error).__name__}})

    async def _take(self, config: Config, secrets: Secrets) -> str:
        if (config, secrets) == (self.config, self.secrets):
            self._succeeded()
            return self._counted(UNCHANGED)
        fixed = (*needs_restart(self.config, config), *secrets_need_restart(self.secrets, secrets))
        _refuse_fixed(fixed, self.source)
        for check, _ in self._appliers:
            if check is not None:
                await check(config, secrets)
        if config.revoked_keys == self.config.revoked_keys:
            # While it was tried the list may have grown; a name that left it is let in by the look that follows.
            secrets.revoked |= self.secrets.revoked
        self._revoked_rest.was_read(())
        self._apply(config, secrets)
        self.config, self.secrets, self.loaded_at = config, secrets, self._clock()
        self._succeeded()
        log.info("configuration taken", extra={"fields": {"digest": config_digest(config)}})
        self._say_which_keys_end()
        return self._counted(APPLIED)

    def _apply(self, config: Config, secrets: Secrets) -> None:
        """All of it, without letting a request in between; what was begun is undone when one of them fails."""
        applied: list[Apply] = []
        try:
            for _, apply in self._appliers:
                applied.append(apply)
                apply(config, secrets)
        except Exception:
            for apply in reversed(applied):
                apply(self.config, self.secrets)
            raise

    async def _read_revoked(self) -> None:
        """Take in the list by itself. Of one with a mistake the other lines count, and what was revoked stays so."""
        place = self.config.revoked_keys
        if place is None:
            return
        try:
            revoked = await asyncio.to_thread(read_revoked, place)
        except SecretError as error:
            log.warning("list of revoked keys not taken whole", extra={"fields": {"because": str(error)}})
            revoked = self.secrets.revoked | await asyncio.to_thread(readable_revoked, place)
        self._revoke(revoked)
        self.secrets.revoked = revoked
        log.info("list of revoked keys taken", extra={"fields": {"keys": len(revoked)}})

    def _refuse(self, reasons: tuple[str, ...], *, again: bool) -> str:
        if again and self.refusal is not None and self.refusal.reasons == reasons:
            return REFUSED
        self.refusal = Refusal(self._clock(), reasons)
        self._metrics.config_last_reload_successful.labels().set(0)
        for reason in reasons:
            log.error("configuration refused, the one before stays", extra={"fields": {"because": reason}})
        return self._counted(REFUSED)

    def _succeeded(self) -> None:
        self.refusal = None
        self._metrics.config_last_reload_successful.labels().set(1)
        self._metrics.config_last_reload_success_timestamp_seconds.labels().set(self._clock())

    def _counted(self, result: str) -> str:
        self.counts[result] += 1
        self._metrics.config_reloads_total.labels(result).inc()
        return result

    def _say_which_keys_end(self) -> None:
        """A key that ends on a Sunday should be news before."""
        for tenant, digest, expires_at in ending_keys(self.secrets, self._clock() + SOON_SECONDS):
            ended = expires_at <= self._clock()
            told = {"tenant": tenant, "key_fp": fingerprint(digest), "expires": moment(expires_at)}
            log.warning("key has expired" if ended else "key expires soon", extra={"fields": told})

    def _look(self) -> Stamp:
        return () if self.source is None else stamp_of((self.source.path, *referenced_files(self.config)))

    def _look_at_revoked(self) -> Stamp:
        place = self.config.revoked_keys
        return () if place is None else stamp_of((FilePath(place.removeprefix("file:")),))


def _refuse_fixed(places: Sequence[Path], source: Source | None) -> None:
    """Raise `ConfigError` when a place differs that needs a restart: half of a configuration is none."""
    if not places:
        return
    file = str(source.path) if source is not None else None
    hint = "restart the gateway, or take the change back; nothing else of the file is used before"
    errors = [ConfigError("needs a restart to change", path=place, hint=hint, file=file) for place in places]
    errors[0].others = tuple(errors[1:])
    raise errors[0]
