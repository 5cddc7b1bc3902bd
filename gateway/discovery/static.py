"""Workers written in the configuration: one `Backend` for each, however many models it serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from gateway.addresses import parse_worker_url
from gateway.config_source import Path
from gateway.settings import Model, StaticBackend
from gateway.worker_state import Backend


class Listed(NamedTuple):
    """One entry of a `static:` list, where it stands, and the model it stands under."""

    path: Path
    model: str
    entry: StaticBackend


def listed_backends(models: Mapping[str, Model]) -> Iterator[Listed]:
    """Every entry of every `static:` list, plain URLs included."""
    for name, model in models.items():
        for index, entry in enumerate(model.backends.static):
            full = StaticBackend(url=entry) if isinstance(entry, str) else entry
            yield Listed(("models", name, "backends", "static", index), name, full)


def static_backends(models: Mapping[str, Model], worker_keys: Mapping[str, str]) -> tuple[Backend, ...]:
    """The workers in the order written; `worker_keys` are the keys behind the `api_key` references.

    ValueError for a bad URL, for one name at two addresses or with two settings, and for one address under two names.
    """
    found: dict[str, Backend] = {}
    for listed in listed_backends(models):
        backend = _backend(listed, worker_keys)
        known = found.get(backend.name)
        found[backend.name] = backend if known is None else _merged(known, backend)
    _refuse_doubles(found)
    return tuple(found.values())


def _backend(listed: Listed, worker_keys: Mapping[str, str]) -> Backend:
    entry = listed.entry
    address = parse_worker_url(entry.url)
    return Backend(
        name=entry.name or address.netloc + address.base_path,
        address=address,
        models=frozenset((listed.model,)),
        weight=entry.weight,
        max_in_flight=entry.max_in_flight,
        api_key=worker_keys[entry.api_key] if entry.api_key is not None else None,
    )


def _merged(known: Backend, again: Backend) -> Backend:
    if known.address != again.address:
        raise ValueError(f"{known.name} is the name of {known.address.url} already, and of {again.address.url} too")
    if replace(known, models=again.models) != again:
        raise ValueError(f"{known.name} is listed twice, with another weight, max_in_flight or api_key each time")
    return replace(known, models=known.models | again.models)


def _refuse_doubles(found: Mapping[str, Backend]) -> None:
    names: dict[str, str] = {}
    for backend in found.values():
        first = names.setdefault(backend.address.url, backend.name)
        if first != backend.name:
            raise ValueError(f"{backend.address.url} is one worker with two names: {first} and {backend.name}")
