"""`homing schema`: the JSON Schema of the configuration, for editors and checkers."""

from __future__ import annotations

import argparse
import json

import msgspec

from gateway.settings import Config


def configure(parser: argparse.ArgumentParser) -> None:
    """This command has no options."""


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every command has this shape
    """Print the schema."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Config)}
    print(json.dumps(schema, indent=2))
    return 0
