"""The generated pages are current, and nothing is missing from them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gateway.docs import configuration_page, markdown_table, metrics_page, settings_table, write_docs
from gateway.errors import TABLE
from gateway.metrics import METRICS
from gateway.settings import Config, Model, TenantSettings
from router.normalise import RULES
from router.policy import POLICIES

DOCS = Path(__file__).parents[2] / "docs"


def test_the_configuration_page_is_current():
    """`make docs` writes it anew."""
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == configuration_page()


def test_the_metrics_page_is_current():
    """`make docs` writes it anew."""
    assert (DOCS / "metrics.md").read_text(encoding="utf-8") == metrics_page()


def test_every_setting_has_a_sentence():
    """A reader learns what it does, not only that it is there."""
    for setting in settings_table():
        assert setting.sentence.endswith("."), setting.path
        assert setting.kind


def test_every_field_is_a_row():
    """Sections inside mappings of names and inside lists, too."""
    paths = {setting.path for setting in settings_table()}
    assert {f"models.NAME.{field}" for field in Model.__struct_fields__} <= paths
    assert {f"tenants.NAME.{field}" for field in TenantSettings.__struct_fields__} <= paths
    assert "models.NAME.backends.static[].url" in paths
    assert "models.NAME.policy.ring_slack_seconds" in paths


def test_defaults_and_bounds_are_shown():
    """The table says what happens when nothing is said."""
    rows = {setting.path: setting for setting in settings_table()}
    assert rows["timeouts.connect_seconds"].default == "1.0"
    assert rows["timeouts.connect_seconds"].kind == "number > 0"
    assert rows["models"].default == "required"
    assert rows["log.level"].kind == "debug, error, info, warning"


def test_every_error_and_metric_is_on_a_page():
    """The tables in the code are the tables in the docs."""
    page = configuration_page()
    assert all(row.situation in page for row in TABLE)
    assert all(f"`homing_{row.name}`" in metrics_page() for row in METRICS)


def test_every_policy_and_fold_rule_is_on_the_page():
    """What a setting may name is listed where the setting is."""
    page = configuration_page()
    assert all(f"| `{name}` |" in page for name in POLICIES)
    assert all(f"| `{rule.name}` |" in page for rule in RULES)


def test_the_pages_are_written_where_asked(tmp_path):
    """For the `make` target."""
    write_docs(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["configuration.md", "metrics.md", "openapi.json"]


def test_a_bar_in_a_cell_does_not_end_it():
    """Markdown tables are fragile."""
    assert markdown_table(("a",), [("x | y",)]).splitlines()[-1] == "| x \\| y |"


def test_the_schema_refuses_what_the_loader_refuses():
    """Editors that know the schema mark unknown fields."""
    schema = msgspec.json.schema(Config)
    assert all(part.get("additionalProperties") is False for part in schema["$defs"].values())


def test_the_operations_page_names_only_what_there_is():
    """Its settings, metrics and make targets exist."""
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    settings = {setting.path for setting in settings_table()}
    named = set(re.findall(r"`((?:listen|prewarm|tenants|models)\.[\w.]+)`", page))
    assert named
    assert named <= settings
    metrics = {f"homing_{row.name}" for row in METRICS}
    assert set(re.findall(r"`(homing_\w+)`", page)) <= metrics
    makefile = (DOCS.parent / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}:" in makefile for target in re.findall(r"`make ([\w-]+)`", page))
