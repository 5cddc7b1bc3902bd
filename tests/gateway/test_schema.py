"""`homing schema`: what it prints is a JSON Schema that says of a file what the program says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from gateway.cli import WELL, main
from gateway.docs import settings_table
from gateway.settings import Config
from tests.gateway.builders import build_config_data

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "deploy").rglob("homing.yaml")])


@pytest.fixture
def schema(capsys) -> dict[str, Any]:
    assert main(["schema"]) == WELL
    return dict(json.loads(capsys.readouterr().out))


def mistakes(schema: dict[str, Any], data: Any) -> list[str]:
    return [error.json_path for error in Draft202012Validator(schema).iter_errors(data)]


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], bool]]:
    """Every field of every section: both names, what is said of it, and whether it must be there."""
    for section, each in schema["$defs"].items():
        for name, told in each.get("properties", {}).items():
            yield section, name, told, name in each.get("required", ())


def test_it_is_a_schema(schema):
    """By the draft that it names."""
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_files_that_come_with_the_program_are_right(path, schema):
    """What a reader copies, and what is deployed."""
    assert mistakes(schema, yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        ({"limts": {}}, "$"),
        ({"listen": {"port": 70000}}, "$.listen.port"),
        ({"listen": {"prt": 1}}, "$.listen"),
        ({"tenants": {}}, "$.tenants"),
        ({"tenants": {"acme": {"keys": "sha256:00"}}}, "$.tenants.acme.keys"),
        ({"tenants": {"acme": {"max_prompt_tokens": 0}}}, "$.tenants.acme.max_prompt_tokens"),
        ({"log": {"level": "loud"}}, "$.log.level"),
    ],
)
def test_an_editor_sees_what_the_program_would_refuse(sections, place, schema):
    """Unknown fields, bounds, kinds and words."""
    assert mistakes(schema, build_config_data()) == []
    assert place in mistakes(schema, build_config_data(**sections))


def test_every_field_says_what_it_is(schema):
    """Its own sentence, or its section's."""
    silent = [
        f"{section}.{name}"
        for section, name, told, _ in properties(schema)
        if "description" not in json.dumps(told) and "$ref" not in json.dumps(told)
    ]
    assert silent == []
    assert all(each.get("description") for each in schema["$defs"].values() if "properties" in each)


def test_every_field_that_may_be_left_out_says_what_then(schema):
    """With its default; a section has those of its fields."""
    unsaid = [
        f"{section}.{name}"
        for section, name, told, must in properties(schema)
        if not must and "default" not in told and "$ref" not in told
    ]
    assert unsaid == []


def test_the_schema_and_the_page_name_the_same_fields(schema):
    """docs/configuration.md derives from the same table."""
    in_schema = {name for _, name, _, _ in properties(schema)}
    in_page = {each.path.rpartition(".")[2].removesuffix("[]") for each in settings_table(Config)}
    assert in_page <= in_schema
