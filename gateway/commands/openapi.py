"""`homing openapi`: the OpenAPI document of the data port, for client generators and testers."""

from __future__ import annotations

import argparse

from gateway.openapi import openapi_text


def configure(parser: argparse.ArgumentParser) -> None:
    """This command has no options."""


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every command has this shape
    """Print the document."""
    print(openapi_text(), end="")
    return 0
