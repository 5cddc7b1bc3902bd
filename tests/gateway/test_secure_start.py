"""G1: what would let strangers in, or let tenants see each other, does not start: exit 2, and how to put it right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import MISUSE, main
from gateway.config import load_config
from tests.gateway.builders import ENVIRON, SALT_SECRET, build_config_data, key_line

OPEN = {"local": {"open": True, "isolation": "shared"}}
TWO = {"acme": {"keys": [key_line("a")]}, "globex": {"keys": [key_line("b")]}}
ANYWHERE = {"host": "0.0.0.0", "port": 0, "admin_port": 0}


def told_at_start(tmp_path: Path, monkeypatch, capsys, salt: str = SALT_SECRET, **sections: Any) -> str:
    """What `homing serve` says of a configuration that it does not start with."""
    path = tmp_path / "homing.yaml"
    path.write_text(json.dumps(build_config_data(**sections)))
    monkeypatch.setenv("SALT", salt)
    assert main(["serve", "--config", str(path)]) == MISUSE
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


@pytest.mark.parametrize(
    ("sections", "what", "fix"),
    [
        ({"tenants": OPEN, "listen": ANYWHERE}, "lets anyone in", "give the tenant keys"),
        ({"tenants": {"acme": {"keys": []}}, "listen": ANYWHERE}, "no key opens this tenant", "homing keys mint acme"),
        ({"tenants": {"acme": {"keys": [key_line("changeme")]}}}, "stands in examples", "homing keys mint"),
        ({"tenants": {"acme": {"keys": ["sk-1234"]}}}, "never itself", "homing keys hash"),
        ({"tenants": TWO, "salt_secrets": {}}, "needs a salt secret", "add `salt_secrets:"),
        ({"tenants": TWO, "salt_secrets": {"k1": "env:NOT_SET"}}, "is not set", "openssl rand"),
        ({"tenants": TWO, "salt_secrets": {"k1": "a-secret-of-one's-own"}}, "never itself", "openssl rand"),
        ({"tenants": TWO, "salt_secrets": {"k1": "env:SALT", "k2": "env:SALT"}}, "no word on which", "salt_secret: ID"),
        (
            {"tenants": {**TWO, "eve": {"keys": [key_line("a")]}}},
            "the same key stands at",
            "every key opens one tenant",
        ),
        ({"tenants": {**OPEN, "too": {"open": True, "isolation": "shared"}}}, "is open already", "only one tenant"),
        ({"revoked_keys": "file:/nowhere/revoked"}, "cannot read /nowhere/revoked", "touch"),
    ],
)
@pytest.mark.row("G1", smoke=True)
def test_what_is_not_safe_does_not_start(sections, what, fix, tmp_path, monkeypatch, capsys):
    """One row of the matrix each."""
    told = told_at_start(tmp_path, monkeypatch, capsys, **sections)
    assert what in told
    assert fix in told


@pytest.mark.parametrize("salt", ["short", "x" * 64, "this-is-an-example-secret-of-some-length"])
def test_a_weak_salt_secret_does_not_start(salt, tmp_path, monkeypatch, capsys):
    """Short, repetitive, from an example; and it is not repeated."""
    told = told_at_start(tmp_path, monkeypatch, capsys, salt=salt, tenants=TWO)
    assert "openssl rand" in told
    assert salt not in told


def test_a_short_key_in_a_file_does_not_start(tmp_path, monkeypatch, capsys):
    """A SHA-256 protects only what cannot be guessed."""
    (tmp_path / "key").write_text("hunter2\n")
    told = told_at_start(tmp_path, monkeypatch, capsys, tenants={"acme": {"keys": [f"file:{tmp_path}/key"]}})
    assert "at least 20 characters" in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    "sections",
    [
        {"tenants": TWO, "listen": ANYWHERE},
        {"tenants": OPEN},
        {"tenants": {name: {**each, "isolation": "shared"} for name, each in TWO.items()}, "salt_secrets": {}},
    ],
)
def test_what_was_chosen_knowingly_starts(sections, tmp_path):
    """Keys and a salt secret anywhere, one open tenant on loopback, or a cache that all share by word."""
    path = tmp_path / "homing.yaml"
    path.write_text(json.dumps(build_config_data(**sections)))
    assert load_config(path, ENVIRON).tenants
