"""`python -m gateway.docs` writes docs/configuration.md, metrics.md and openapi.json from the tables in the code."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from inspect import getdoc
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from gateway.errors import TABLE
from gateway.metrics import METRICS, PREFIX
from gateway.openapi import openapi_text
from gateway.settings import Config
from router.normalise import RULES, fold_rules
from router.policy import POLICIES

MADE_BY = "<!-- Written by `make docs`; a test says when it is out of date. -->"

CONFIGURATION_HEAD = """# Configuration

One YAML file, given by `--config FILE` or `$HOMING_CONFIG`. A field that is not listed here is an error, told with its
place and the nearest right word. `homing schema` prints the JSON Schema; `examples/` has files to start from.

Secrets never stand in the file: `file:PATH` or `env:NAME` says where they are, and API keys are kept as `sha256:…`
(`homing keys mint TENANT`). `NAME` and `[]` in the table stand for a name of yours and for each item of a list."""

METRICS_HEAD = """# Metrics

On the admin port, `GET /metrics`, in Prometheus' text format or OpenMetrics. A tenant, model or worker that the
gateway does not know reads `other`, so the number of series does not grow with what clients send. Affinity (where
requests went) and cached tokens (what the worker then had) are counted apart: the first is a decision, the second a
result."""

POLICIES_HEAD = """## Policies

`models.NAME.policy`, and for one tenant `tenants.NAME.policy`."""

FOLDS_HEAD = """## Fold rules

`tenants.NAME.fold`: what the *routing key* reads as equal, so that look-alikes go to one worker. What is forwarded
stays byte for byte as it came."""

ERRORS_HEAD = """## Errors

What the gateway itself answers, in OpenAI's shape `{"error": {"message", "type", "param", "code"}}`; on `/v1/messages`
and below in Anthropic's, `{"type": "error", "error": {"type", "message"}, "request_id"}`, 529 in place of 503."""


class Setting(NamedTuple):
    """A row of the settings table."""

    path: str
    kind: str
    default: str
    sentence: str


def settings_table(section: type[Any] = Config, prefix: str = "") -> list[Setting]:
    """Every setting below `section`, depth first, in the order written."""
    return list(_settings(inspect.type_info(section), prefix))


def configuration_page() -> str:
    """docs/configuration.md."""
    rows = [
        (f"`{each.path}`", each.kind, f"`{each.default}`" if each.default else "", each.sentence)
        for each in settings_table()
    ]
    errors = [
        (
            each.situation,
            str(each.status),
            f"{each.type} / {each.code or '–'}",
            each.anthropic.type if each.anthropic.status == each.status else " ".join(map(str, each.anthropic)),
            ", ".join(map(": ".join, each.retry_hint)),
        )
        for each in TABLE
    ]
    table = markdown_table(("setting", "type", "default", "what it is"), rows)
    error_table = markdown_table(("situation", "HTTP", "type / code", "Anthropic's type", "headers"), errors)
    parts = (CONFIGURATION_HEAD, MADE_BY, table, POLICIES_HEAD, _policies(), FOLDS_HEAD, _fold_rules())
    return "\n\n".join((*parts, ERRORS_HEAD, error_table)) + "\n"


def _policies() -> str:
    rows = [(f"`{name}`", (getdoc(policy) or name).splitlines()[0]) for name, policy in POLICIES.items()]
    return markdown_table(("policy", "who gets a request"), rows)


def _fold_rules() -> str:
    default = fold_rules("default")
    rows = [
        (f"`{rule.name}`", "yes" if rule.name in default else "", rule.sentence, rule.acts_on, rule.never_touches)
        for rule in RULES
    ]
    return markdown_table(("rule", "default", "what reads as equal", "acts on", "never touches"), rows)


def metrics_page() -> str:
    """docs/metrics.md."""
    rows = [(f"`{PREFIX}{row.name}`", row.kind, ", ".join(row.labels), row.sentence) for row in METRICS]
    return "\n\n".join((METRICS_HEAD, MADE_BY, markdown_table(("metric", "kind", "labels", "what it is"), rows))) + "\n"


def markdown_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table; bars inside cells are escaped."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def write_docs(folder: Path) -> None:
    """Write the pages and the OpenAPI document into `folder`."""
    (folder / "configuration.md").write_text(configuration_page(), encoding="utf-8")
    (folder / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (folder / "openapi.json").write_text(openapi_text(), encoding="utf-8")


def _settings(kind: inspect.Type, prefix: str) -> Iterator[Setting]:
    if not isinstance(kind, inspect.StructType):
        return
    for field in kind.fields:
        path = f"{prefix}.{field.encode_name}" if prefix else field.encode_name
        inner = list(_insides(field.type, path))
        if not inner or _description(field.type):
            yield Setting(path, _words(field.type), _default(field), _description(field.type))
        for below, name in inner:
            yield from _settings(below, name)


def _insides(kind: inspect.Type, path: str) -> Iterator[tuple[inspect.StructType, str]]:
    """The sections inside a type, and what their settings' paths begin with."""
    if isinstance(kind, inspect.Metadata):
        yield from _insides(kind.type, path)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _insides(one, path)
    elif isinstance(kind, inspect.DictType):
        yield from _insides(kind.value_type, f"{path}.NAME")
    elif isinstance(kind, inspect.ListType):
        yield from _insides(kind.item_type, f"{path}[]")
    elif isinstance(kind, inspect.StructType):
        yield kind, path


def _description(kind: inspect.Type) -> str:
    if not isinstance(kind, inspect.Metadata):
        return ""
    return (kind.extra_json_schema or {}).get("description", "") or _description(kind.type)


def _words(kind: inspect.Type) -> str:
    """A type in a reader's words."""
    if isinstance(kind, inspect.Metadata):
        return _words(kind.type)
    if isinstance(kind, inspect.UnionType):
        return " or ".join(_words(one) for one in kind.types if not isinstance(one, inspect.NoneType))
    if isinstance(kind, inspect.LiteralType):
        return ", ".join(map(str, kind.values))
    if isinstance(kind, inspect.ListType):
        return f"list of {_words(kind.item_type)}"
    if isinstance(kind, (inspect.DictType, inspect.StructType)):
        return "mapping"
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return _number_words(kind)
    return {"StrType": "text", "BoolType": "true or false"}[type(kind).__name__]


def _number_words(kind: inspect.IntType | inspect.FloatType) -> str:
    noun = "whole number" if isinstance(kind, inspect.IntType) else "number"
    bounds = (("≥", kind.ge), (">", kind.gt), ("≤", kind.le), ("<", kind.lt))
    return " ".join([noun, *(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)])


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return ""
    return "" if field.default is None else msgspec.json.encode(field.default).decode()


def main() -> None:
    """Write the pages beside the code, or where `--into` says."""
    parser = argparse.ArgumentParser(description="write docs/configuration.md and docs/metrics.md")
    parser.add_argument("--into", type=Path, default=Path(__file__).parents[1] / "docs")
    write_docs(parser.parse_args().into)


if __name__ == "__main__":
    main()
