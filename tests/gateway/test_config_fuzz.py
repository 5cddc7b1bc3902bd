"""Two hundred and more wrong configurations: each ends in a `ConfigError` with a place, none in a traceback."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config import Config, ConfigError, load_config
from gateway.config_convert import convert, fields_at
from gateway.config_source import json_path, read_yaml
from tests.gateway.builders import ENVIRON, build_config_data, key_line, write_config

FULL = build_config_data(
    models={
        "m": {
            "backends": {"static": ["http://127.0.0.1:8001", {"url": "http://gpu", "name": "big", "weight": 2}]},
            "policy": {"name": "homing", "ring_slack_seconds": 0.1},
            "adapters": ["lora-a"],
            "max_in_flight": 8,
        }
    },
    tenants={
        "acme": {"keys": [key_line("a")], "models": ["m", "lora-a"], "isolation": "group:g", "fold": ["clock"]},
        "globex": {"keys": [key_line("b")], "policy": "ring", "max_prompt_tokens": 100, "cache_partition": "p"},
        "limited": {
            "keys": [key_line("c")],
            "limits": {"requests_per_minute": 9, "concurrency": 2, "when_redis_is_away": "closed", "enforce": False},
            "budget": {"tokens": 1000, "every": "30d", "when_spent": "warn"},
            "weight": 2,
            "priority": "low",
        },
    },
    timeouts={"connect_seconds": 0.5},
    limits={"body_bytes": 1000},
    probes={"interval_seconds": 1.0},
    log={"level": "info", "request_share": 0.5},
)


def places(data, path=()):
    """Every place inside plain data."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in inside:
        yield (*path, step)
        yield from places(value, (*path, step))


def at(data, path):
    for step in path:
        data = data[step]
    return data


def replaced(path, value):
    """The full configuration with another value at one place."""
    data = copy.deepcopy(FULL)
    at(data, path[:-1])[path[-1]] = value
    return data


def load_data(folder, data, environ=ENVIRON):
    return load_config(write_config(folder, yaml.safe_dump(data)), environ)


def mistake_of(load, *arguments) -> ConfigError | None:
    """The error, or None where there was nothing wrong; anything else than a `ConfigError` comes out."""
    try:
        load(*arguments)
    except ConfigError as error:
        return error
    return None


def test_the_full_configuration_itself_is_right(tmp_path):
    """Or the rest of this file would prove nothing."""
    assert isinstance(load_data(tmp_path, FULL), Config)


ODD = ({"odd": 1}, [[]], -1, "\u2028 odd", 1e300)
"""Values of every kind; each is wrong at most places."""

WRONG = [(path, value) for path in places(FULL) for value in ODD]


def test_there_are_enough_of_them():
    """The bar is two hundred."""
    assert len(WRONG) >= 200


@pytest.mark.parametrize("number", range(0, len(WRONG), 10))
def test_a_wrong_value_at_any_place_is_told_or_is_none(tmp_path, number):
    """Ten at a time: a `ConfigError` that names a place at or above the wrong value, or a configuration."""
    for path, value in WRONG[number : number + 10]:
        error = mistake_of(load_data, tmp_path, replaced(path, value))
        if error is not None:
            assert str(error).startswith(f"{tmp_path}/homing.yaml")
            assert error.line is None or error.line >= 1
            assert "..." not in json_path(error.path)


@pytest.mark.parametrize(
    "path", [path for path in places(FULL) if fields_at(path) and isinstance(at(FULL, path), dict)]
)
def test_an_unknown_field_anywhere_is_told_where_it_stands(tmp_path, path):
    """At every section of the file, with its exact place."""
    with pytest.raises(ConfigError) as caught:
        load_data(tmp_path, replaced((*path, "no_such_field"), 1))
    assert json_path(caught.value.path) == json_path((*path, "no_such_field"))
    assert caught.value.what == "unknown field `no_such_field`"
    assert caught.value.hint


@pytest.mark.parametrize("path", [path for path in places(FULL) if isinstance(path[-1], str) and fields_at(path[:-1])])
def test_a_misspelt_field_gets_the_right_word(tmp_path, path):
    """Every field of the file, with its last letter doubled."""
    data = replaced(path, None)
    inner = at(data, path[:-1])
    inner[path[-1] + path[-1][-1]] = inner.pop(path[-1])
    with pytest.raises(ConfigError) as caught:
        load_data(tmp_path, data)
    told = (caught.value.hint, caught.value.what)
    assert told[0] == f"did you mean `{path[-1]}`?" or told[1] == f"the field `{path[-1]}` is missing"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_is_a_configuration_or_an_error(tmp_path, text):
    """Whatever an editor, a template or a cat leaves in the file."""
    with pytest.raises(ConfigError):
        load_config(write_config(tmp_path, text), ENVIRON)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(place=st.sampled_from(list(places(FULL))), value=json_values)
def test_any_value_at_any_place_converts_or_is_told(place, value):
    """The typing step alone, with values nobody thought of."""
    source = read_yaml(json.dumps(replaced(place, value)), "f") if _plain(value) else None
    if source is None:
        return
    error = mistake_of(convert, source)
    assert error is None or str(error).startswith("f:")


def _plain(value) -> bool:
    """Whether YAML reads JSON's spelling of a value as the same value (control characters are not allowed in YAML)."""
    try:
        return bool(yaml.safe_load(json.dumps(value)) == value)
    except yaml.YAMLError:
        return False
