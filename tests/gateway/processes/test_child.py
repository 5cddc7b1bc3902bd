"""What a process has to itself, and how it is told from its siblings."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from gateway.processes.child import Place, own_config, own_path, tell_parent
from gateway.processes.parent import FIRST_BACK_OFF_SECONDS, MOST_BACK_OFF_SECONDS, back_off_seconds, reserve_port
from gateway.settings import Backends, Config, Model, Record, TenantSettings
from tests.gateway.scripted_worker import until


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("traffic.jsonl.gz", "traffic.3.jsonl.gz"),
        ("/var/log/a.b/traffic.jsonl", "/var/log/a.b/traffic.3.jsonl"),
        ("traffic", "traffic.3"),
        (".hidden", ".hidden.3"),
    ],
)
def test_each_process_records_into_a_file_of_its_own(path, own):
    """Its endings stay: they say whether the file is gzipped."""
    assert own_path(path, 3) == own


def test_a_process_takes_its_admin_port_from_everybody_but_its_parent():
    """On loopback, any free one."""
    config = Config(
        models={"m": Model(backends=Backends(static=["http://127.0.0.1:1"]))},
        tenants={"t": TenantSettings()},
        record=Record(path="a.gz"),
    )
    own = own_config(config, Place(1, 9))
    assert (own.listen.admin_host, own.listen.admin_port) == ("127.0.0.1", 0)
    assert own.record.path == "a.1.gz"
    assert own.listen.port == config.listen.port
    assert own_config(Config(models=config.models, tenants=config.tenants), Place(1, 9)).record is None


@pytest.mark.parametrize("text", ["", "1", "a:b", "1:"])
def test_a_place_is_a_number_and_a_descriptor(text):
    """Anything else is no place."""
    with pytest.raises(ValueError, match="invalid literal"):
        Place.parse(text)


async def test_a_process_tells_where_it_is_and_leaves_with_its_parent(monkeypatch):
    """A parent that was killed says nothing more: the line ends."""
    ours, theirs = socket.socketpair()
    told = []
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append((pid, number)))
    task = await tell_parent(Place(0, theirs.detach()), 4711)
    assert ours.recv(100) == b'{"admin_port":4711}\n'
    ours.close()
    await until(lambda: bool(told))
    assert told == [(os.getpid(), signal.SIGTERM)]
    await task


def test_back_off_doubles_up_to_a_bound():
    """The first restart comes at once, or nearly."""
    assert [back_off_seconds(n) for n in (1, 2, 3)] == [FIRST_BACK_OFF_SECONDS * each for each in (1, 2, 4)]
    assert back_off_seconds(1000) == MOST_BACK_OFF_SECONDS


def test_a_reserved_port_is_shared_by_those_who_ask_for_it_only():
    """A second listener that shares nothing is refused."""
    with reserve_port("127.0.0.1", 0) as reserved:
        port = reserved.getsockname()[1]
        with reserve_port("127.0.0.1", port), socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
