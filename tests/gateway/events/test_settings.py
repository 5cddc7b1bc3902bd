"""`models.NAME.events` in the configuration: its short forms, its long form, and what is wrong with it."""

from __future__ import annotations

import pytest

from gateway.config import load_config
from gateway.config_source import ConfigError
from gateway.placement_settings import EventSettings
from tests.gateway.builders import ENVIRON, key_line, write_config

BOTH = "{endpoint: 'tcp://*:5557', replay_endpoint: 'tcp://*:5558'}"


def load(folder, events: str | None):
    """The `events` of a model, as its line in the file says."""
    line = "" if events is None else f"events: {events}"
    text = f"""
salt_secrets: {{k1: env:SALT}}
models:
  m:
    backends: {{static: ["http://127.0.0.1:8001"]}}
    {line}
tenants: {{acme: {{keys: ["{key_line("k")}"]}}}}
"""
    return load_config(write_config(folder, text), ENVIRON).models["m"].events


@pytest.mark.parametrize(
    ("line", "read"), [(None, "auto"), ("auto", "auto"), ("off", False), ("on", True), ("'off'", "off")]
)
def test_the_short_forms(tmp_path, line, read):
    """YAML makes a truth value of a bare `off`: that is understood."""
    assert load(tmp_path, line) == read


def test_the_long_form(tmp_path):
    """Endpoints, and the rest at its default."""
    assert load(tmp_path, BOTH) == EventSettings(endpoint="tcp://*:5557", replay_endpoint="tcp://*:5558")
    assert load(tmp_path, "{silent_seconds: 2}") == EventSettings(silent_seconds=2)


@pytest.mark.parametrize(
    ("line", "place", "said"),
    [
        ("{endpoint: 'tcp://*'}", "endpoint", "no port"),
        ("{endpoint: 'tcp://*:5557', replay_endpoint: 'tcp://h:99999'}", "replay_endpoint", "no port"),
        ("{endpoint: 'http://h:1'}", "endpoint", "tcp"),
        ("{replay_endpoint: 'tcp://*:5558'}", "events", "there is none"),
        ("{endpoints: 'tcp://*:5557'}", "endpoints", "unknown field"),
        ("never", "events", "invalid"),
        ("{ranks: 0}", "ranks", "1"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, line, place, said):
    """Where, and what is wrong."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, line)
    assert place in str(caught.value)
    assert said in str(caught.value)
