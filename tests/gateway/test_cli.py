"""The program: exit codes, and errors that say what, where and what next."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import COMMANDS, MISUSE, PROBLEMS, WELL, CommandError, build_parser, load, main
from gateway.secrets import key_digest
from tests.gateway.builders import write_config

ROOT = Path(__file__).parents[2]


def test_every_command_has_a_module_with_its_two_functions():
    """A row in the table is enough to be found, so what it names must be there."""
    for command in COMMANDS:
        module = load(command)
        assert callable(module.configure)
        assert callable(module.run)
        assert command.sentence[0].islower()


@pytest.mark.parametrize("command", [row.name for row in COMMANDS if row.name != "worker"])
def test_every_command_explains_itself(command, capsys):
    """--help ends well. (`worker` becomes another program, which has tests of its own.)"""
    assert main([command, "--help"]) == WELL
    assert command in capsys.readouterr().out


def test_the_program_explains_itself(capsys):
    """Every command with its sentence."""
    assert main(["--help"]) == WELL
    told = capsys.readouterr().out
    assert all(row.sentence in told for row in COMMANDS)


@pytest.mark.parametrize("words", [[], ["bogus"], ["serve", "--bogus"], ["keys"], ["serve", "--port", "x"]])
def test_misuse_is_two(words, capsys):
    """And says how to use it."""
    assert main(words) == MISUSE
    assert "usage: homing" in capsys.readouterr().err


def test_serve_without_anything_says_how_to_start(capsys, monkeypatch):
    """The first thing somebody types."""
    monkeypatch.delenv("HOMING_CONFIG", raising=False)
    assert main(["serve"]) == MISUSE
    assert "homing serve --worker http://127.0.0.1:8000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--config", "/nowhere.yaml"], "/nowhere.yaml: $: cannot be read"),
        (["--worker", "https://gpu"], "plain HTTP"),
        (["--worker", "http://gpu", "--host", "0.0.0.0"], "lets anyone in"),
        (["--worker", "http://gpu", "--port", "70000"], "a port is a number from 0 to 65535"),
    ],
)
def test_a_wrong_configuration_is_two(words, told, capsys):
    """Without a traceback."""
    assert main(["serve", *words]) == MISUSE
    shown = capsys.readouterr().err
    assert told in shown
    assert "Traceback" not in shown


def test_all_mistakes_of_a_file_are_shown(tmp_path, capsys, monkeypatch):
    """Each on its line, with where to read on; the file may be named by the environment."""
    path = write_config(
        tmp_path,
        "salt_secrets: {k1: env:NO_SUCH_SALT}\n"
        "models: {m: {backends: {static: [http://127.0.0.1:8001]}}}\n"
        "tenants:\n  acme: {keys: [file:/nowhere], models: [n]}\n",
    )
    monkeypatch.setenv("HOMING_CONFIG", str(path))
    assert main(["serve"]) == MISUSE
    shown = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in shown[:3]] == [
        "$.salt_secrets.k1",
        "$.tenants.acme.models[0]",
        "$.tenants.acme.keys[0]",
    ]
    assert "docs/configuration.md" in shown[-1]


def test_a_commands_own_error_becomes_words(capsys, monkeypatch):
    """What and what next."""

    class Failing:
        def configure(self, parser):
            pass

        def run(self, arguments):
            raise CommandError("it is broken", then="mend it")

    monkeypatch.setattr("gateway.cli.load", lambda command: Failing())
    assert main(["version"]) == PROBLEMS
    assert capsys.readouterr().err == "homing: it is broken\nhoming: mend it\n"


def test_an_interrupt_is_no_traceback(monkeypatch):
    """Ctrl-C."""

    class Interrupted:
        def configure(self, parser):
            pass

        def run(self, arguments):
            raise KeyboardInterrupt

    monkeypatch.setattr("gateway.cli.load", lambda command: Interrupted())
    assert main(["version"]) == 130


def test_only_the_chosen_command_is_loaded():
    """`homing version` does not import a server."""
    program = "import sys; from gateway.cli import main; main(['version']); print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_python_m_gateway_is_the_program():
    """For a checkout that is not installed."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("homing ")


def test_version_tells_what_a_bug_report_needs(capsys):
    """One object."""
    assert main(["version", "--json"]) == WELL
    assert {"homing", "python", "aiohttp", "uvloop"} <= set(json.loads(capsys.readouterr().out))


def test_the_schema_is_json(capsys):
    """An editor can read it."""
    assert main(["schema"]) == WELL
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "tenants" in schema["$defs"]["Config"]["properties"]


def test_a_minted_key_and_what_to_store_of_it(capsys):
    """The key once, its digest for the file, and no word of it in between."""
    assert main(["keys", "mint", "acme"]) == WELL
    shown = capsys.readouterr()
    key, stored = shown.out.splitlines()
    assert stored == f"sha256:{key_digest(key).hex()}"
    assert len(key) > 40
    assert "tenants.acme.keys" in shown.err
    assert key not in shown.err


def test_minted_keys_differ(capsys):
    """256 random bits."""
    main(["keys", "mint", "acme", "--json"])
    main(["keys", "mint", "acme", "--json"])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["key"] != second["key"]
    assert first["tenant"] == "acme"


def test_a_key_is_hashed_from_standard_input():
    """Never from the command line, where `ps` and the shell's history see it."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "keys", "hash"],
        cwd=ROOT, input="my-key\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"sha256:{key_digest('my-key').hex()}\n"


def test_no_key_on_standard_input_is_misuse():
    """An empty file is a mistake."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "keys", "hash"],
        cwd=ROOT, input="\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == MISUSE
    assert "no key on standard input" in done.stderr


def test_the_parser_knows_every_command():
    """Also those whose modules were not loaded."""
    assert build_parser(["version"]).parse_args(["version"]).command == "version"
