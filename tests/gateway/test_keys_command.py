"""`homing keys`: what is printed, what is written, and what is refused with which exit code."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from gateway.cli import MISUSE, PROBLEMS, WELL, main
from gateway.keys import read_keys, read_revoked
from gateway.secrets import fingerprint, key_digest
from tests.gateway.builders import build_config_data, key_line

ACME = key_digest("acme-key")


@pytest.fixture
def revoked(tmp_path: Path) -> Path:
    return tmp_path / "revoked"


@pytest.fixture
def config(tmp_path: Path, revoked: Path) -> Path:
    """A configuration with two tenants and a list."""
    tenants = {"acme": {"keys": [key_line("acme-key")]}, "globex": {"keys": [key_line("globex-key")]}}
    path = tmp_path / "homing.yaml"
    path.write_text(json.dumps(build_config_data(tenants=tenants, revoked_keys=f"file:{revoked}")))
    return path


def type_in(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


@pytest.mark.parametrize("name", [fingerprint(ACME), key_line("acme-key"), f"sha256:{ACME.hex()[:8]}"])
def test_a_key_is_revoked_by_its_name(name, config, revoked, capsys):
    """As logs show it, or as the configuration does; the list names the tenant and the time, never the key."""
    assert main(["keys", "revoke", name, "--config", str(config)]) == WELL
    assert read_revoked(f"file:{revoked}") == {ACME}
    line = revoked.read_text()
    assert line.startswith(f"{key_line('acme-key')} revoked 20")
    assert line.endswith(" acme\n")
    shown = capsys.readouterr()
    assert shown.out == f"{key_line('acme-key')} acme\n"
    assert str(revoked) in shown.err


def test_a_key_itself_is_read_from_standard_input(config, revoked, monkeypatch, capsys):
    """Whoever found it in a repository has nothing else; it appears nowhere."""
    type_in(monkeypatch, "acme-key\n")
    assert main(["keys", "revoke", "-", "--config", str(config), "--json"]) == WELL
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "file": str(revoked),
        "revoked": [
            {"sha256": key_line("acme-key"), "fingerprint": fingerprint(ACME), "tenant": "acme", "was_there": False}
        ],
    }
    assert "acme-key" not in shown.out + shown.err + revoked.read_text()


def test_several_keys_are_revoked_and_none_twice(config, revoked, capsys, monkeypatch):
    """The list may end without a line end, as an editor leaves it; the configuration may come from the environment."""
    monkeypatch.setenv("HOMING_CONFIG", str(config))
    revoked.write_text(key_line("acme-key"))
    names = [fingerprint(ACME), fingerprint(key_digest("globex-key")), key_line("globex-key")]
    assert main(["keys", "revoke", *names]) == WELL
    assert "was on the list already" in capsys.readouterr().out
    lines = revoked.read_text().splitlines()
    assert [line[:71] for line in lines] == [key_line("acme-key"), key_line("globex-key")]


@pytest.mark.parametrize("name", ["acme-key", "abc", "sha256:xyz", "0" * 12, "sha256:" + "0" * 64])
def test_a_key_that_nobody_has_is_a_problem(name, config, revoked, capsys):
    """Or it would be thought revoked."""
    assert main(["keys", "revoke", name, fingerprint(ACME), "--config", str(config)]) == PROBLEMS
    assert not revoked.exists()
    shown = capsys.readouterr().err
    assert "nothing was written" in shown
    assert "acme-key" not in shown


def test_a_mistake_elsewhere_does_not_keep_a_key_alive(config, revoked):
    """A key file that is not there, a worker that cannot be: not now."""
    data = json.loads(config.read_text())
    data["tenants"]["globex"]["keys"] = ["file:/nowhere"]
    data["models"]["m"]["backends"]["static"] = ["https://nowhere"]
    config.write_text(json.dumps(data))
    assert main(["keys", "revoke", fingerprint(ACME), "--config", str(config)]) == WELL
    assert read_revoked(f"file:{revoked}") == {ACME}


def test_without_a_configuration_the_list_itself_is_named(revoked):
    """Where the list is one file of many gateways."""
    assert main(["keys", "revoke", key_line("whoever"), "--into", str(revoked)]) == WELL
    assert read_revoked(f"file:{revoked}") == {key_digest("whoever")}


def test_a_configuration_without_a_list_is_misuse(tmp_path, capsys):
    """With the line to add."""
    path = tmp_path / "homing.yaml"
    path.write_text(json.dumps(build_config_data()))
    assert main(["keys", "revoke", fingerprint(ACME), "--config", str(path)]) == MISUSE
    assert "add `revoked_keys: file:" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["revoke"], ["revoke", "abc"], ["revoke", "abc", "--config", "/nowhere"]])
def test_misuse_is_two(words, monkeypatch, capsys):
    """No key, no configuration, none that can be read."""
    monkeypatch.delenv("HOMING_CONFIG", raising=False)
    assert main(["keys", *words]) == MISUSE
    assert capsys.readouterr().err


def test_a_list_with_a_mistake_is_not_added_to(config, revoked, capsys):
    """Gateways would not take it."""
    revoked.write_text("nonsense\n")
    assert main(["keys", "revoke", fingerprint(ACME), "--config", str(config)]) == PROBLEMS
    assert f"{revoked}:1" in capsys.readouterr().err
    assert revoked.read_text() == "nonsense\n"


def test_a_list_that_cannot_be_written_is_a_problem(config, revoked, capsys):
    """Its folder is not there."""
    assert main(["keys", "revoke", key_line("acme-key"), "--into", str(revoked / "there")]) == PROBLEMS
    assert "cannot write" in capsys.readouterr().err


def test_a_key_may_be_minted_with_an_end(capsys):
    """The line to paste says so."""
    assert main(["keys", "mint", "acme", "--expires", "2199-12-31", "--json"]) == WELL
    minted = json.loads(capsys.readouterr().out)
    (kept,) = read_keys(minted["sha256"])
    assert kept.digest == key_digest(minted["key"])
    assert kept.expires_at == 7258118400


def test_an_end_that_is_none_is_misuse(capsys):
    """Before a key is made."""
    assert main(["keys", "mint", "acme", "--expires", "soon"]) == MISUSE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "2026-12-31" in shown.err
