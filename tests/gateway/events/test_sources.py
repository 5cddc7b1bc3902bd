"""What workers say of where they publish, and whom that lets the gateway connect to."""

from __future__ import annotations

import json

import pytest

from gateway.events.sources import Source, SourceError, configured_sources, sglang_sources, vllm_sources
from gateway.placement_settings import EventSettings
from tests.gateway.builders import FIXTURES

HOST = "10.0.0.7"


def build_vllm(endpoint: object = "tcp://*:5557", replay: object = "tcp://*:5558", **more: object) -> dict:
    """One rank's configuration, as /kv_event_sources gives it."""
    return {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint, "replay_endpoint": replay,
            "topic": "kv", **more}  # fmt: skip


def build_sglang(**more: object) -> dict:
    return {"kv_events": {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "topic": "",
                          "block_size": 1, "dp_size": 1, **more}}  # fmt: skip


@pytest.mark.parametrize("said", ["*", "0.0.0.0", "[::]", HOST])
def test_a_wildcard_is_the_workers_own_host(said):
    """And so is its own name."""
    (source,) = vllm_sources({"0": build_vllm(f"tcp://{said}:5557", f"tcp://{said}:5558")}, HOST)
    assert source == Source(f"tcp://{HOST}:5557", f"tcp://{HOST}:5558", "kv", 0)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://169.254.169.254:80", "tcp://10.0.0.8:5557", "tcp://localhost:5557", "ipc:///var/run/docker.sock",
     "inproc://x", "tcp://*", "tcp://*:*", "tcp://*:99999", "tcp://[::", 7, None],
)  # fmt: skip
def test_nobody_else_is_connected_to_at_a_workers_word(endpoint):
    """Another host, a local socket, no port: refused, for the stream and for its replays."""
    with pytest.raises(SourceError):
        vllm_sources({"0": build_vllm(endpoint)}, HOST)
    if endpoint is not None:
        with pytest.raises(SourceError):
            vllm_sources({"0": build_vllm(replay=endpoint)}, HOST)


def test_sglang_names_ports_and_may_not_name_another_host():
    """Ports count up by rank; the block's size comes with it."""
    sources = sglang_sources(build_sglang(dp_size=2, replay_endpoint_port_base=5657), HOST)
    assert sources == [
        Source(f"tcp://{HOST}:5557", f"tcp://{HOST}:5657", "", 0, 1),
        Source(f"tcp://{HOST}:5558", f"tcp://{HOST}:5658", "", 1, 1),
    ]
    with pytest.raises(SourceError):
        sglang_sources(build_sglang(endpoint_host="10.0.0.8"), HOST)
    with pytest.raises(SourceError):
        sglang_sources(build_sglang(endpoint_port_base=None), HOST)


def test_every_rank_has_a_stream():
    """Ranks that share an endpoint listen one port higher each; those with their own said so."""
    shared = vllm_sources({str(rank): build_vllm() for rank in range(3)}, HOST)
    assert [source.endpoint[-4:] for source in shared] == ["5557", "5558", "5559"]
    assert [source.replay_endpoint[-4:] for source in shared] == ["5558", "5559", "5560"]
    own = vllm_sources({"0": build_vllm(), "1": build_vllm("tcp://*:6000", None)}, HOST)
    assert [(source.endpoint[-4:], source.replay_endpoint and source.replay_endpoint[-4:]) for source in own] == [
        ("5557", "5558"), ("6000", None),
    ]  # fmt: skip


def test_who_publishes_nothing_has_no_streams():
    """Switched off, another publisher, an empty answer, an answer without events."""
    assert vllm_sources({"0": build_vllm(enable_kv_cache_events=False), "1": build_vllm(publisher="null")}, HOST) == []
    assert vllm_sources({}, HOST) == sglang_sources({}, HOST) == sglang_sources(None, HOST) == []
    assert sglang_sources({"kv_events": None}, HOST) == []


@pytest.mark.parametrize(
    "answer",
    [[], "x", {"0": 1}, {"x": build_vllm()}, {str(rank): {} for rank in range(100)}, {"0" * 5000: build_vllm()},
     {"0": build_vllm(["tcp"]), "1": build_vllm(["tcp"])}, {"7": build_vllm("tcp://*:65530"), "9": build_vllm("tcp://*:65530")}],
)  # fmt: skip
def test_what_is_no_such_answer_is_refused(answer):
    """Another page behind the path."""
    with pytest.raises(SourceError):
        vllm_sources(answer, HOST)


def test_the_recorded_answer_is_read_and_its_local_socket_refused():
    """vLLM 0.32 was recorded with ipc endpoints: they are for the configuration to name."""
    exchanges = json.loads((FIXTURES / "vllm-0.32" / "exchanges.json").read_text())
    (body,) = [each["body"] for each in exchanges if each["name"] == "kv_event_sources"]
    with pytest.raises(SourceError, match="in models"):
        vllm_sources(json.loads(body), HOST)
    tcp = body.replace("ipc:///run/kv/ev.ipc", "tcp://*:5557").replace("ipc:///run/kv/rp.ipc", "tcp://*:5558")
    (source,) = vllm_sources(json.loads(tcp), HOST)
    assert source.topic == "kv@worker-0@smollm2"


def test_the_configuration_may_name_any_endpoint():
    """Another host, a local socket, several ranks; a wildcard is each worker's own host, IPv6 in brackets."""
    settings = EventSettings(endpoint="tcp://*:5557", replay_endpoint="tcp://relay:5558", topic="kv", ranks=2)
    assert configured_sources(settings, "fd00::1") == [
        Source("tcp://[fd00::1]:5557", "tcp://relay:5558", "kv", 0),
        Source("tcp://[fd00::1]:5558", "tcp://relay:5559", "kv", 1),
    ]
    assert configured_sources(EventSettings(endpoint="ipc:///run/kv/ev.ipc"), HOST) == [
        Source("ipc:///run/kv/ev.ipc", None, "", 0)
    ]


@pytest.mark.parametrize("port", [0, -5, 65_536, 10**30])
def test_a_port_that_is_none_is_refused(port):
    """A number at a worker's word, for the stream and for its replays; and one that ranks count up to."""
    for more in ({"endpoint_port_base": port}, {"replay_endpoint_port_base": port}):
        with pytest.raises(SourceError, match="port"):
            sglang_sources(build_sglang(**more), HOST)
    with pytest.raises(SourceError, match="port"):
        sglang_sources(build_sglang(endpoint_port_base=65_535, dp_size=2), HOST)
