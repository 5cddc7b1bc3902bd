"""Workers written in the configuration: each once, however many models it serves."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.discovery.static import listed_backends, static_backends
from gateway.settings import Backends, Model, StaticBackend


def build_models(**entries: list[Any]) -> dict[str, Model]:
    """Models by name, each with its `static:` list."""
    return {name: Model(backends=Backends(static=listed)) for name, listed in entries.items()}


def test_a_url_is_enough():
    """Its host and port are its name."""
    (backend,) = static_backends(build_models(m=["http://gpu-1:8000/v1"]), {})
    assert (backend.name, backend.address.url, backend.models) == ("gpu-1:8000", "http://gpu-1:8000", {"m"})
    assert (backend.weight, backend.max_in_flight, backend.api_key) == (1, None, None)


def test_a_prefix_is_part_of_the_name():
    """Two engines behind one port are two workers."""
    backends = static_backends(build_models(m=["http://gpu:80/a", "http://gpu:80/b"]), {})
    assert [backend.name for backend in backends] == ["gpu:80/a", "gpu:80/b"]


def test_a_mapping_says_more():
    """Name, weight, bound, and the key behind its reference."""
    entry = StaticBackend(url="http://gpu", name="big", weight=3, max_in_flight=7, api_key="env:WK")
    (backend,) = static_backends(build_models(m=[entry]), {"env:WK": "worker-key"})
    assert (backend.name, backend.weight, backend.max_in_flight, backend.api_key) == ("big", 3, 7, "worker-key")
    assert "worker-key" not in repr(backend)


def test_a_worker_of_two_models_is_one_worker():
    """Its requests in flight are counted together."""
    (backend,) = static_backends(build_models(m=["http://gpu"], n=["http://gpu"]), {})
    assert backend.models == {"m", "n"}


def test_the_order_is_the_files():
    """Which makes /v1/models stable."""
    backends = static_backends(build_models(m=["http://b", "http://a"], n=["http://c", "http://b"]), {})
    assert [backend.name for backend in backends] == ["b:80", "a:80", "c:80"]


def test_one_name_at_two_addresses_is_refused():
    """The ring could not tell them apart."""
    models = build_models(m=[StaticBackend(url="http://a", name="w")], n=[StaticBackend(url="http://b", name="w")])
    with pytest.raises(ValueError, match="w is the name of http://a:80 already"):
        static_backends(models, {})


def test_one_address_under_two_names_is_refused():
    """It would be counted twice."""
    models = build_models(m=["http://a"], n=[StaticBackend(url="http://a:80/v1", name="w")])
    with pytest.raises(ValueError, match="one worker with two names: a:80 and w"):
        static_backends(models, {})


def test_entries_know_where_they_stand():
    """So that a mistake can be told with its place."""
    paths = [listed.path for listed in listed_backends(build_models(m=["http://a", "http://b"]))]
    assert paths == [("models", "m", "backends", "static", 0), ("models", "m", "backends", "static", 1)]
