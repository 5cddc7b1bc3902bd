"""The `homing` program: one table of subcommands, and one place where their errors become words and exit codes.

Exit codes: 0 well, 1 problems found, 2 misuse (a wrong option or configuration).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from gateway.config_source import ConfigError

WELL, PROBLEMS, MISUSE = 0, 1, 2
INTERRUPTED = 130
CONFIG_VARIABLE = "HOMING_CONFIG"
"""Names the configuration where no option does."""


class Subcommand(NamedTuple):
    """A row of the table: what is typed, the module that does it, and what it is for."""

    name: str
    module: str
    sentence: str


COMMANDS: tuple[Subcommand, ...] = (
    Subcommand("serve", "gateway.commands.serve", "run the gateway in front of your workers"),
    Subcommand("worker", "gateway.commands.worker", "run the bundled worker (vLLM's flags)"),
    Subcommand("demo", "gateway.commands.demo", "show on this machine what affinity is worth"),
    Subcommand("explain", "gateway.commands.explain", "say how a request is keyed, folded and placed"),
    Subcommand("replay", "gateway.commands.replay", "replay recorded traffic under other policies, workers, caches"),
    Subcommand("keys", "gateway.commands.keys", "mint, hash or revoke an API key"),
    Subcommand("schema", "gateway.commands.schema", "print the JSON Schema of the configuration"),
    Subcommand("openapi", "gateway.commands.openapi", "print the OpenAPI document of the API"),
    Subcommand("version", "gateway.commands.version", "print what runs here"),
)


class CommandModule(Protocol):
    """What a command's module offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


class CommandError(Exception):
    """A command cannot go on: what is wrong and what to do next; `code` is the exit code."""

    def __init__(self, what: str, *, then: str = "", code: int = PROBLEMS) -> None:
        super().__init__(what)
        self.then = then
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and never lets an error through as a traceback that is the user's own."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except SystemExit as left:  # argparse, after --help or a wrong option
        return left.code if isinstance(left.code, int) else MISUSE
    except ConfigError as error:
        for each in (error, *error.others):
            print(f"homing: {each}", file=sys.stderr)
        print("homing: every setting is listed by `homing schema` and in docs/configuration.md", file=sys.stderr)
        return MISUSE
    except CommandError as error:
        print(f"homing: {error}", file=sys.stderr)
        if error.then:
            print(f"homing: {error.then}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `homing schema | head`
        sys.stderr.close()
        return PROBLEMS


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the command that `words` name is loaded, so that `homing version` need not import a server."""
    parser = argparse.ArgumentParser(
        prog="homing", description="A request goes home to the GPU that already remembers it."
    )
    chosen = next((word for word in words if not word.startswith("-")), None)
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        child = choices.add_parser(command.name, help=command.sentence, description=command.sentence)
        if command.name == chosen:
            load(command).configure(child)
    return parser


def load(command: Subcommand) -> CommandModule:
    """Import a command's module."""
    return cast(CommandModule, import_module(command.module))


def _run(words: list[str]) -> int:
    arguments = build_parser(words).parse_args(words)
    command = next(row for row in COMMANDS if row.name == arguments.command)
    return load(command).run(arguments)
