"""Who belongs to the fleet, changed while it runs: workers are added, drained and removed as an operator says."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gateway.addresses import parse_worker_url
from gateway.config_source import did_you_mean
from gateway.errors import InvalidRequest, NoSuchWorker, WorkerExists
from gateway.fleet import Fleet, UnknownWorker
from gateway.settings import StaticBackend
from gateway.worker_places import settled_address
from gateway.worker_state import ANY_MODEL, Backend, Worker

MOST_AT_ONCE = 1024
"""Workers in one change."""


class NewWorker(StaticBackend, frozen=True):
    """A worker as `POST /workers` takes it: an entry of `static:` that names its models itself."""

    models: Annotated[
        Annotated[list[str], Meta(min_length=1)] | None,
        Meta(description="Configured models it serves; by default the only one."),
    ] = None


class Membership:
    """Changes of the fleet, checked like the configuration.

    `models` are the configured names, `worker_keys` the keys behind the configuration's own `api_key` references: no
    other reference is read, so that this port cannot be used to send a file's content to an address of choice.
    """

    def __init__(
        self,
        fleet: Fleet,
        models: Iterable[str],
        worker_keys: Mapping[str, str],
        expect: Callable[[str, int], None] = lambda name, weight: None,  # noqa: ARG005
        networks: Sequence[str] = (),
    ) -> None:
        """`expect` is told name and weight of each worker before any of them joins; `networks` are where they may be,
        any but those of metadata services when there are none."""
        self._fleet = fleet
        self._expect = expect
        self._models = tuple(models)
        self._worker_keys = worker_keys
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def configure(self, models: Iterable[str], worker_keys: Mapping[str, str]) -> None:
        """Take in the configured names and the keys behind their references anew."""
        self._models, self._worker_keys = tuple(models), worker_keys

    @property
    def workers(self) -> tuple[Worker, ...]:
        """All of them, in the order they joined."""
        return self._fleet.workers

    async def add(self, body: bytes) -> list[Worker]:
        """Take in the workers of a JSON object or list: all of them, or none and `InvalidRequest` or `WorkerExists`.

        Each gets requests after its first good probe.
        """
        entries = self._read(body)
        named = self._checked([self._backend(entry) for entry in entries])
        backends = [replace(each, address=await settled_address(each.address, self._networks)) for each in named]
        for backend in self._checked(backends):
            self._expect(backend.name, backend.weight)
            await asyncio.sleep(0)
        # Checked again: the fleet may have changed while others had their turn.
        return [self._fleet.add(backend) for backend in self._checked(backends)]

    def drain(self, name: str) -> Worker:
        """Give a worker nothing new; `NoSuchWorker` when there is none."""
        worker = self.worker(name)
        self._fleet.drain(name)
        return worker

    def resume(self, name: str) -> Worker:
        """Take a draining back; `NoSuchWorker` when there is no such worker."""
        worker = self.worker(name)
        self._fleet.resume(name)
        return worker

    def remove(self, name: str) -> Worker:
        """Let a worker go; what it is doing for anybody ends in its own time. `NoSuchWorker` when there is none."""
        worker = self.worker(name)
        self._fleet.remove(name)
        return worker

    def worker(self, name: str) -> Worker:
        """The live record; `NoSuchWorker` with the nearest name when there is none."""
        try:
            return self._fleet.worker(name)
        except UnknownWorker:
            hint = did_you_mean(name, (worker.name for worker in self._fleet.workers))
            raise NoSuchWorker(f"No worker is named `{name}`; {hint or 'there is none at all'}.") from None

    def _read(self, body: bytes) -> list[NewWorker]:
        try:
            data = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise InvalidRequest(
                "The body is not JSON: send an object with `url`, or a list of such objects."
            ) from None
        entries = data if isinstance(data, list) else [data]
        if not 1 <= len(entries) <= MOST_AT_ONCE:
            raise InvalidRequest(f"Send 1 to {MOST_AT_ONCE} workers at a time.")
        return [_entry(entry, f"[{index}]" if data is entries else "") for index, entry in enumerate(entries)]

    def _checked(self, backends: Sequence[Backend]) -> Sequence[Backend]:
        names = {worker.name: worker.backend.address.url for worker in self._fleet.workers}
        urls = {url: name for name, url in names.items()}
        for backend in backends:
            url = backend.address.url
            if backend.name in names:
                raise WorkerExists(f"`{backend.name}` is the name of {names[backend.name]} already.", param="name")
            if url in urls:
                raise WorkerExists(f"{url} is one worker with two names: it is `{urls[url]}` already.", param="url")
            names[backend.name], urls[url] = url, backend.name
        return backends

    def _backend(self, entry: NewWorker) -> Backend:
        try:
            address = parse_worker_url(entry.url)
        except ValueError as error:
            raise InvalidRequest(f"{_sentence(str(error))}", param="url") from None
        return Backend(
            name=entry.name or address.netloc + address.base_path,
            address=address,
            models=frozenset(self._served(entry)),
            weight=entry.weight,
            max_in_flight=entry.max_in_flight,
            api_key=None if entry.api_key is None else self._key(entry.api_key),
        )

    def _served(self, entry: NewWorker) -> Sequence[str]:
        if entry.models is None:
            if ANY_MODEL in self._models:
                return (ANY_MODEL,)
            if len(self._models) == 1:
                return self._models
            raise InvalidRequest(f"Say which `models` it serves; {did_you_mean('', self._models)}.", param="models")
        for name in entry.models:
            if name not in self._models:
                hint = did_you_mean(name, self._models)
                raise InvalidRequest(f"No model `{name}` is configured; {hint}.", param="models")
        return entry.models

    def _key(self, reference: str) -> str:
        key = self._worker_keys.get(reference)
        if key is None:
            raise InvalidRequest(
                "`api_key` must be a reference that the configuration gives to one of its own workers, as it stands "
                "there.",
                param="api_key",
            )
        return key


def _entry(data: Any, place: str) -> NewWorker:
    try:
        return msgspec.convert(data, NewWorker)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        known = [field.encode_name for field in msgspec.structs.fields(NewWorker)]
        unknown = [key for key in data if key not in known] if isinstance(data, dict) else []
        hint = f" {_sentence(did_you_mean(unknown[0], known))}" if unknown else ""
        where = f"{place}{path.rstrip('`')}".lstrip(".")
        raise InvalidRequest(f"{_sentence(what)}{hint}", param=where or None) from None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}" + ("" if text.endswith("?") else ".")
