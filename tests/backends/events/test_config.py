"""`--kv-events-config`: vLLM's names and defaults, and errors that name the key."""

from __future__ import annotations

import json

import pytest

from backends.arguments import parse_arguments
from backends.events.config import EventsConfig, parse_events_config
from tests.backends.server_builders import recorded


def test_the_defaults_are_vllms():
    """Nothing is published unless it is asked for; then over ZMQ on port 5557, without replays."""
    assert not parse_events_config("{}").publishes
    config = parse_events_config('{"enable_kv_cache_events": true}')
    assert config.publishes
    assert config == EventsConfig(True, "zmq", "tcp://*:5557", None, 10_000, 100_000, 100_000, "")


def test_the_recorded_configuration_comes_out_as_it_went_in():
    """Names and order of vLLM 0.32's /kv_event_sources."""
    body = json.loads(recorded("kv_event_sources")["body"])
    config = parse_events_config(json.dumps(body["0"]))
    assert list(config.to_json().items()) == list(body["0"].items())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"endpont": "x"}', "has no key 'endpont'; there are enable_kv_cache_events, .*endpoint"),
        ('{"hwm": "many"}', "hwm must be int, not 'many'"),
        ('{"hwm": true}', "hwm must be int, not True"),
        ('{"hwm": 0}', "hwm must be at least 1, not 0"),
        ('{"buffer_steps": -1}', "buffer_steps must be at least 1"),
        ('{"topic": null}', "topic must be str, not None"),
        ('{"replay_endpoint": 5}', "replay_endpoint must be str or NoneType"),
        ('{"enable_kv_cache_events": 1}', "enable_kv_cache_events must be bool"),
        ('{"publisher": "kafka"}', "publisher 'kafka' is unknown"),
        ('{"endpoint": "http://here"}', "endpoint 'http://here' is no ZMQ endpoint"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(text, complaint):
    """The message names the key, and what it should be."""
    with pytest.raises(ValueError, match=complaint):
        parse_events_config(text)


def test_the_null_publisher_publishes_nothing():
    """As in vLLM."""
    assert not parse_events_config('{"enable_kv_cache_events": true, "publisher": "null"}').publishes


def test_the_command_line_names_the_option(capsys):
    """argparse's error, and status 2."""
    with pytest.raises(SystemExit):
        parse_arguments(["--simulated", "--kv-events-config", '{"endpont": 1}'])
    assert "argument --kv-events-config: has no key 'endpont'" in capsys.readouterr().err
